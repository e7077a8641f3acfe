//! The census of a clock: who lives by it, what they are doing, and the timers of a manual one.
//!
//! A *member* is a thread that this crate started under the clock, from before its first instruction to after its
//! last, or, under a manual clock only, a foreign thread while it is inside a blocking door (a *visitor*). A member
//! runs or is parked. It is the unparker that turns a parked member into a running one, so "nobody runs" means that no
//! wake is in flight either.
//!
//! # Rest
//! A manual clock is at rest when no member runs. User code may block on things that the facade cannot see; so when
//! every running member is inside a callback and nothing at all has moved for a grace period, those members count as
//! *stuck* and their state as rest. The mark goes with the member's next move, and with the next call of `advance`.
//!
//! # Timers
//! They are set and fired under the same lock that moves the time, so a deadline is either on the list before the
//! time passes it, or its owner is told that it has passed.

use super::{
    Arc, Instant,
    atomic::{AtomicU64, Ordering},
    backend::{RawCondvar, RawMutex, os},
    call_out::{Record, Site},
    keep,
    park::Unparker,
};
use std::{collections::BTreeMap, time::Duration};

pub(super) struct Census {
    manual: bool,
    now: AtomicU64,
    state: RawMutex<State>,
    changed: RawCondvar,
}

#[derive(Default)]
struct State {
    members: BTreeMap<u64, Member>,
    /// Grows with every move: two equal readings mean that nothing moved in between.
    moves: u64,
    timers: BTreeMap<(Instant, u64), Unparker>,
    next_id: u64,
    contained: Record,
}

struct Member {
    name: String,
    /// Started by this crate; else a visitor.
    ours: bool,
    running: bool,
    /// The outermost callback it is inside of.
    inside: Option<Site>,
    stuck: bool,
}

impl State {
    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn running(&self) -> impl Iterator<Item = &Member> {
        self.members.values().filter(|m| m.running)
    }

    /// Everybody who runs is inside a callback (or nobody runs).
    fn only_callbacks(&self) -> bool {
        self.running().all(|m| m.inside.is_some())
    }

    fn names(&self, running: bool) -> Vec<String> {
        let describe = |m: &Member| match m.inside {
            Some(site) => format!("{} (inside {site:?})", m.name),
            None => m.name.clone(),
        };
        self.members.values().filter(|m| m.running == running).map(describe).collect()
    }
}

/// A member's place in its census.
#[derive(Clone)]
pub(super) struct Seat {
    pub(super) census: Arc<Census>,
    id: u64,
}

impl Seat {
    /// The member is about to wait for its unparker.
    pub(super) fn parks(&self) {
        self.census.change(self.id, |m| m.running = false);
    }

    /// The member will run; called by whoever wakes it.
    pub(super) fn wakes(&self) {
        self.census.change(self.id, |m| m.running = true);
    }

    /// The member enters user code (`Some`), or leaves it.
    pub(super) fn inside(&self, site: Option<Site>) {
        self.census.change(self.id, |m| m.inside = site);
    }

    /// The member has ended, or the visitor leaves.
    pub(super) fn leave(self) {
        let mut s = self.census.state.lock();
        s.members.remove(&self.id);
        self.census.moved(s);
    }
}

impl Census {
    pub(super) fn new(manual: bool) -> Self {
        Self { manual, now: AtomicU64::new(0), state: RawMutex::default(), changed: RawCondvar::new() }
    }

    pub(super) fn is_manual(&self) -> bool {
        self.manual
    }

    /// The time of a manual clock.
    pub(super) fn manual_now(&self) -> Instant {
        Instant::from_start(Duration::from_nanos(self.now.load(Ordering::Acquire)))
    }

    fn set_now(&self, now: Instant) {
        let nanos = u64::try_from(now.since_start().as_nanos()).unwrap_or(u64::MAX);
        self.now.store(nanos, Ordering::Release);
    }

    /// Counts a running member in.
    pub(super) fn join(self: &Arc<Self>, name: &str, ours: bool, inside: Option<Site>) -> Seat {
        let mut s = self.state.lock();
        let id = s.id();
        s.members.insert(id, Member { name: name.to_owned(), ours, running: true, inside, stuck: false });
        self.moved(s);
        Seat { census: self.clone(), id }
    }

    fn change(&self, id: u64, f: impl FnOnce(&mut Member)) {
        let mut s = self.state.lock();
        if let Some(m) = s.members.get_mut(&id) {
            m.stuck = false;
            f(m);
        }
        self.moved(s);
    }

    fn moved(&self, mut s: super::backend::RawMutexGuard<'_, State>) {
        s.moves += 1;
        if self.manual && s.only_callbacks() && keep("census: rest is told of") {
            self.changed.notify_all();
        }
    }

    /// Names of the threads that the crate started.
    pub(super) fn threads(&self) -> Vec<String> {
        self.state.lock().members.values().filter(|m| m.ours).map(|m| m.name.clone()).collect()
    }

    pub(super) fn contained(&self, record: impl FnOnce(&mut Record)) {
        record(&mut self.state.lock().contained);
    }

    /// Sets a timer, unless `at` has passed. For manual clocks; real ones wait on the machine.
    pub(super) fn set_timer(&self, at: Instant, who: Unparker) -> Option<(Instant, u64)> {
        let passed = || at <= self.manual_now();
        let too_early = (!keep("census: a timer is set under the lock that moves the time")).then(passed);
        let mut s = self.state.lock();
        if too_early.unwrap_or_else(passed) {
            return None;
        }
        let timer = (at, s.id());
        s.timers.insert(timer, who);
        Some(timer)
    }

    pub(super) fn drop_timer(&self, timer: (Instant, u64)) {
        self.state.lock().timers.remove(&timer);
    }

    /// Moves the time of a manual clock by `d`, timer by timer, settling before each and at the end.
    pub(super) fn advance(&self, d: Duration, patience: Patience) -> Result<(), NotSettled> {
        let target = self.manual_now().checked_add(d).unwrap_or(Instant::LAST);
        self.state.lock().members.values_mut().for_each(|m| m.stuck = false);
        loop {
            self.settle(patience)?;
            let sleeper = {
                let mut s = self.state.lock();
                match s.timers.first_entry() {
                    Some(first) if first.key().0 <= target => {
                        self.set_now(first.key().0);
                        first.remove()
                    }
                    _ => {
                        self.set_now(target);
                        return Ok(());
                    }
                }
            };
            sleeper.unpark();
        }
    }

    /// Waits, in real time, for rest.
    pub(super) fn settle(&self, patience: Patience) -> Result<(), NotSettled> {
        let give_up = os::after(patience.limit);
        let mut s = self.state.lock();
        loop {
            if s.running().all(|m| m.stuck) {
                return Ok(());
            }
            let moves = s.moves;
            let calm = if s.only_callbacks() { os::after(patience.grace) } else { None };
            match calm.into_iter().chain(give_up).min() {
                Some(at) => _ = self.changed.wait_until(&mut s, at),
                None => self.changed.wait(&mut s),
            }
            let passed = |at: Option<_>| at.is_some_and(|at| os::now() >= at);
            if s.moves == moves && passed(calm) {
                s.members.values_mut().filter(|m| m.running).for_each(|m| m.stuck = true);
            } else if s.running().any(|m| !m.stuck) && passed(give_up) {
                return Err(NotSettled { busy: s.names(true), resting: s.names(false) });
            }
        }
    }
}

/// How long, in real time, a manual clock waits for its threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For rest at all.
    pub(super) limit: Duration,
    /// For callbacks that do not move.
    pub(super) grace: Duration,
}

/// The threads of a manual clock did not come to rest within its limit of real time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("still busy: {}; at rest: {}", .busy.join(", "), if .resting.is_empty() { "nobody".to_owned() } else { .resting.join(", ") })]
pub struct NotSettled {
    /// Names of the threads that are neither parked nor ended, with the callback they are inside of.
    pub busy: Vec<String>,
    /// Names of the others.
    pub resting: Vec<String>,
}
