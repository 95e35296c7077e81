//! Condition variables.

use std::mem::ManuallyDrop;
use std::ptr;
use std::time::{Duration, Instant};

use super::super::looks::{Look, look};
use super::super::wait::Wait;
use super::{MutexGuard, contended, end_waits};

/// Whether it was its time that has ended a wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether it was.
    #[inline]
    pub fn timed_out(self) -> bool {
        self.0
    }
}

/// parking_lot's [`Condvar`](parking_lot::Condvar) for a [`Mutex`](super::Mutex) of this module,
/// whose waits are in the profile.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// One that nobody waits for.
    #[inline]
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// Does what ends waits, and has the calling thread answer for them.
    #[inline]
    fn notifying<T>(&self, notify: impl FnOnce(&parking_lot::Condvar) -> T) -> T {
        match look(self.address()) {
            Look::Never => notify(&self.0),
            // Who waits sleeps, however long this takes.
            _ => end_waits(self.address(), || notify(&self.0)),
        }
    }

    /// Wakes one of the threads that wait. Whether there was one.
    #[inline]
    pub fn notify_one(&self) -> bool {
        self.notifying(parking_lot::Condvar::notify_one)
    }

    /// Wakes all threads that wait. How many there were.
    #[inline]
    pub fn notify_all(&self) -> usize {
        self.notifying(parking_lot::Condvar::notify_all)
    }

    /// Waits to be notified, with the mutex unlocked meanwhile.
    ///
    /// # Panics
    ///
    /// Where threads wait for this with different mutexes.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.with_inner(guard, |condvar, guard| condvar.wait(guard));
    }

    /// As [`wait`](Self::wait), until a time at the latest. Whether that was what ended it.
    ///
    /// # Panics
    ///
    /// As of [`wait`](Self::wait).
    pub fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Instant,
    ) -> WaitTimeoutResult {
        let result = self.with_inner(guard, |condvar, guard| condvar.wait_until(guard, timeout));
        WaitTimeoutResult(result.timed_out())
    }

    /// As [`wait`](Self::wait), for a time at the most. Whether that was what ended it.
    ///
    /// # Panics
    ///
    /// As of [`wait`](Self::wait).
    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        let result = self.with_inner(guard, |condvar, guard| condvar.wait_for(guard, timeout));
        WaitTimeoutResult(result.timed_out())
    }

    /// Waits as long as a condition holds, which is looked at first, and whenever this is notified.
    ///
    /// # Panics
    ///
    /// As of [`wait`](Self::wait).
    pub fn wait_while<T, F>(&self, guard: &mut MutexGuard<'_, T>, mut condition: F)
    where
        T: ?Sized,
        F: FnMut(&mut T) -> bool,
    {
        while condition(&mut *guard) {
            self.wait(guard);
        }
    }

    /// As [`wait_while`](Self::wait_while), until a time at the latest. Whether that was what ended
    /// it.
    ///
    /// # Panics
    ///
    /// As of [`wait`](Self::wait).
    pub fn wait_while_until<T, F>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: F,
        timeout: Instant,
    ) -> WaitTimeoutResult
    where
        T: ?Sized,
        F: FnMut(&mut T) -> bool,
    {
        let mut result = WaitTimeoutResult(false);
        while !result.timed_out() && condition(&mut *guard) {
            result = self.wait_until(guard, timeout);
        }
        result
    }

    /// As [`wait_while`](Self::wait_while), for a time at the most. Whether that was what ended it.
    ///
    /// # Panics
    ///
    /// As of [`wait`](Self::wait).
    pub fn wait_while_for<T, F>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: F,
        timeout: Duration,
    ) -> WaitTimeoutResult
    where
        T: ?Sized,
        F: FnMut(&mut T) -> bool,
    {
        match Instant::now().checked_add(timeout) {
            Some(timeout) => self.wait_while_until(guard, condition, timeout),
            None => {
                self.wait_while(guard, condition);
                WaitTimeoutResult(false)
            }
        }
    }

    /// Calls a function of the inner condition variable that waits.
    #[inline]
    fn with_inner<T: ?Sized, R>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        wait: impl FnOnce(&parking_lot::Condvar, &mut parking_lot::MutexGuard<'_, ()>) -> R,
    ) -> R {
        // SAFETY: the guard is borrowed until the mutex is locked again.
        let mutex = unsafe { MutexGuard::mutex(guard).raw() };
        // It is unlocked within the wait, and answered for now.
        mutex.unlocking(|_| ());
        // SAFETY: the thread has the mutex, as the guard says, and still has it once this guard is
        // not there any more, which is not dropped.
        let mut inner = ManuallyDrop::new(unsafe { mutex.inner.make_guard_unchecked() });
        contended(self.address(), Wait::Condvar, || wait(&self.0, &mut inner))
    }
}
