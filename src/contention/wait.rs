//! What a wait is for, by the names of the functions that it leads through.
#![forbid(unsafe_code)]

/// What a thread waits for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub(super) enum Wait {
    Mutex = 0,
    RwLock,
    Condvar,
    Semaphore,
    Park,
    Other,
}

/// What the names of functions begin with through which threads wait for something, or end such
/// waits.
const FUNCTIONS: [(&str, Wait); 21] = [
    ("std::sys::sync::mutex::", Wait::Mutex),
    ("std::sys::sync::rwlock::", Wait::RwLock),
    ("std::sys::sync::condvar::", Wait::Condvar),
    ("std::sys::sync::thread_parking::", Wait::Park),
    ("std::sync::poison::mutex::", Wait::Mutex),
    ("std::sync::poison::rwlock::", Wait::RwLock),
    ("std::sync::reentrant_lock::", Wait::Mutex),
    ("std::sync::poison::condvar::", Wait::Condvar),
    ("parking_lot::raw_mutex::", Wait::Mutex),
    ("parking_lot::raw_rwlock::", Wait::RwLock),
    ("parking_lot::condvar::", Wait::Condvar),
    ("lock_api::mutex::", Wait::Mutex),
    ("lock_api::rwlock::", Wait::RwLock),
    ("tokio::sync::mutex::", Wait::Mutex),
    ("tokio::sync::rwlock::", Wait::RwLock),
    ("tokio::sync::semaphore::", Wait::Semaphore),
    ("tokio::runtime::park::", Wait::Park),
    ("tokio::runtime::scheduler::", Wait::Park),
    ("tokio::runtime::blocking::", Wait::Park),
    ("crossbeam_utils::sync::parker::", Wait::Park),
    ("rayon_core::sleep::", Wait::Park),
];

/// What the names begin with of functions that stand between those.
const BETWEEN: [&str; 9] = [
    "sigprof::contention::",
    "std::",
    "core::",
    "parking_lot",
    "lock_api::",
    "tokio::",
    "futures_",
    "crossbeam_",
    "rayon_core::",
];

/// What of these is no more than the way to the system call, and says nothing that the function
/// that it is called by does not.
const PLUMBING: [&str; 16] = [
    "sigprof::contention::stand_ins::",
    "sigprof::contention::locks::let_go",
    "sigprof::contention::locks::mutex::",
    "sigprof::contention::locks::rwlock::",
    "sigprof::contention::locks::condvar::Condvar::notifying",
    "sigprof::contention::locks::condvar::Condvar::with_inner",
    "sigprof::sys::fork_mutex::",
    "std::sys::pal::unix::futex::",
    "std::sys::sync::mutex::",
    "std::sys::sync::rwlock::",
    "std::sys::sync::condvar::",
    "std::sys::sync::thread_parking::",
    "parking_lot_core::",
    "parking_lot::raw_mutex::",
    "parking_lot::raw_rwlock::",
    "std::thread::local::LocalKey<T>::",
];

fn bare(name: &str) -> &str {
    let dropped = name.strip_prefix("core::ptr::drop_in_place");
    dropped.unwrap_or(name).trim_start_matches(['<', '&'])
}

impl Wait {
    pub(super) const KINDS: usize = 6;

    const ALL: [Self; Self::KINDS] = [
        Self::Mutex,
        Self::RwLock,
        Self::Condvar,
        Self::Semaphore,
        Self::Park,
        Self::Other,
    ];

    /// This as a number that is no code's address.
    pub(super) fn number(self) -> u64 {
        self as u64 + 1
    }

    /// What such a number is of.
    pub(super) fn of_number(number: u64) -> Option<Self> {
        let nth = usize::try_from(number.checked_sub(1)?).ok()?;
        Self::ALL.get(nth).copied()
    }

    /// By the names of functions, from the leaf on.
    ///
    /// A wait for a lock is one whatever waits for the lock: a condition variable takes its mutex
    /// again. One for a condition variable, or of a parked thread, may be how something else is
    /// waited for.
    pub(super) fn of<'n>(names: impl Iterator<Item = &'n str>) -> Self {
        let mut found = Self::Other;
        for name in names.map(bare) {
            let function = FUNCTIONS.iter().find(|(part, _)| name.starts_with(part));
            match function {
                Some(&(_, wait)) if !wait.is_idle() => return wait,
                Some(&(_, wait)) => found = wait,
                None if BETWEEN.iter().any(|part| name.starts_with(part)) => {}
                None => break,
            }
        }
        found
    }

    /// Whether it is that of a thread that has nothing to do.
    pub(super) fn is_idle(self) -> bool {
        matches!(self, Self::Condvar | Self::Park)
    }

    /// As the label has it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::RwLock => "rwlock",
            Self::Condvar => "condvar",
            Self::Semaphore => "semaphore",
            Self::Park => "park",
            Self::Other => "other",
        }
    }
}

/// Whether a function of this name is no more than the way to the system call.
pub(super) fn is_plumbing(name: &str) -> bool {
    PLUMBING.iter().any(|part| bare(name).starts_with(part))
}
