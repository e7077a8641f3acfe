//! Time, and the census of the threads that live by it.
//!
//! A [`Clock`] is a handle. Everything that waits with a deadline, and every thread the crate starts, belongs to one.
//! [`Clock::real`] is the machine's; [`ManualClock`] is moved by hand and *settles*: [`ManualClock::advance`] fires the
//! timers on the way in order of their deadlines and returns when every thread has come to rest.

use super::{
    Arc, Lazy,
    atomic::{AtomicU64, Ordering},
    backend::{RawCondvar, RawMutex, os},
    call_out::Contained,
    park::Unparker,
};
use std::{collections::BTreeMap, fmt, ops::Deref, time::Duration};

static ORIGIN: Lazy<std::time::Instant> = Lazy::new(os::now);

/// A point of time of a [`Clock`]: the time since that clock's beginning. All real clocks share one beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(Duration);

impl Instant {
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

    /// This instant plus `d`, `None` when that cannot be expressed.
    pub fn checked_add(self, d: Duration) -> Option<Self> {
        // What does not fit into 64 bits of nanoseconds (584 years) is never.
        self.0.checked_add(d).filter(|t| t.as_nanos() <= u128::from(u64::MAX)).map(Self)
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
        if self.0.manual {
            Instant(Duration::from_nanos(self.0.now.load(Ordering::Acquire)))
        } else {
            Instant(os::now().saturating_duration_since(*ORIGIN))
        }
    }

    /// True for a clock that is moved by hand.
    pub fn is_manual(&self) -> bool {
        self.0.manual
    }

    /// Names of the threads that this crate started under this clock and that have not ended.
    pub fn threads(&self) -> Vec<String> {
        self.0.state.lock().threads.values().cloned().collect()
    }

    pub(super) fn census(&self) -> &Arc<Census> {
        &self.0
    }

    pub(super) fn real_instant(&self, at: Instant) -> Option<std::time::Instant> {
        ORIGIN.checked_add(at.0)
    }

    pub(super) fn take_contained(&self) -> Vec<Contained> {
        std::mem::take(&mut self.0.state.lock().contained)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::real()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.0.manual { "manual" } else { "real" };
        write!(f, "Clock({kind}, {:?})", self.now().0)
    }
}

/// Who lives by a clock, and what they are doing.
///
/// The counts are kept for manual clocks only. `busy` counts threads of the crate that are neither parked nor ended,
/// and foreign threads inside a blocking door that are not parked; `in_user_code` those of them that are inside a
/// callback.
pub(super) struct Census {
    manual: bool,
    now: AtomicU64,
    state: RawMutex<State>,
    changed: RawCondvar,
}

#[derive(Default)]
struct State {
    busy: usize,
    in_user_code: usize,
    /// Grows with every change of the counts: two equal readings mean that nothing moved in between.
    moves: u64,
    timers: BTreeMap<(Instant, u64), Unparker>,
    threads: BTreeMap<u64, String>,
    next_id: u64,
    contained: Vec<Contained>,
}

impl Census {
    fn new(manual: bool) -> Self {
        Self { manual, now: AtomicU64::new(0), state: RawMutex::default(), changed: RawCondvar::new() }
    }

    pub(super) fn is_manual(&self) -> bool {
        self.manual
    }

    fn change(&self, f: impl FnOnce(&mut State)) {
        let mut s = self.state.lock();
        f(&mut s);
        s.moves += 1;
        if s.busy == s.in_user_code {
            self.changed.notify_all();
        }
    }

    /// A thread stops running (parks, leaves a door).
    pub(super) fn idle(&self, in_user_code: bool) {
        if self.manual {
            self.change(|s| {
                s.busy -= 1;
                s.in_user_code -= usize::from(in_user_code);
            });
        }
    }

    /// A thread begins to run (is unparked, enters a door).
    pub(super) fn busy(&self, in_user_code: bool) {
        if self.manual {
            self.change(|s| {
                s.busy += 1;
                s.in_user_code += usize::from(in_user_code);
            });
        }
    }

    /// A running thread enters user code.
    pub(super) fn enter_user_code(&self) {
        self.change(|s| s.in_user_code += 1);
    }

    /// A running thread leaves user code.
    pub(super) fn leave_user_code(&self) {
        self.change(|s| s.in_user_code -= 1);
    }

    /// Counts a thread in, on the thread that starts it.
    pub(super) fn born(&self, name: &str) -> u64 {
        let mut s = self.state.lock();
        s.next_id += 1;
        let id = s.next_id;
        s.threads.insert(id, name.to_owned());
        s.busy += usize::from(self.manual);
        s.moves += 1;
        id
    }

    /// Counts a thread out, as the last thing it does.
    pub(super) fn gone(&self, id: u64) {
        self.change(|s| {
            s.threads.remove(&id);
            s.busy -= usize::from(self.manual);
        });
    }

    pub(super) fn contained(&self, what: Contained) {
        let mut s = self.state.lock();
        if s.contained.len() < Contained::KEPT {
            s.contained.push(what);
        }
    }

    /// Only manual clocks have timers; real ones wait on the machine.
    pub(super) fn add_timer(&self, at: Instant, who: Unparker) -> Option<(Instant, u64)> {
        self.manual.then(|| {
            let mut s = self.state.lock();
            s.next_id += 1;
            let key = (at, s.next_id);
            s.timers.insert(key, who);
            key
        })
    }

    pub(super) fn drop_timer(&self, timer: (Instant, u64)) {
        self.state.lock().timers.remove(&timer);
    }

    /// Waits, in real time, until nobody is busy.
    fn settle(&self) -> Result<(), NotSettled> {
        let give_up = os::after(ManualClock::LIMIT);
        let mut s = self.state.lock();
        loop {
            if s.busy == 0 {
                return Ok(());
            }
            // Everybody who runs is inside a callback. One that is blocked on something of its own never comes back,
            // so when nothing at all has moved for a while that counts as rest.
            let (only_callbacks, moves) = (s.busy == s.in_user_code, s.moves);
            let until = if only_callbacks { os::after(ManualClock::CALLBACK_GRACE) } else { give_up };
            let timed_out = match until {
                Some(at) => self.changed.wait_until(&mut s, at).timed_out(),
                None => {
                    self.changed.wait(&mut s);
                    false
                }
            };
            if timed_out && only_callbacks && s.moves == moves {
                return Ok(());
            }
            if s.busy != 0 && give_up.is_some_and(|at| os::now() >= at) {
                let threads = s.threads.values().cloned().collect();
                return Err(NotSettled { busy: s.busy, in_callbacks: s.in_user_code, threads });
            }
        }
    }
}

/// The threads did not come to rest within [`ManualClock::LIMIT`] of real time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{busy} threads still busy ({in_callbacks} of them inside callbacks); threads alive: {}", .threads.join(", "))]
pub struct NotSettled {
    /// Threads neither parked nor ended.
    pub busy: usize,
    /// Those of them inside a callback.
    pub in_callbacks: usize,
    /// Names of all threads of the clock.
    pub threads: Vec<String>,
}

/// A clock that is moved by hand, for tests without sleeps. Dereferences to the [`Clock`] to hand to builders.
///
/// Its owner is not counted: it advances the clock and looks at what happened. Callbacks and sources under test block
/// on [`super::Gate`] and [`super::Wake`] only; one that blocks on anything else makes each `advance` wait for
/// [`ManualClock::CALLBACK_GRACE`].
///
/// *Panics* when dropped while contained panics are on record that nobody declared with
/// [`super::call_out::assert_contained`]: a failed assertion inside a handler must fail its test.
#[derive(Debug)]
pub struct ManualClock {
    clock: Clock,
}

impl ManualClock {
    /// Real time after which [`ManualClock::advance`] gives up.
    pub const LIMIT: Duration = Duration::from_secs(30);
    /// Real time for which everybody who runs must have stayed inside the same callbacks to count as resting.
    pub const CALLBACK_GRACE: Duration = Duration::from_millis(500);

    /// A clock that stands at its beginning.
    pub fn new() -> Self {
        Self { clock: Clock(Arc::new(Census::new(true))) }
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

    /// Moves time by `d`: fires every timer on the way at its own instant, in order, letting all threads come to rest
    /// before each and at the end.
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
        let census = &self.clock.0;
        let target = self.clock.now().checked_add(d).unwrap_or_else(|| self.clock.now());
        loop {
            census.settle()?;
            let due: Vec<Unparker> = {
                let mut s = census.state.lock();
                let Some((&(first, _), _)) = s.timers.first_key_value() else { break };
                if first > target {
                    break;
                }
                let now = first.max(self.clock.now());
                census.now.store(now.0.as_nanos() as u64, Ordering::Release);
                let later = s.timers.split_off(&(now, u64::MAX));
                std::mem::replace(&mut s.timers, later).into_values().collect()
            };
            for sleeper in due {
                sleeper.unpark();
            }
        }
        census.now.store(target.0.as_nanos() as u64, Ordering::Release);
        Ok(())
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
        let left = self.clock.take_contained();
        if !left.is_empty() && !super::thread::panicking() {
            panic!("panics were contained that the test did not declare: {left:?}");
        }
    }
}
