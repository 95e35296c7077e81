//! The atomics and cells of the lock-free parts: the standard library's, or loom's when a model is checked.
#![forbid(unsafe_code)]

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell as Tracked,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence},
};

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};
