//! Who waits at this moment, and since when nobody has answered for it: what the one who ends a
//! wait is charged with.

use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::sys::memory::Pages;

/// Buckets, a power of two: 256 KiB, of which those are touched that are used.
const BUCKETS: usize = 2048;

/// Places of a bucket. What is looked at to find a waiter is in one cache line.
const PLACES: usize = 4;

/// A waiter goes into this bucket after its own at the most: room for 64 waiters of one address.
const MOST_REACH: usize = 16;

/// No address: a place that is being filled.
const FILLING: u64 = 1;

/// In a time: somebody has answered for a part of the wait.
const ANSWERED: u64 = 1 << 63;

/// A waiter.
#[derive(Debug)]
struct Place {
    /// That it waits at; 0 for nobody.
    address: AtomicU64,
    /// The end of the time that somebody has answered for, with [`ANSWERED`]: at first the
    /// beginning of the wait.
    since_ns: AtomicU64,
}

#[derive(Debug)]
#[repr(C, align(128))]
struct Bucket {
    places: [Place; PLACES],
    /// Of each waiter, as in [`Charge::caller`].
    callers: [AtomicU64; PLACES],
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

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.address.store(0, Ordering::Release);
    }
}

/// What one is charged with who ends waits.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Charge {
    /// Those who waited.
    pub(super) waiters: u32,
    /// Those of them that nobody had answered for before.
    pub(super) newly: u32,
    /// How long they did for which nobody had answered, all of them together.
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

    /// Notes that somebody waits at an address; `None` where too many do. *Async-signal-safe.*
    pub(super) fn enter(&self, address: u64, begin_ns: u64, caller: u64) -> Option<Waiting<'_>> {
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
            place.since_ns.store(begin_ns, Ordering::Relaxed);
            place.address.store(address, Ordering::Release);
            Some(Waiting(place))
        })
    }

    /// Charges the one who calls it, and nobody else, with the time until `now_ns` of those who
    /// wait at an address. *Async-signal-safe.*
    pub(super) fn charge(&self, address: u64, now_ns: u64) -> Charge {
        let home = Self::home(address);
        let reach = usize::from(self.reaches[home].load(Ordering::Relaxed));
        let mut charge = Charge::default();
        for reach in 0..=reach {
            let bucket = &self.buckets()[(home + reach) % BUCKETS];
            for (place, caller) in bucket.places.iter().zip(&bucket.callers) {
                if let Some((ns, is_new)) = place.charge(address, now_ns) {
                    charge.waiters += 1;
                    charge.newly += u32::from(is_new);
                    charge.ns += ns;
                    charge.caller = caller.load(Ordering::Relaxed);
                }
            }
        }
        charge
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

    #[test]
    fn who_ends_a_wait_is_charged_with_it_once() {
        let waiters = Waiters::new().unwrap();
        let (lock, other) = (0x1000, 0x2000);
        assert_eq!(waiters.charge(lock, 50), Charge::default());
        let first = waiters.enter(lock, 100, 7).unwrap();
        let second = waiters.enter(lock, 150, 7).unwrap();
        let of_other = waiters.enter(other, 0, 8).unwrap();
        let charge = |waiters, newly, ns, caller| Charge {
            waiters,
            newly,
            ns,
            caller,
        };
        assert_eq!(waiters.charge(lock, 200), charge(2, 2, 100 + 50, 7));
        drop(first);
        // The second one waits on, and the next one answers for that.
        assert_eq!(waiters.charge(lock, 230), charge(1, 0, 30, 7));
        drop(second);
        assert_eq!(waiters.charge(lock, 300), Charge::default());
        assert_eq!(waiters.charge(other, 300), charge(1, 1, 300, 8));
        drop(of_other);
    }

    #[test]
    fn many_may_wait_at_one_address() {
        let waiters = Waiters::new().unwrap();
        let most = (MOST_REACH + 1) * PLACES;
        let all: Vec<_> = (0..most)
            .map(|_| waiters.enter(0x1000, 10, 7).unwrap())
            .collect();
        assert!(waiters.enter(0x1000, 10, 7).is_none());
        let charge = waiters.charge(0x1000, 15);
        assert_eq!(
            (charge.waiters as usize, charge.ns as usize),
            (most, 5 * most)
        );
        drop(all);
        assert_eq!(waiters.charge(0x1000, 20), Charge::default());
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
                        let charge = waiters.charge(0x1000, tick());
                        charged.fetch_add(charge.ns, Ordering::Relaxed);
                    }
                });
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let begin = tick();
                        let waiting = waiters.enter(0x1000, begin, 7);
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
