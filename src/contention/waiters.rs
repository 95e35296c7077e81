//! Who waits at this moment, and since when nobody has answered for it: what the one who ends a
//! wait is charged with.

use std::io;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::sys::memory::Pages;

/// Buckets, a power of two: 256 KiB, of which those are touched that are used.
const BUCKETS: usize = 2048;

/// Places of a bucket. What is looked at to find a waiter is in one cache line.
const PLACES: usize = 4;

/// A waiter goes into this bucket after its own at the most: room for 256 waiters of one address.
const MOST_REACH: usize = 63;

/// No address: a place that is being filled.
const FILLING: u64 = 1;

/// In a time: somebody has answered for a part of the wait.
const ANSWERED: u64 = 1 << 63;

/// In place of a time: the wait has not begun, or it is over.
const NOT_YET: u64 = ANSWERED - 1;

/// A waiter, or one of many.
#[derive(Debug)]
struct Place {
    /// That it waits at; 0 for nobody.
    address: AtomicU64,
    /// The end of the time that somebody has answered for, with [`ANSWERED`]: at first the
    /// beginning of the wait, and before that [`NOT_YET`].
    since_ns: AtomicU64,
}

#[derive(Debug)]
#[repr(C, align(128))]
struct Bucket {
    places: [Place; PLACES],
    /// Of each waiter, as in [`Charge::caller`].
    callers: [AtomicU64; PLACES],
    /// How many waiters each stands for.
    one_of: [AtomicU32; PLACES],
}

/// Those who wait, by address.
#[derive(Debug)]
pub(super) struct Waiters {
    /// Zeroed at first.
    buckets: Pages,
    /// By bucket: how many buckets behind it hold waiters that belong in it. It only grows.
    reaches: Box<[AtomicU8]>,
}

// SAFETY: the pages are atomic words, which any thread may use.
unsafe impl Sync for Waiters {}

/// A waiter has a place, until this is dropped.
#[derive(Debug)]
pub(super) struct Waiting<'w>(&'w Place);

impl Waiting<'_> {
    /// The wait begins. *Async-signal-safe.*
    pub(super) fn begin(&self, now_ns: u64) {
        self.0.since_ns.store(now_ns, Ordering::Release);
    }

    /// The wait is over: nobody is charged with it from now on. Whether anybody was.
    /// *Async-signal-safe.*
    pub(super) fn end(&self) -> bool {
        self.0.since_ns.swap(NOT_YET, Ordering::Relaxed) & ANSWERED != 0
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.address.store(0, Ordering::Release);
    }
}

/// What one is charged with who ends waits.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Charge {
    /// Waits that nobody had answered for before, with those that they stand for: each wait counts
    /// once, however many answer for a part of it.
    pub(super) waits: u32,
    /// How long it was for which nobody had answered, of all who wait, with those that they stand
    /// for; 0 where nobody waits.
    pub(super) ns: u64,
    /// Where a waiter's call returns to; or what it waits for, as [`Wait::number`] has it.
    ///
    /// [`Wait::number`]: super::wait::Wait::number
    pub(super) caller: u64,
}

impl Waiters {
    /// # Errors
    ///
    /// Those of mapping memory.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            buckets: Pages::map(BUCKETS * size_of::<Bucket>())?,
            reaches: (0..BUCKETS).map(|_| AtomicU8::new(0)).collect(),
        })
    }

    fn buckets(&self) -> &[Bucket] {
        // SAFETY: the pages are as long, aligned to more, zero at first, which is a value of
        // theirs, and never touched in another way.
        unsafe { std::slice::from_raw_parts(self.buckets.as_ptr().cast(), BUCKETS) }
    }

    /// The bucket of an address.
    fn home(address: u64) -> usize {
        // Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, 6.4).
        let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> (64 - BUCKETS.ilog2())) as usize
    }

    /// Notes that somebody is about to wait at an address, who stands for so many; `None` where too
    /// many do. *Async-signal-safe.*
    pub(super) fn enter(&self, address: u64, one_of: u32, caller: u64) -> Option<Waiting<'_>> {
        let home = Self::home(address);
        (0..=MOST_REACH).find_map(|reach| {
            let bucket = &self.buckets()[(home + reach) % BUCKETS];
            let free = bucket.places.iter().position(Place::take)?;
            let place = &bucket.places[free];
            if reach > 0 {
                // Before the address, so that whoever looks for it looks there.
                self.reaches[home].fetch_max(reach as u8, Ordering::Relaxed);
            }
            bucket.callers[free].store(caller, Ordering::Relaxed);
            bucket.one_of[free].store(one_of, Ordering::Relaxed);
            place.since_ns.store(NOT_YET, Ordering::Relaxed);
            place.address.store(address, Ordering::Release);
            Some(Waiting(place))
        })
    }

    /// Whether anybody waits at an address. *Async-signal-safe.*
    pub(super) fn has_any_at(&self, address: u64) -> bool {
        let mut places = (self.buckets_of(address)).flat_map(|bucket| &bucket.places);
        places.any(|place| place.address.load(Ordering::Relaxed) == address)
    }

    /// Charges the one who calls it, and nobody else, with the time until `now_ns` of those who
    /// wait at an address: for each, as `weighted` has it of its own time and of how many it stands
    /// for. *Async-signal-safe.*
    pub(super) fn charge(
        &self,
        address: u64,
        now_ns: u64,
        weighted: impl Fn(u64, u32) -> u64,
    ) -> Charge {
        let mut charge = Charge::default();
        for bucket in self.buckets_of(address) {
            for (nth, place) in bucket.places.iter().enumerate() {
                if let Some((ns, is_new)) = place.charge(address, now_ns) {
                    let one_of = bucket.one_of[nth].load(Ordering::Relaxed);
                    charge.waits += u32::from(is_new) * one_of;
                    charge.ns += weighted(ns, one_of);
                    charge.caller = bucket.callers[nth].load(Ordering::Relaxed);
                }
            }
        }
        charge
    }

    /// Those in which a waiter of an address may be.
    fn buckets_of(&self, address: u64) -> impl Iterator<Item = &Bucket> {
        let home = Self::home(address);
        let reach = usize::from(self.reaches[home].load(Ordering::Relaxed));
        (home..=home + reach).map(|nth| &self.buckets()[nth % BUCKETS])
    }
}

impl Place {
    /// Takes the place, if nobody has it.
    fn take(&self) -> bool {
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        self.address.load(failure) == 0
            && (self.address)
                .compare_exchange(0, FILLING, success, failure)
                .is_ok()
    }

    /// For how long nobody has answered, and whether nobody ever has.
    fn charge(&self, address: u64, now_ns: u64) -> Option<(u64, bool)> {
        if self.address.load(Ordering::Acquire) != address {
            return None;
        }
        let since_ns = self.since_ns.load(Ordering::Acquire);
        let ns = now_ns.checked_sub(since_ns & !ANSWERED)?;
        // The time is this waiter's if the address still is; and where another takes the place now,
        // its time is another one.
        (self.address.load(Ordering::Relaxed) == address
            && (self.since_ns)
                .compare_exchange(
                    since_ns,
                    now_ns | ANSWERED,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok())
        .then_some((ns, since_ns & ANSWERED == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charge_of(waiters: &Waiters, address: u64, now_ns: u64) -> Charge {
        waiters.charge(address, now_ns, |ns, one_of| ns * u64::from(one_of))
    }

    #[test]
    fn who_ends_a_wait_is_charged_with_it_once() {
        let waiters = Waiters::new().unwrap();
        let (lock, other) = (0x1000, 0x2000);
        assert_eq!(charge_of(&waiters, lock, 50), Charge::default());
        let first = waiters.enter(lock, 1, 7).unwrap();
        first.begin(100);
        let second = waiters.enter(lock, 1, 7).unwrap();
        second.begin(150);
        let of_other = waiters.enter(other, 1, 8).unwrap();
        of_other.begin(0);
        let expected = |waits, ns, caller| Charge { waits, ns, caller };
        assert_eq!(charge_of(&waiters, lock, 200), expected(2, 100 + 50, 7));
        assert!(first.end());
        drop(first);
        // The second one waits on, and the next one answers for that.
        assert_eq!(charge_of(&waiters, lock, 230), expected(0, 30, 7));
        assert!(second.end());
        assert_eq!(charge_of(&waiters, lock, 300), Charge::default());
        drop(second);
        assert_eq!(charge_of(&waiters, lock, 300), Charge::default());
        assert_eq!(charge_of(&waiters, other, 300), expected(1, 300, 8));
        drop(of_other);
    }

    #[test]
    fn some_who_wait_stand_for_all() {
        let waiters = Waiters::new().unwrap();
        let one_of_ten = waiters.enter(0x1000, 10, 7).unwrap();
        one_of_ten.begin(100);
        assert!(waiters.has_any_at(0x1000) && !waiters.has_any_at(0x2000));
        let charge = charge_of(&waiters, 0x1000, 103);
        assert_eq!((charge.waits, charge.ns), (10, 30));
        // The next one answers for more time of the same waits.
        let charge = charge_of(&waiters, 0x1000, 104);
        assert_eq!((charge.waits, charge.ns), (0, 10));
        drop(one_of_ten);
        assert!(!waiters.has_any_at(0x1000));
    }

    #[test]
    fn many_may_wait_at_one_address() {
        let waiters = Waiters::new().unwrap();
        let most = (MOST_REACH + 1) * PLACES;
        let all: Vec<_> = (0..most)
            .map(|_| waiters.enter(0x1000, 1, 7).unwrap())
            .collect();
        assert!(waiters.enter(0x1000, 1, 7).is_none());
        all.iter().for_each(|waiting| waiting.begin(10));
        let charge = charge_of(&waiters, 0x1000, 15);
        assert_eq!(
            (charge.waits as usize, charge.ns as usize),
            (most, 5 * most)
        );
        drop(all);
        assert_eq!(charge_of(&waiters, 0x1000, 20), Charge::default());
    }

    #[test]
    fn the_time_of_all_waits_is_charged_once_by_all_who_end_them() {
        const ROUNDS: u64 = 20_000;
        let waiters = Waiters::new().unwrap();
        let (clock, waited) = (AtomicU64::new(1), AtomicU64::new(0));
        let charged = AtomicU64::new(0);
        let tick = || clock.fetch_add(1, Ordering::SeqCst);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let charge = charge_of(&waiters, 0x1000, tick());
                        charged.fetch_add(charge.ns, Ordering::Relaxed);
                    }
                });
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let waiting = waiters.enter(0x1000, 1, 7).unwrap();
                        let begin = tick();
                        waiting.begin(begin);
                        std::hint::spin_loop();
                        drop(waiting);
                        waited.fetch_add(tick() - begin, Ordering::Relaxed);
                    }
                });
            }
        });
        assert!(charged.into_inner() <= waited.into_inner());
    }
}
