//! Reader-writer locks.

use std::fmt;
use std::ptr;
use std::time::{Duration, Instant};

use parking_lot::lock_api::{
    self, RawRwLock as _, RawRwLockDowngrade, RawRwLockFair, RawRwLockRecursive,
    RawRwLockRecursiveTimed, RawRwLockTimed, RawRwLockUpgrade, RawRwLockUpgradeDowngrade,
    RawRwLockUpgradeFair, RawRwLockUpgradeTimed,
};

use super::super::wait::Wait;
use super::{contended, let_go};

/// parking_lot's [`RwLock`](parking_lot::RwLock), whose waits are in the profile.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// A reader's guard.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
/// A writer's guard.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;
/// The guard of a reader that may become a writer.
pub type RwLockUpgradableReadGuard<'a, T> = lock_api::RwLockUpgradableReadGuard<'a, RawRwLock, T>;
/// A reader's guard of a part of what a lock protects.
pub type MappedRwLockReadGuard<'a, T> = lock_api::MappedRwLockReadGuard<'a, RawRwLock, T>;
/// A writer's guard of a part of what a lock protects.
pub type MappedRwLockWriteGuard<'a, T> = lock_api::MappedRwLockWriteGuard<'a, RawRwLock, T>;

/// A reader-writer lock for a `static`, as [`RwLock::new`] makes it.
pub const fn const_rwlock<T>(value: T) -> RwLock<T> {
    RwLock::const_new(<RawRwLock as lock_api::RawRwLock>::INIT, value)
}

/// What [`RwLock`] is made of, for other locks of [`lock_api`].
pub struct RawRwLock(parking_lot::RawRwLock);

impl fmt::Debug for RawRwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawRwLock").finish_non_exhaustive()
    }
}

impl RawRwLock {
    /// Does what waits for the lock, where it could not be had at once.
    #[inline(always)]
    fn wait<T>(&self, work: impl FnOnce(&parking_lot::RawRwLock) -> T) -> T {
        contended(ptr::from_ref(self).addr(), Wait::RwLock, || work(&self.0))
    }

    /// Does what lets the lock go, or a part, and has the calling thread answer for those who wait.
    #[inline(always)]
    fn unlocking(&self, unlock: impl FnOnce(&parking_lot::RawRwLock)) {
        let_go(ptr::from_ref(self).addr(), || unlock(&self.0));
    }
}

// SAFETY: it is locked and unlocked as parking_lot's is.
unsafe impl lock_api::RawRwLock for RawRwLock {
    const INIT: Self = Self(<parking_lot::RawRwLock as lock_api::RawRwLock>::INIT);

    type GuardMarker = <parking_lot::RawRwLock as lock_api::RawRwLock>::GuardMarker;

    #[inline]
    fn lock_shared(&self) {
        if !self.0.try_lock_shared() {
            self.wait(|raw| raw.lock_shared());
        }
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.0.try_lock_shared()
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller's contract.
        self.unlocking(|raw| unsafe { raw.unlock_shared() });
    }

    #[inline]
    fn lock_exclusive(&self) {
        if !self.0.try_lock_exclusive() {
            self.wait(|raw| raw.lock_exclusive());
        }
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        self.0.try_lock_exclusive()
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller's contract.
        self.unlocking(|raw| unsafe { raw.unlock_exclusive() });
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        self.0.is_locked_exclusive()
    }
}

// SAFETY: as above.
unsafe impl RawRwLockFair for RawRwLock {
    #[inline]
    unsafe fn unlock_shared_fair(&self) {
        // SAFETY: the caller's contract.
        self.unlocking(|raw| unsafe { raw.unlock_shared_fair() });
    }

    #[inline]
    unsafe fn unlock_exclusive_fair(&self) {
        // SAFETY: the caller's contract.
        self.unlocking(|raw| unsafe { raw.unlock_exclusive_fair() });
    }

    #[inline]
    unsafe fn bump_shared(&self) {
        // SAFETY: the caller's contract.
        self.unlocking(|raw| unsafe { raw.bump_shared() });
    }

    #[inline]
    unsafe fn bump_exclusive(&self) {
        // SAFETY: the caller's contract.
        self.unlocking(|raw| unsafe { raw.bump_exclusive() });
    }
}

// SAFETY: as above.
unsafe impl RawRwLockDowngrade for RawRwLock {
    #[inline]
    unsafe fn downgrade(&self) {
        // SAFETY: the caller's contract.
        self.unlocking(|raw| unsafe { raw.downgrade() });
    }
}

// SAFETY: as above.
unsafe impl RawRwLockTimed for RawRwLock {
    type Duration = Duration;
    type Instant = Instant;

    #[inline]
    fn try_lock_shared_for(&self, timeout: Duration) -> bool {
        self.0.try_lock_shared() || self.wait(|raw| raw.try_lock_shared_for(timeout))
    }

    #[inline]
    fn try_lock_shared_until(&self, timeout: Instant) -> bool {
        self.0.try_lock_shared() || self.wait(|raw| raw.try_lock_shared_until(timeout))
    }

    #[inline]
    fn try_lock_exclusive_for(&self, timeout: Duration) -> bool {
        self.0.try_lock_exclusive() || self.wait(|raw| raw.try_lock_exclusive_for(timeout))
    }

    #[inline]
    fn try_lock_exclusive_until(&self, timeout: Instant) -> bool {
        self.0.try_lock_exclusive() || self.wait(|raw| raw.try_lock_exclusive_until(timeout))
    }
}

// SAFETY: as above.
unsafe impl RawRwLockRecursive for RawRwLock {
    #[inline]
    fn lock_shared_recursive(&self) {
        if !self.0.try_lock_shared_recursive() {
            self.wait(|raw| raw.lock_shared_recursive());
        }
    }

    #[inline]
    fn try_lock_shared_recursive(&self) -> bool {
        self.0.try_lock_shared_recursive()
    }
}

// SAFETY: as above.
unsafe impl RawRwLockRecursiveTimed for RawRwLock {
    #[inline]
    fn try_lock_shared_recursive_for(&self, timeout: Duration) -> bool {
        self.0.try_lock_shared_recursive()
            || self.wait(|raw| raw.try_lock_shared_recursive_for(timeout))
    }

    #[inline]
    fn try_lock_shared_recursive_until(&self, timeout: Instant) -> bool {
        self.0.try_lock_shared_recursive()
            || self.wait(|raw| raw.try_lock_shared_recursive_until(timeout))
    }
}

// SAFETY: as above.
unsafe impl RawRwLockUpgrade for RawRwLock {
    #[inline]
    fn lock_upgradable(&self) {
        if !self.0.try_lock_upgradable() {
            self.wait(|raw| raw.lock_upgradable());
        }
    }

    #[inline]
    fn try_lock_upgradable(&self) -> bool {
        self.0.try_lock_upgradable()
    }

    #[inline]
    unsafe fn unlock_upgradable(&self) {
        // SAFETY: the caller's contract.
        self.unlocking(|raw| unsafe { raw.unlock_upgradable() });
    }

    #[inline]
    unsafe fn upgrade(&self) {
        // SAFETY: the caller's contract, of both calls.
        unsafe {
            if !self.0.try_upgrade() {
                self.wait(|raw| raw.upgrade());
            }
        }
    }

    #[inline]
    unsafe fn try_upgrade(&self) -> bool {
        // SAFETY: the caller's contract.
        unsafe { self.0.try_upgrade() }
    }
}

// SAFETY: as above.
unsafe impl RawRwLockUpgradeFair for RawRwLock {
    #[inline]
    unsafe fn unlock_upgradable_fair(&self) {
        // SAFETY: the caller's contract.
        self.unlocking(|raw| unsafe { raw.unlock_upgradable_fair() });
    }

    #[inline]
    unsafe fn bump_upgradable(&self) {
        // SAFETY: the caller's contract.
        self.unlocking(|raw| unsafe { raw.bump_upgradable() });
    }
}

// SAFETY: as above.
unsafe impl RawRwLockUpgradeDowngrade for RawRwLock {
    #[inline]
    unsafe fn downgrade_upgradable(&self) {
        // SAFETY: the caller's contract.
        self.unlocking(|raw| unsafe { raw.downgrade_upgradable() });
    }

    #[inline]
    unsafe fn downgrade_to_upgradable(&self) {
        // SAFETY: the caller's contract.
        self.unlocking(|raw| unsafe { raw.downgrade_to_upgradable() });
    }
}

// SAFETY: as above.
unsafe impl RawRwLockUpgradeTimed for RawRwLock {
    #[inline]
    fn try_lock_upgradable_for(&self, timeout: Duration) -> bool {
        self.0.try_lock_upgradable() || self.wait(|raw| raw.try_lock_upgradable_for(timeout))
    }

    #[inline]
    fn try_lock_upgradable_until(&self, timeout: Instant) -> bool {
        self.0.try_lock_upgradable() || self.wait(|raw| raw.try_lock_upgradable_until(timeout))
    }

    #[inline]
    unsafe fn try_upgrade_for(&self, timeout: Duration) -> bool {
        // SAFETY: the caller's contract, of both calls.
        unsafe { self.0.try_upgrade() || self.wait(|raw| raw.try_upgrade_for(timeout)) }
    }

    #[inline]
    unsafe fn try_upgrade_until(&self, timeout: Instant) -> bool {
        // SAFETY: the caller's contract, of both calls.
        unsafe { self.0.try_upgrade() || self.wait(|raw| raw.try_upgrade_until(timeout)) }
    }
}
