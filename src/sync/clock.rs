//! Time, and the census of the threads that live by it.
//!
//! A [`Clock`] is a handle. Everything that waits with a deadline, and every thread the crate starts, belongs to one.
//! [`Clock::real`] is the machine's; [`ManualClock`] is moved by hand and *settles*: [`ManualClock::advance`] fires the
//! timers on the way in order of their deadlines and returns when every thread has come to rest.

use super::{
    Arc,
    backend::{Time, lazy, os},
    call_out::{self, Record},
    census::{Census, NotSettled, Patience},
};
use std::{fmt, ops::Deref, time::Duration};

lazy! {
    static ORIGIN: Time = os::now();
}

lazy! {
    /// For waits without a deadline, where the clock does not matter.
    pub(super) static ANY_CLOCK: Clock = Clock::real();
}

/// A point of time of a [`Clock`]: the time since that clock's beginning. All real clocks share one beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(Duration);

impl Instant {
    /// What a clock can express ends here; later is never.
    pub(crate) const LAST: Self = Self(Duration::from_nanos(u64::MAX));

    /// The instant `d` after the beginning of the clock.
    pub const fn from_start(d: Duration) -> Self {
        Self(d)
    }

    /// The time since the beginning of the clock.
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// The time from `earlier` to here; zero when `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// This instant plus `d`; `None`, which means never, when that lies more than 584 years after the beginning.
    pub fn checked_add(self, d: Duration) -> Option<Self> {
        self.0.checked_add(d).map(Self).filter(|t| *t <= Self::LAST)
    }
}

/// A handle to a clock and to the census of the threads that live by it. Cheap to clone.
#[derive(Clone)]
pub struct Clock(Arc<Census>);

impl Clock {
    /// The machine's monotonic clock, with a census of its own.
    pub fn real() -> Self {
        Self(Arc::new(Census::new(false)))
    }

    /// Now, on this clock.
    pub fn now(&self) -> Instant {
        if self.is_manual() { self.0.manual_now() } else { Instant(os::now().saturating_duration_since(*ORIGIN)) }
    }

    /// True for a clock that is moved by hand.
    pub fn is_manual(&self) -> bool {
        self.0.is_manual()
    }

    /// Names of the threads that this crate started under this clock and that have not ended.
    pub fn threads(&self) -> Vec<String> {
        self.0.threads()
    }

    pub(super) fn census(&self) -> &Arc<Census> {
        &self.0
    }

    pub(super) fn real_instant(&self, at: Instant) -> Option<Time> {
        ORIGIN.checked_add(at.0)
    }

    pub(super) fn take_contained(&self) -> Record {
        let mut taken = Record::default();
        self.0.contained(|r| taken = std::mem::take(r));
        taken
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::real()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_manual() { "manual" } else { "real" };
        write!(f, "Clock({kind}, {:?})", self.now().0)
    }
}

/// A clock that is moved by hand, for tests without sleeps. Dereferences to the [`Clock`] to hand to builders.
///
/// Its owner is not counted: it advances the clock and looks at what happened. Callbacks and sources under test block
/// on [`super::Gate`] and [`super::Wake`] only; one that blocks on anything else makes each `advance` wait for
/// [`ManualClock::CALLBACK_GRACE`] once.
///
/// Dropping it lets the threads come to rest once more. It *panics* when contained panics are then on record, of the
/// clock's threads or of the dropping one, that nobody declared with [`super::call_out::assert_contained`]: a failed
/// assertion inside a handler must fail its test.
#[derive(Debug)]
pub struct ManualClock {
    clock: Clock,
    pub(super) patience: Patience,
}

impl ManualClock {
    /// Real time after which [`ManualClock::advance`] gives up.
    pub const LIMIT: Duration = Duration::from_secs(30);
    /// Real time for which everybody who runs must have stayed inside the same callbacks to count as resting. A callback
    /// that panics prints its backtrace in that time, on a machine that is busy with other things.
    pub const CALLBACK_GRACE: Duration = Duration::from_secs(5);

    /// A clock that stands at its beginning.
    pub fn new() -> Self {
        let patience = Patience { limit: Self::LIMIT, grace: Self::CALLBACK_GRACE };
        Self { clock: Clock(Arc::new(Census::new(true))), patience }
    }

    /// The handle for builders.
    pub fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// Lets every thread come to rest without moving time.
    ///
    /// # Panics
    /// As [`ManualClock::advance`].
    pub fn settle(&self) {
        self.advance(Duration::ZERO);
    }

    /// Moves time by `d`: fires every timer on the way at its own instant, in order (of setting, when instants are
    /// equal), letting all threads come to rest before each and at the end. Time ends 584 years after the beginning.
    ///
    /// # Panics
    /// When the threads do not come to rest within [`ManualClock::LIMIT`]; the message names them.
    pub fn advance(&self, d: Duration) {
        if let Err(e) = self.try_advance(d) {
            panic!("the clock cannot settle: {e}");
        }
    }

    /// [`ManualClock::advance`] that returns its failure. Call it from one thread at a time.
    ///
    /// # Errors
    /// [`NotSettled`]; time then stands at the last timer fired.
    pub fn try_advance(&self, d: Duration) -> Result<(), NotSettled> {
        self.clock.0.advance(d, self.patience)
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for ManualClock {
    type Target = Clock;
    fn deref(&self) -> &Clock {
        &self.clock
    }
}

impl Drop for ManualClock {
    fn drop(&mut self) {
        if super::thread::panicking() {
            return;
        }
        // A panic that is about to be contained counts as well.
        let rest = self.clock.0.settle(self.patience);
        let left = call_out::take_record(&self.clock);
        assert!(left.is_empty(), "panics were contained that the test did not declare: {left:?}");
        if let Err(e) = rest {
            panic!("dropping a clock whose threads do not come to rest: {e}");
        }
    }
}
