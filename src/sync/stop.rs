//! [`Stop`], [`Wake`] and [`Gate`]: the signals that blocking code listens to.

use super::{
    Arc, Clock, Deadline, Monitor, Mutex, Weak,
    atomic::{AtomicBool, Ordering},
    call_out::{self, Foreign, Site},
    clock::ANY_CLOCK,
    keep, order,
    park::Door,
};
use std::{collections::BTreeMap, fmt};

/// A request to stop: given once, never taken back. Clones are handles to the same request.
#[derive(Clone, Default)]
pub struct Stop(Arc<StopInner>);

#[derive(Default)]
struct StopInner {
    stopped: AtomicBool,
    callbacks: Monitor<Callbacks>,
    clock: Option<Clock>,
    /// Keeps a child's entry in its parent.
    _parent: Mutex<Option<StopGuard>>,
}

#[derive(Default)]
struct Callbacks {
    /// Somebody stops, and runs them.
    given: bool,
    next: u64,
    all: BTreeMap<u64, Callback>,
}

enum Callback {
    /// From outside: called, and dropped uncalled, as user code.
    Users(Foreign<Box<dyn FnOnce() + Send>>),
    /// Of a child or a wake, whose own callbacks are contained one by one.
    Ours(Box<dyn FnOnce() + Send>),
}

impl Callback {
    fn run(self) {
        match self {
            Self::Users(f) => call_out::contain(Site::Hook, f.into_inner()),
            Self::Ours(f) => f(),
        }
    }
}

impl Drop for StopGuard {
    fn drop(&mut self) {
        let Some((stop, id)) = self.0.take() else { return };
        let Some(inner) = stop.upgrade() else { return };
        let callback = match inner.callbacks.lock() {
            mut c if keep("stop: a guard takes back its own callback") => c.all.remove(&id),
            mut c => c.all.pop_last().map(|(_, callback)| callback),
        };
        // After the lock: what the callback captured may have a `Drop` of its own.
        drop(callback);
    }
}

impl Stop {
    /// A request nobody has made yet. Deadlines of [`Stop::wait`] are on the machine's clock.
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`Stop::new`], with the deadlines of [`Stop::wait`] on `clock`.
    pub fn with_clock(clock: &Clock) -> Self {
        Self(Arc::new(StopInner { clock: Some(clock.clone()), ..StopInner::default() }))
    }

    /// Makes the request and runs the callbacks on this thread, each contained. The second call does nothing.
    pub fn stop(&self) {
        {
            let mut c = self.0.callbacks.lock();
            if std::mem::replace(&mut c.given, true) {
                return;
            }
            // Under the lock: a waiter sees the flag, or is on the list of those who are notified.
            if keep("stop: the flag is set under the lock") {
                self.0.stopped.store(true, order("stop: the flag is set", Ordering::Release));
            }
        }
        if !keep("stop: the flag is set under the lock") {
            self.0.stopped.store(true, Ordering::Release);
        }
        if keep("stop: waiters are notified") {
            self.0.callbacks.notify_all();
        }
        // One by one, so that a guard can take back what has not begun.
        while let Some(callback) = self.next_callback() {
            callback.run();
        }
    }

    fn next_callback(&self) -> Option<Callback> {
        self.0.callbacks.lock().all.pop_first().map(|(_, callback)| callback)
    }

    /// Whether the request has been made. *Blocks*: no; one load.
    pub fn is_stopped(&self) -> bool {
        self.0.stopped.load(order("stop: the flag is looked at", Ordering::Acquire))
    }

    /// Waits for the request; false when the deadline passed first.
    pub fn wait(&self, deadline: impl Into<Deadline>) -> bool {
        let clock = self.0.clock.as_ref().unwrap_or(&ANY_CLOCK);
        let at = deadline.into().on(clock);
        self.0.callbacks.wait_while(self.0.callbacks.lock(), clock, at, |_| !self.is_stopped()).1
    }

    /// Runs `f` once when the request is made: at once, on this thread, if it already has been, else on the stopping
    /// thread. Dropping the guard takes it back, unless it is just being run. A panic in `f` is contained.
    pub fn on_stop(&self, f: impl FnOnce() + Send + 'static) -> StopGuard {
        self.register(Callback::Users(Foreign::new(Box::new(f))))
    }

    fn register(&self, callback: Callback) -> StopGuard {
        let mut c = self.0.callbacks.lock();
        if self.is_stopped() {
            drop(c);
            if keep("stop: a late callback runs at once") {
                callback.run();
            }
            return StopGuard(None);
        }
        c.next += 1;
        let id = c.next;
        c.all.insert(id, callback);
        StopGuard(Some((Arc::downgrade(&self.0), id)))
    }

    /// A request of its own that is also made when this one is.
    pub fn child(&self) -> Self {
        let child = Self(Arc::new(StopInner { clock: self.0.clock.clone(), ..StopInner::default() }));
        let weak = Arc::downgrade(&child.0);
        let guard = self.register(Callback::Ours(Box::new(move || {
            if let Some(inner) = weak.upgrade() {
                Self(inner).stop();
            }
        })));
        *child.0._parent.lock() = Some(guard);
        child
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stop").field(&self.is_stopped()).finish()
    }
}

/// Takes an [`Stop::on_stop`] callback back when dropped.
#[must_use = "dropping the guard takes the callback back"]
pub struct StopGuard(Option<(Weak<StopInner>, u64)>);

impl fmt::Debug for StopGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopGuard").finish_non_exhaustive()
    }
}

/// Why [`Wake::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The reflector stops: return soon.
    Stopped,
    /// The engine has something else to do: answer [`crate::source::Next::Woken`].
    Nudged,
    /// The deadline passed.
    Deadline,
}

/// What a blocking call of a source listens to, besides its own news.
///
/// A source waits only through this (or through a [`Gate`]), so that stop reaches it and a manual clock sees it: it
/// calls [`Wake::wait_until`] with a look at its own news, and whoever brings news calls [`Wake::poke`].
#[derive(Clone)]
pub struct Wake(Arc<WakeInner>);

struct WakeInner {
    stop: Stop,
    clock: Clock,
    state: Monitor<WakeState>,
    guard: Mutex<Option<StopGuard>>,
}

type OnWake = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct WakeState {
    nudged: bool,
    pokes: u64,
    next: u64,
    callbacks: BTreeMap<u64, Arc<Foreign<OnWake>>>,
}

impl Wake {
    /// A wake that hears of `stop`, with deadlines on `clock`.
    pub fn new(stop: &Stop, clock: &Clock) -> Self {
        let wake = Self(Arc::new(WakeInner {
            stop: stop.clone(),
            clock: clock.clone(),
            state: Monitor::default(),
            guard: Mutex::new(None),
        }));
        let weak = Arc::downgrade(&wake.0);
        let guard = stop.register(Callback::Ours(Box::new(move || {
            if let Some(inner) = weak.upgrade()
                && keep("wake: stop rings")
            {
                Self(inner).ring(false);
            }
        })));
        *wake.0.guard.lock() = Some(guard);
        wake
    }

    /// The clock of deadlines.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Whether the reflector stops. *Blocks*: no; one load.
    pub fn is_stopped(&self) -> bool {
        self.0.stop.is_stopped()
    }

    /// Interrupts the wait, now or when it next begins, with [`Woken::Nudged`]; several merge. *Blocks*: briefly.
    pub fn nudge(&self) {
        self.ring(true);
    }

    /// Makes a [`Wake::wait_until`] look at its own news again. *Blocks*: briefly.
    pub fn poke(&self) {
        self.0.state.lock().pokes += 1;
        self.0.state.notify_all();
    }

    fn ring(&self, nudge: bool) {
        let ids: Vec<u64> = {
            let mut s = self.0.state.lock();
            s.nudged |= nudge;
            s.pokes += 1;
            s.callbacks.keys().copied().collect()
        };
        self.0.state.notify_all();
        // One by one, so that a guard can take back what has not begun.
        for id in ids {
            let callback = self.0.state.lock().callbacks.get(&id).cloned();
            if let Some(f) = callback {
                call_out::contain(Site::Hook, || f());
            }
        }
    }

    /// Takes a pending stop or nudge, for sources that block in a way of their own and were told by
    /// [`Wake::on_wake`]. *Blocks*: briefly.
    pub fn take(&self) -> Option<Woken> {
        if self.is_stopped() {
            return Some(Woken::Stopped);
        }
        std::mem::take(&mut self.0.state.lock().nudged).then_some(Woken::Nudged)
    }

    /// Waits for stop, a nudge or the deadline.
    pub fn wait(&self, deadline: impl Into<Deadline>) -> Woken {
        self.wait_until(deadline, || false).unwrap_or(Woken::Nudged)
    }

    /// Waits until `ready` says yes (`None`), or for stop, a nudge or the deadline. `ready` is asked first and after
    /// every poke, without a lock held; stop goes before it, a nudge after it.
    pub fn wait_until(&self, deadline: impl Into<Deadline>, mut ready: impl FnMut() -> bool) -> Option<Woken> {
        let at = deadline.into().on(&self.0.clock);
        let _door = Door::enter(&self.0.clock);
        let mut passed = false;
        loop {
            let seen = self.0.state.lock().pokes;
            if self.is_stopped() && keep("wake: stop is looked at before waiting") {
                return Some(Woken::Stopped);
            }
            if ready() {
                return None;
            }
            let mut s = self.0.state.lock();
            if std::mem::take(&mut s.nudged) {
                return Some(Woken::Nudged);
            }
            if passed {
                return Some(Woken::Deadline);
            }
            let (s, reached) = self.0.state.wait_while(s, &self.0.clock, at, |s| s.pokes == seen && !s.nudged);
            drop(s);
            passed = !reached;
        }
    }

    /// Calls `f`, contained, whenever stop or a nudge arrives, on the thread that brings it; at once when stop already
    /// has. For sources that block in a way of their own. Dropping the guard takes it back.
    pub fn on_wake(&self, f: impl Fn() + Send + Sync + 'static) -> WakeGuard {
        let f = Arc::new(Foreign::new(Box::new(f) as OnWake));
        let id = {
            let mut s = self.0.state.lock();
            s.next += 1;
            let id = s.next;
            s.callbacks.insert(id, f.clone());
            id
        };
        if self.is_stopped() {
            call_out::contain(Site::Hook, || f());
        }
        WakeGuard(Arc::downgrade(&self.0), id)
    }
}

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wake").field("stopped", &self.is_stopped()).finish_non_exhaustive()
    }
}

/// Takes an [`Wake::on_wake`] callback back when dropped.
#[must_use = "dropping the guard takes the callback back"]
pub struct WakeGuard(Weak<WakeInner>, u64);

impl Drop for WakeGuard {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            let callback = inner.state.lock().callbacks.remove(&self.1);
            // After the lock: what the callback captured may have a `Drop` of its own.
            drop(callback);
        }
    }
}

impl fmt::Debug for WakeGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WakeGuard").finish_non_exhaustive()
    }
}

/// How handlers and sources of tests block so that a manual clock sees it. Clones are handles to the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<GateInner>);

#[derive(Default)]
struct GateInner {
    open: Monitor<bool>,
}

impl fmt::Debug for GateInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "open: {}", *self.open.lock())
    }
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets everybody through, now and later. *Blocks*: briefly.
    pub fn open(&self) {
        *self.0.open.lock() = true;
        self.0.open.notify_all();
    }

    /// Closes it again for those who come later. *Blocks*: briefly.
    pub fn close(&self) {
        *self.0.open.lock() = false;
    }

    /// Waits until the gate is open.
    pub fn wait(&self) {
        drop(self.0.open.wait_while(self.0.open.lock(), &ANY_CLOCK, None, |open| !*open));
    }
}
