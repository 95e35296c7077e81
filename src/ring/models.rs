//! Loom models of the lanes: every interleaving of a few handlers and the flusher, and every memory
//! order that the C11 model allows. `models/` builds and runs them.

use loom::sync::Arc;
use loom::thread;

use super::{Rack, Refused};
use crate::sync::{AtomicUsize, Ordering};
use crate::unwind::Published;

/// A rack whose lanes are all open.
fn rack(lanes: usize, words: usize) -> Rack {
    let rack = Rack::new(lanes, words);
    rack.open(lanes).unwrap();
    rack
}

/// Writes a record of two words that carry `value`; says whether there was room.
fn push(rack: &Rack, hint: u32, value: u64) -> Result<(), Refused> {
    let mut claim = rack.claim(hint, 1, 2)?;
    claim
        .write(2, |space| {
            space[0] = 2 | value << 16;
            space[1] = value;
            2
        })
        .map(|_| ())
        .ok_or(Refused::LaneFull)
}

fn drain(rack: &Rack) -> Vec<u64> {
    let mut values = Vec::new();
    for lane in rack.lanes() {
        // SAFETY: only the model's main thread drains.
        unsafe {
            lane.drain(|words| {
                assert_eq!(words[0] >> 16, words[1], "a record is read whole");
                values.push(words[1]);
            });
        }
    }
    values
}

#[test]
fn two_handlers_and_the_flusher_lose_nothing_uncounted() {
    loom::model(|| {
        let rack = Arc::new(rack(1, 4));
        let handlers: Vec<_> = (1..=2)
            .map(|value| {
                let rack = rack.clone();
                thread::spawn(move || push(&rack, 0, value).is_ok())
            })
            .collect();
        let mut seen = drain(&rack);
        let written: Vec<bool> = handlers.into_iter().map(|h| h.join().unwrap()).collect();
        seen.extend(drain(&rack));
        seen.sort_unstable();
        let expected: Vec<u64> = (1..=2).filter(|&v| written[v as usize - 1]).collect();
        assert_eq!(seen, expected, "each record that was written is read once");
        assert!(written.contains(&true), "one of two handlers gets the lane");
    });
}

#[test]
fn space_is_reused_only_after_it_was_read() {
    loom::model(|| {
        let rack = Arc::new(rack(1, 4));
        let handler = {
            let rack = rack.clone();
            thread::spawn(move || {
                (1..=3)
                    .filter(|&v| push(&rack, 0, v).is_ok())
                    .collect::<Vec<_>>()
            })
        };
        let mut seen = drain(&rack);
        let written = handler.join().unwrap();
        seen.extend(drain(&rack));
        assert_eq!(seen, written);
        assert!(written.starts_with(&[1, 2]));
    });
}

#[test]
fn a_lane_is_turned_back_only_while_nobody_writes() {
    loom::model(|| {
        let rack = Arc::new(rack(1, 8));
        assert!((1..=3).all(|value| push(&rack, 0, value).is_ok()));
        let handler = {
            let rack = rack.clone();
            thread::spawn(move || {
                (4..=5)
                    .filter(|&v| push(&rack, 0, v).is_ok())
                    .collect::<Vec<_>>()
            })
        };
        // The lane is empty beyond what it is to stay within, so the flusher turns it back.
        let mut seen = drain(&rack);
        let written = handler.join().unwrap();
        seen.extend(drain(&rack));
        assert_eq!(seen, [vec![1, 2, 3], written].concat());
        assert!(
            (6..=9).all(|value| push(&rack, 0, value).is_ok()),
            "all room is there"
        );
        assert_eq!(drain(&rack), [6, 7, 8, 9]);
    });
}

#[test]
fn a_handler_takes_another_lane_when_its_own_is_held() {
    loom::model(|| {
        let rack = Arc::new(rack(2, 4));
        let other = {
            let rack = rack.clone();
            thread::spawn(move || push(&rack, 0, 1))
        };
        let mine = push(&rack, 0, 2);
        assert_eq!((other.join().unwrap(), mine), (Ok(()), Ok(())));
        let mut seen = drain(&rack);
        seen.sort_unstable();
        assert_eq!(seen, [1, 2]);
    });
}

/// Counts its own end, so that the model sees a use after free.
struct Canary {
    alive: Arc<AtomicUsize>,
}

impl Drop for Canary {
    fn drop(&mut self) {
        self.alive.store(0, Ordering::Relaxed);
    }
}

#[test]
fn a_snapshot_is_freed_only_when_nobody_reads_it() {
    loom::model(|| {
        let rack = Arc::new(rack(1, 4));
        let first_alive = Arc::new(AtomicUsize::new(1));
        let published = Arc::new(Published::new());
        // SAFETY: nothing was published before.
        unsafe {
            published.replace(Box::new(Canary {
                alive: first_alive.clone(),
            }));
        }
        let handler = {
            let (rack, published) = (rack.clone(), published.clone());
            thread::spawn(move || {
                let epoch = published.epoch();
                let Ok(_claim) = rack.claim(0, epoch, 2) else {
                    return;
                };
                // SAFETY: the claim above carries an epoch that was read before.
                let snapshot = unsafe { published.get() };
                if let Some(snapshot) = snapshot {
                    assert_eq!(snapshot.alive.load(Ordering::Relaxed), 1, "read after free");
                }
            })
        };
        let second_alive = Arc::new(AtomicUsize::new(1));
        // SAFETY: the old one is freed below, after the epochs say so.
        let old = unsafe {
            published.replace(Box::new(Canary {
                alive: second_alive,
            }))
        };
        let (old, epoch) = old.expect("the first one was published");
        // Otherwise the flusher tries again at its next turn; here, after the handler.
        let mut kept = Some(old);
        if rack.oldest_epoch().is_none_or(|oldest| oldest > epoch) {
            kept = None;
        }
        handler.join().unwrap();
        drop(kept);
        // SAFETY: nobody reads any more.
        drop(unsafe { published.take() });
    });
}

#[test]
fn after_the_stop_nobody_holds_a_lane() {
    loom::model(|| {
        let rack = Arc::new(rack(1, 4));
        let running = Arc::new(AtomicUsize::new(1));
        let touched_late = Arc::new(AtomicUsize::new(0));
        let stopped = Arc::new(AtomicUsize::new(0));
        let handler = {
            let (rack, running, stopped, touched_late) = (
                rack.clone(),
                running.clone(),
                stopped.clone(),
                touched_late.clone(),
            );
            thread::spawn(move || {
                let Ok(_claim) = rack.claim(0, 1, 2) else {
                    return;
                };
                // As the handler does: looked at again once the claim is visible.
                if running.load(Ordering::Relaxed) == 1 && stopped.load(Ordering::Relaxed) == 1 {
                    touched_late.store(1, Ordering::Relaxed);
                }
            })
        };
        running.store(0, Ordering::Relaxed);
        if rack.oldest_epoch().is_none() {
            stopped.store(1, Ordering::Relaxed);
        }
        handler.join().unwrap();
        assert_eq!(touched_late.load(Ordering::Relaxed), 0);
    });
}
