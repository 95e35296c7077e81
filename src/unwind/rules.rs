//! The unwind rules of one module, compiled when there is time for it.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::compile::compile;
use super::table::Table;
use crate::sys::debug_frame;
use crate::sys::modules::Module;

/// Unwind data up to which a module is compiled before a tick falls into it: some 2 ms of work.
/// What is in its file counts as what is in memory does.
const SMALL_BYTES: usize = 512 * 1024;

/// A module and its table, which handlers read as soon as it is there.
#[derive(Debug)]
pub(crate) struct Rules {
    module: Arc<Module>,
    table: OnceLock<Table>,
    /// Bytes of the file's `.debug_frame`, once they have been asked for: the file is opened for
    /// it.
    debug_frame_len: OnceLock<usize>,
    /// A handler had use for the table.
    is_wanted: AtomicBool,
}

impl Rules {
    pub(super) fn new(module: Arc<Module>) -> Self {
        Self {
            module,
            table: OnceLock::new(),
            debug_frame_len: OnceLock::new(),
            is_wanted: AtomicBool::new(false),
        }
    }

    pub(crate) fn module(&self) -> &Arc<Module> {
        &self.module
    }

    /// The table, or a note that one is wanted. *Async-signal-safe.*
    #[inline]
    pub(super) fn table(&self) -> Option<&Table> {
        let table = self.table.get();
        if table.is_none() && !self.is_wanted.load(Ordering::Relaxed) {
            self.is_wanted.store(true, Ordering::Relaxed);
        }
        table
    }

    /// Whether there is no table and should be one.
    pub(super) fn is_due(&self) -> bool {
        let is_due = || self.is_wanted.load(Ordering::Relaxed) || self.is_within(SMALL_BYTES);
        self.table.get().is_none() && is_due()
    }

    /// Whether there is no table, somebody had use for it, and it is made of no more than this many
    /// bytes.
    #[cfg(feature = "heap")]
    pub(super) fn is_wanted(&self, most_bytes: usize) -> bool {
        self.table.get().is_none()
            && self.is_wanted.load(Ordering::Relaxed)
            && self.is_within(most_bytes)
    }

    /// Whether the unwind data is no more than this many bytes.
    fn is_within(&self, most_bytes: usize) -> bool {
        let eh_frame = self.module.eh_frame.as_ref().map_or(0, |s| s.bytes.len());
        eh_frame <= most_bytes && eh_frame + self.debug_frame_len() <= most_bytes
    }

    fn debug_frame_len(&self) -> usize {
        let len = || debug_frame::len(&self.module);
        *self.debug_frame_len.get_or_init(len)
    }

    /// Makes the table, for tests that have nothing else to do.
    #[cfg(any(test, fuzzing))]
    pub(super) fn compile(&self) {
        self.compile_while(&mut || ());
    }

    /// Makes the table; `meanwhile` is called now and then.
    pub(super) fn compile_while(&self, meanwhile: &mut dyn FnMut()) {
        self.table.get_or_init(|| {
            let debug_frame = match self.debug_frame_len() {
                0 => None,
                _ => debug_frame::read(&self.module),
            };
            compile(&self.module, &debug_frame.unwrap_or_default(), meanwhile)
        });
    }

    /// Bytes of unwind data, as it was copied and as it was compiled.
    pub(crate) fn size_bytes(&self) -> usize {
        self.module.size_bytes() + self.table.get().map_or(0, Table::size_bytes)
    }
}
