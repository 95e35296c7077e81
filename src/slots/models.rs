//! Loom models of the slots: every interleaving of a thread that begins, the scan that finds it,
//! and threads that come and go beside it. `models/` builds and runs them.

use loom::sync::Arc;
use loom::thread;

use super::*;

/// The thread that begins, and one whose search begins at the same slot.
const TID: i32 = 4;
const COLLIDING: i32 = TID + SLOTS as i32;

/// Numbers: of a thread that had the id before and is gone, of the thread itself, and of what a
/// scan gives it.
const GONE: u32 = 1;
const OWN: u32 = 2;
const SCANS: u32 = 3;

/// Two who put a thread into a slot can make each other begin again for ever, if each is
/// interrupted again and again just when it has done so; so a model follows threads that are
/// interrupted three times.
fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

/// A table, and the clocks that `TID` has.
struct World {
    slots: Slots,
    clocks: sync::AtomicU32,
}

impl World {
    fn new() -> Self {
        let slot = || Slot {
            holder: sync::AtomicU64::new(Holder::UNUSED.0),
            filtered: AtomicU32::new(0),
            labels: AtomicPtr::new(std::ptr::null_mut()),
            lost: AtomicU64::new(0),
            put_off: Default::default(),
            due_ns: AtomicU64::new(0),
            to_pass: AtomicU32::new(0),
            most_to_pass: AtomicU32::new(0),
            passed: AtomicU32::new(0),
            repeats: Repeats::default(),
        };
        Self {
            slots: Slots {
                slots: std::array::from_fn(|_| slot()),
                is_recording: AtomicBool::new(true),
            },
            clocks: sync::AtomicU32::new(0),
        }
    }

    /// Makes a clock for the thread if the claim is granted, and holds until the clock is ready.
    /// Whether it did.
    fn arm(&self, claim: Claim<'_>, serial: u32) -> bool {
        let Claim::Granted(index, slot) = claim else {
            return false;
        };
        if !slot.confirm(serial) {
            return false;
        }
        assert_eq!(
            self.clocks.fetch_add(1, Ordering::Relaxed),
            0,
            "a second clock"
        );
        let own = self.slots.at(index).unwrap();
        assert!(std::ptr::eq(own, slot));
        assert!(own.is_of(TID), "what the clock says is found");
        assert_eq!(own.serial(), serial, "what the clock says is believed");
        true
    }

    fn assert_is_free(&self) {
        for slot in &self.slots.slots {
            assert!(
                [Holder::UNUSED, Holder::FREED].contains(&slot.holder()),
                "{slot:?}"
            );
        }
    }
}

fn granted(claim: Claim<'_>) -> &Slot {
    match claim {
        Claim::Granted(_, slot) => slot,
        refused => panic!("{refused:?}"),
    }
}

/// The thread and the scan ask at once, and somebody `beside` them does something to the slots.
fn ask_at_once(prepare: impl Fn(&Slots), beside: impl Fn(&Slots) + Copy + Send + 'static) {
    let world = Arc::new(World::new());
    prepare(&world.slots);
    let other = {
        let world = world.clone();
        thread::spawn(move || beside(&world.slots))
    };
    let thread = {
        let world = world.clone();
        thread::spawn(move || world.arm(world.slots.claim_own(TID, OWN), OWN))
    };
    let by_scan = world.arm(world.slots.claim(TID, SCANS), SCANS);
    let by_itself = thread.join().unwrap();
    other.join().unwrap();
    assert!(by_scan || by_itself, "one of them arms it");
    let slot = world.slots.find(TID).unwrap();
    slot.release(if by_scan { SCANS } else { OWN });
    world.assert_is_free();
}

#[test]
fn a_thread_has_one_clock_on_an_unused_slot() {
    model(|| ask_at_once(|_| (), |_| ()));
}

#[test]
fn a_thread_has_one_clock_while_a_slot_before_its_own_becomes_free() {
    model(|| {
        ask_at_once(
            |slots| assert!(granted(slots.claim(COLLIDING, GONE)).confirm(GONE)),
            |slots| slots.find(COLLIDING).unwrap().release(GONE),
        );
    });
}

#[test]
fn a_thread_has_one_clock_while_the_right_of_one_before_it_is_given_back() {
    model(|| {
        ask_at_once(
            |slots| assert!(granted(slots.claim(TID, GONE)).confirm(GONE)),
            |slots| {
                // As the flusher does it, by the index that it was told: late, perhaps.
                slots.at(0).unwrap().release(GONE);
            },
        );
    });
}

#[test]
fn a_thread_with_labels_has_one_slot() {
    model(|| {
        let world = Arc::new(World::new());
        granted(world.slots.claim(COLLIDING, GONE));
        let other = {
            let world = world.clone();
            thread::spawn(move || world.slots.find(COLLIDING).unwrap().release(GONE))
        };
        let thread = {
            let world = world.clone();
            thread::spawn(move || {
                let slot = world.slots.for_labels(TID).unwrap();
                let found = world.slots.find(TID).unwrap();
                assert!(std::ptr::eq(found, slot), "the labels are found");
                std::ptr::from_ref(slot) as usize
            })
        };
        let by_scan = granted(world.slots.claim(TID, SCANS));
        let with_labels = thread.join().unwrap();
        assert_eq!(std::ptr::from_ref(by_scan) as usize, with_labels);
        other.join().unwrap();
        // The right and the labels go at once.
        let thread = {
            let world = world.clone();
            thread::spawn(move || world.slots.find(TID).unwrap().release_labels())
        };
        by_scan.release(SCANS);
        thread.join().unwrap();
        world.assert_is_free();
    });
}
