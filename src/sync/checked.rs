//! What the two model-checked backends share: locks in the form that the rooms know from parking_lot, and time.
//!
//! # Weaker than the machine
//! * `Arc` and `Weak` are std's, because loom's have neither `Weak` nor unsizing and shuttle's are std's anyway. The
//!   checkers see neither the counts nor the order that a last drop has after the others. So a model does not find a
//!   missing order between dropping an `Arc` and its content's `Drop`, and loom does not report a leaked `Arc`. Code
//!   that frees memory by a count of its own counts with an atomic of the facade, and is seen.
//! * [`Once`] is std's `OnceLock`: one step, without a point at which another thread could be scheduled. What is inside
//!   must not be a cell that loom tracks. `get_or_init` must not be used: waiting in it would stop the whole model.
//! * Time stands still ([`Time`]): a deadline in the future never comes, because neither checker has time-outs. A
//!   model that needs time has a thread that moves a `ManualClock`.
//!
//! # Stronger than the machine
//! * A lock is never poisoned and a wait on a condition returns only when notified; the rooms loop anyway.

use super::backend::raw;
use std::{
    ops::{Deref, DerefMut},
    sync::PoisonError,
    time::Duration,
};

pub(crate) use std::sync::{Arc, OnceLock as Once, Weak};

/// Seeds that are the same in every execution: a schedule that is replayed must meet the same hashes.
pub(crate) type Seed = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

/// A mutex in the form of parking_lot's.
#[derive(Default)]
pub(crate) struct RawMutex<T>(raw::Mutex<T>);

impl<T> RawMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(raw::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> RawMutexGuard<'_, T> {
        RawMutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Empty only while its condition is waited for.
pub(crate) struct RawMutexGuard<'a, T>(Option<raw::MutexGuard<'a, T>>);

impl<T> Deref for RawMutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect("the lock is held")
    }
}

impl<T> DerefMut for RawMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("the lock is held")
    }
}

/// A condition in the form of parking_lot's.
pub(crate) struct RawCondvar(raw::Condvar);

impl Default for RawCondvar {
    fn default() -> Self {
        Self::new()
    }
}

/// The answer of a wait with a deadline, which never comes.
pub(crate) struct Notified(());

impl Notified {
    pub(crate) fn timed_out(&self) -> bool {
        false
    }
}

impl RawCondvar {
    pub(crate) fn new() -> Self {
        Self(raw::Condvar::new())
    }

    pub(crate) fn wait<T>(&self, guard: &mut RawMutexGuard<'_, T>) {
        let held = guard.0.take().expect("the lock is held");
        guard.0 = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn wait_until<T>(&self, guard: &mut RawMutexGuard<'_, T>, _never: Time) -> Notified {
        self.wait(guard);
        Notified(())
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// An instant of the logical clock, which stands still at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time(Duration);

impl Time {
    pub(crate) const NOW: Self = Self(Duration::ZERO);

    pub(crate) fn checked_add(self, d: Duration) -> Option<Self> {
        self.0.checked_add(d).map(Self)
    }

    pub(crate) fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
