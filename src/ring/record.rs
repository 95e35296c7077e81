//! What one sample is, and how it lies in a lane.
//!
//! ```text
//! word 0   length in words (16 bits) | how the stack ended (8) | what ticked (8) | weight (32)
//! word 1   thread serial (32) | thread id (32)
//! word 2   epoch of the module snapshot (32) | 0 (32)
//! word 3   the thread's labels: an address, 0 for none
//! word 4…  frames, leaf first: the interrupted pc, then return addresses as they are
//! ```
//!
//! Waits for a lock lie there in the same way, with whose stack it is in the place of what ticked,
//! how many waits there were in that of the weight, the nanoseconds that they took in word 1, and
//! the mean that they were sampled with in word 3.

use crate::unwind::StopReason;

const HEADER_WORDS: usize = 4;

/// The deepest stack that a record can hold, in frames.
pub(crate) const MAX_DEPTH: usize = 512;

const _: () = assert!(HEADER_WORDS + MAX_DEPTH <= u16::MAX as usize);

/// What made a sample be taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Source {
    /// A CPU clock: the weight counts its periods.
    Clock = 0,
    /// The program, which sent the signal to itself.
    Program = 1,
    /// The profiler's thread, which looks at threads by elapsed time.
    Look = 2,
}

/// Whose stack is recorded with a wait for a lock.
#[cfg(feature = "contention")]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Role {
    /// That of the thread that waited.
    Waiter = 0,
    /// That of the one that ended the wait: for a lock, it held that.
    Holder = 1,
}

/// One sample, as read from a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'r> {
    words: &'r [u64],
}

impl<'r> Record<'r> {
    pub(super) fn new(words: &'r [u64]) -> Self {
        debug_assert!(words.len() >= HEADER_WORDS);
        Self { words }
    }

    /// How many periods the sample stands for.
    pub(crate) fn weight(self) -> u32 {
        (self.words[0] >> 32) as u32
    }

    /// How the stack ended.
    pub(crate) fn stop_reason(self) -> StopReason {
        StopReason::from_u8((self.words[0] >> 16) as u8)
    }

    /// What made it be taken.
    pub(crate) fn source(self) -> Source {
        match (self.words[0] >> 24) as u8 {
            1 => Source::Program,
            2 => Source::Look,
            _ => Source::Clock,
        }
    }

    /// The serial number of the sampled thread; 0 where the recording did not know it yet.
    pub(crate) fn thread_serial(self) -> u32 {
        self.words[1] as u32
    }

    /// The kernel's id of the sampled thread; 0 where the serial alone says it.
    pub(crate) fn tid(self) -> i32 {
        (self.words[1] >> 32) as i32
    }

    /// The epoch of the modules that the frames were unwound with.
    pub(crate) fn epoch(self) -> u32 {
        self.words[2] as u32
    }

    /// The labels that the thread had set: the address of what the handler found in its slot, 0 for
    /// none.
    pub(crate) fn labels(self) -> u64 {
        self.words[3]
    }

    /// Whose stack it is, of a wait.
    #[cfg(feature = "contention")]
    pub(crate) fn role(self) -> Role {
        match (self.words[0] >> 24) as u8 {
            0 => Role::Waiter,
            _ => Role::Holder,
        }
    }

    /// Nanoseconds that waits took.
    #[cfg(feature = "contention")]
    pub(crate) fn waited_ns(self) -> u64 {
        self.words[1]
    }

    /// The mean that waits were sampled with, in nanoseconds.
    #[cfg(feature = "contention")]
    pub(crate) fn mean_ns(self) -> u64 {
        self.words[3]
    }

    /// The call chain, leaf first.
    pub(crate) fn frames(self) -> &'r [u64] {
        &self.words[HEADER_WORDS..]
    }
}

/// What a handler knows of a sample besides its stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordWriter {
    pub(crate) source: Source,
    pub(crate) weight: u32,
    pub(crate) thread_serial: u32,
    pub(crate) tid: i32,
    pub(crate) epoch: u32,
    pub(crate) labels: u64,
}

impl RecordWriter {
    /// The words that a record of up to `depth` frames takes. *Async-signal-safe.*
    pub(crate) fn words(depth: usize) -> usize {
        HEADER_WORDS + depth
    }

    /// Writes the record into `space`; `unwind` fills in the frames and says how many there are and
    /// how the stack ended. Returns the record's length in words.
    ///
    /// *Async-signal-safe* if `unwind` is.
    pub(crate) fn write(
        self,
        space: &mut [u64],
        unwind: impl FnOnce(&mut [u64]) -> (usize, StopReason),
    ) -> usize {
        let header = [
            (self.source as u64) << 24 | u64::from(self.weight) << 32,
            u64::from(self.thread_serial) | u64::from(self.tid as u32) << 32,
            u64::from(self.epoch),
            self.labels,
        ];
        write(header, space, unwind)
    }
}

/// What is known of waits for a lock besides a stack.
#[cfg(feature = "contention")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitWriter {
    pub(crate) role: Role,
    pub(crate) waits: u32,
    pub(crate) waited_ns: u64,
    pub(crate) mean_ns: u64,
    pub(crate) epoch: u32,
}

#[cfg(feature = "contention")]
impl WaitWriter {
    /// As [`RecordWriter::write`]. *Async-signal-safe* if `unwind` is.
    pub(crate) fn write(
        self,
        space: &mut [u64],
        unwind: impl FnOnce(&mut [u64]) -> (usize, StopReason),
    ) -> usize {
        let header = [
            (self.role as u64) << 24 | u64::from(self.waits) << 32,
            self.waited_ns,
            u64::from(self.epoch),
            self.mean_ns,
        ];
        write(header, space, unwind)
    }
}

/// Writes a record with this header, of whose first word the length and how the stack ended are
/// missing.
fn write(
    [first, second, third, fourth]: [u64; HEADER_WORDS],
    space: &mut [u64],
    unwind: impl FnOnce(&mut [u64]) -> (usize, StopReason),
) -> usize {
    let Some((header, frames)) = space.split_first_chunk_mut() else {
        return 0;
    };
    let (depth, reason) = unwind(frames);
    let len = HEADER_WORDS + depth;
    let first = first | len as u64 | (reason as u64) << 16;
    *header = [first, second, third, fourth];
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let writer = RecordWriter {
            source: Source::Look,
            weight: u32::MAX,
            thread_serial: 7,
            tid: 4_194_304,
            epoch: u32::MAX,
            labels: u64::MAX - 7,
        };
        let mut space = [0; 16];
        let len = writer.write(&mut space, |frames| {
            frames[..3].copy_from_slice(&[1, 2, u64::MAX]);
            (3, StopReason::Unreadable)
        });
        assert_eq!(space[0] as u16 as usize, len);
        let record = Record::new(&space[..len]);
        assert_eq!(record.source(), Source::Look);
        assert_eq!(record.weight(), u32::MAX);
        assert_eq!(record.stop_reason(), StopReason::Unreadable);
        assert_eq!(record.thread_serial(), 7);
        assert_eq!(record.tid(), 4_194_304);
        assert_eq!(record.epoch(), u32::MAX);
        assert_eq!(record.labels(), u64::MAX - 7);
        assert_eq!(record.frames(), [1, 2, u64::MAX]);
    }
}
