//! Call chains through so much code that no unwinder remembers any of it.

use std::hint::black_box;

/// Functions of the maze: more than any profiler here has rules in its cache.
pub const FUNCTIONS: usize = SIDE * SIDE;
const SIDE: usize = 64;

/// A way through the maze. It comes to each function once before it comes to the first one again,
/// through calls or over all chains.
#[derive(Debug, Default)]
pub struct Way {
    next: usize,
}

/// Odd, so that it leads through all of a power of two; far, so that neighbours in the code are
/// none in a chain.
const STRIDE: usize = 1597;

impl Way {
    /// Calls `leaf` under the next `depth` functions of the way.
    pub fn descend(&mut self, depth: u64, leaf: &mut dyn FnMut()) {
        let mut walk = Walk {
            way: self,
            left: depth,
            leaf,
        };
        black_box(walk.go_on());
    }
}

struct Walk<'w> {
    way: &'w mut Way,
    left: u64,
    leaf: &'w mut dyn FnMut(),
}

impl Walk<'_> {
    #[inline(always)]
    fn go_on(&mut self) -> usize {
        if self.left == 0 {
            (self.leaf)();
            return 0;
        }
        self.left -= 1;
        let here = self.way.next;
        self.way.next = (here + STRIDE) % FUNCTIONS;
        MAZE[here / SIDE][here % SIDE](self)
    }
}

/// Keeps values across the call, as most functions do, so that there are saved registers in its
/// frame.
#[inline(never)]
fn hop<const ROW: usize, const COLUMN: usize>(walk: &mut Walk<'_>) -> usize {
    let (row, column) = (black_box(ROW), black_box(COLUMN));
    let below = walk.go_on();
    black_box(black_box(below) + row) ^ column
}

type Hop = fn(&mut Walk<'_>) -> usize;

macro_rules! maze {
    ($($row:literal)*) => { [$(row!($row)),*] };
}

macro_rules! row {
    ($row:literal) => {
        row!($row:
            0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36
            37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63)
    };
    ($row:literal: $($column:literal)*) => { [$(hop::<$row, $column> as Hop),*] };
}

static MAZE: [[Hop; SIDE]; SIDE] = maze!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36
    37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
);
