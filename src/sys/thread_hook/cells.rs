//! What a new thread is to run, kept from the call that creates it to its first instruction.
//!
//! A pool of its own and not the host's heap: an allocator can be the one that creates the thread,
//! with its locks held.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Threads that may be on their way at once; further ones begin without the hook.
const CELLS: usize = 1024;

static POOL: [Cell; CELLS] = [const { Cell::unclaimed() }; CELLS];
/// Where the next search begins, so that searches at once begin in different places.
static HINT: AtomicUsize = AtomicUsize::new(0);

/// A start routine and its argument, and the thread's number.
#[derive(Debug)]
pub(super) struct Cell {
    is_claimed: AtomicUsize,
    start: AtomicUsize,
    argument: AtomicUsize,
    number: AtomicU32,
}

impl Cell {
    const fn unclaimed() -> Self {
        Self {
            is_claimed: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            argument: AtomicUsize::new(0),
            number: AtomicU32::new(0),
        }
    }

    /// Claims a cell; `None` if all are taken. A child that is forked while its parent's threads
    /// are on their way inherits their cells as taken.
    pub(super) fn claim(start: usize, argument: usize, number: u32) -> Option<&'static Self> {
        let first = HINT.fetch_add(1, Ordering::Relaxed) % CELLS;
        let (before, from) = POOL.split_at(first);
        let cell = from.iter().chain(before).find(|cell| {
            // Acquire: whoever freed it has read it.
            cell.is_claimed.load(Ordering::Relaxed) == 0
                && cell
                    .is_claimed
                    .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        })?;
        // Creating a thread orders these before all that the thread does.
        cell.start.store(start, Ordering::Relaxed);
        cell.argument.store(argument, Ordering::Relaxed);
        cell.number.store(number, Ordering::Relaxed);
        Some(cell)
    }

    /// The start routine, its argument and the thread's number; the cell is free afterwards.
    pub(super) fn take(&self) -> (usize, usize, u32) {
        let start = self.start.load(Ordering::Relaxed);
        let argument = self.argument.load(Ordering::Relaxed);
        let number = self.number.load(Ordering::Relaxed);
        self.free();
        (start, argument, number)
    }

    /// Gives the cell back.
    pub(super) fn free(&self) {
        // Release: it was read before the next one writes it.
        self.is_claimed.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_given_once_until_none_is_left() {
        // All are free: other tests install the hook in processes of their own.
        let cells: Vec<&Cell> = (1..=CELLS)
            .map_while(|i| Cell::claim(i, i * 2, i as u32))
            .collect();
        assert_eq!(cells.len(), CELLS);
        assert!(Cell::claim(1, 1, 1).is_none());
        for (i, cell) in (1..).zip(&cells) {
            assert_eq!(cell.take(), (i, i * 2, i as u32));
        }
        let again = Cell::claim(7, 8, 9).unwrap();
        assert_eq!(again.take(), (7, 8, 9));
    }
}
