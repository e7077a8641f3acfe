//! The queue itself: dirty and processing, get and done, shut down and drain.
//!
//! One short mutex around [`State`]. Every door is one critical section made by [`Shared::section`], which fixes the
//! order of things: due timers fire first, then the door's own step, then the choice of threads to wake; after the lock
//! the wake-ups, and after those the drops of keys. Inside the lock runs no user code but `Eq` of keys.
//!
//! What makes P6 hold: a slot number is in `ready` exactly when its key is owed a hand-out and is not held ([`Slot`]).
//! Only a hand-out takes it from there, only [`State::owe`] and [`State::finish`] put it there, each on the edge from
//! "not both" to "both"; so it is there once, and two workers never hold one key.
//!
//! [`Slot`]: super::slots::Slot

use super::{
    Limiter, Work,
    key::{self, After},
    slots::{Held, Slots},
    timer_heap::TimerHeap,
    waiters::Waiters,
};
use crate::sync::{
    Arc, Clock, Deadline, Door, Instant, Mutex, ThreadId, WaitError,
    atomic::{AtomicU64, Ordering},
    call_out::{self, Site},
    keep, park, this_thread,
};
use hashbrown::DefaultHashBuilder;
use std::{collections::VecDeque, fmt, hash::Hash};

/// A queue of keys for reconcile workers. Clones are handles to the same queue. client-go: `workqueue.Typed`,
/// `TypedDelayingInterface`, `TypedRateLimitingInterface`.
///
/// A key is queued at most once however often it is added, and handed to one worker at a time:
///
/// * **Exclusive (P6).** While a [`Work`] of a key exists no other one does. An add during that time is remembered, and
///   the key is queued again, at the tail, when the `Work` is done.
/// * **Nothing accepted is lost (P6).** An [`add`](Self::add) that returned true leads to a hand-out that begins after
///   it, as long as some worker keeps calling [`get`](Self::get) until it returns `None`. Only delays still running when
///   the queue is shut down are dropped; the report counts them.
/// * **Panics (P9).** `Hash`, `Eq`, `Clone` and `Drop` of keys and a [`Limiter`] may panic: the operation it happens in
///   is refused or falls back as its text says, all others go on. `Eq` runs under the queue's lock and must not call
///   back into the queue; the other three run outside of it (P10).
/// * **Order.** First come, first served, by the moment of queueing. Delays that are due count as queued at their
///   deadlines. No order is promised among waiting workers.
///
/// Tests: `p6_*`, `p9_*`, `p10_*` in `workqueue/tests.rs`, and random histories against a sequential model.
pub struct WorkQueue<K: Hash + Eq + Clone + Send + 'static>(pub(super) Arc<Shared<K>>);

pub(super) struct Shared<K> {
    pub(super) name: String,
    pub(super) clock: Clock,
    pub(super) limiter: Box<dyn Limiter<K>>,
    hasher: DefaultHashBuilder,
    state: Mutex<State<K>>,
    key_panics: AtomicU64,
}

pub(super) struct State<K> {
    pub(super) slots: Slots<K>,
    /// Keys to hand out, in order.
    ready: VecDeque<usize>,
    /// Keys handed out, in no order.
    held: Vec<usize>,
    /// How many of `held` are owed another hand-out.
    dirty: usize,
    pub(super) timers: TimerHeap<Instant, usize>,
    waiters: Waiters,
    /// Takes no more keys.
    down: bool,
    /// Grows with each `shutdown`: a drain that sees it grow was cancelled.
    shutdowns: u64,
    finished: u64,
    delays_dropped: u64,
    refused: u64,
}

impl<K> Shared<K> {
    /// One critical section; see the top of the file.
    pub(super) fn section<R>(&self, f: impl FnOnce(&mut State<K>, &mut After<K>) -> R) -> R {
        let mut after = After::new();
        let out = {
            let mut state = self.state.lock();
            state.fire(&self.clock, &mut after);
            let out = f(&mut state, &mut after);
            state.balance(&mut after);
            out
        };
        self.count_panics(after.carry_out());
        out
    }

    pub(super) fn count_panics(&self, n: u64) {
        if n > 0 {
            self.key_panics.fetch_add(n, Ordering::Relaxed);
        }
    }

    pub(super) fn discard(&self, key: K) {
        self.count_panics(u64::from(!key::discard(key)));
    }

    /// Takes one key in: owed at once, or at `at`.
    pub(super) fn accept(&self, key: K, at: Option<Instant>) -> bool
    where
        K: Hash + Eq + Clone,
    {
        let Ok((hash, second)) = key::prepare(&self.hasher, &key) else {
            self.count_panics(1);
            self.discard(key);
            return false;
        };
        self.section(|s, after| {
            let found = match s.admit() {
                true => s.slots.find(hash, &key).map_err(|panic| after.panics.push(panic)).ok(),
                false => None,
            };
            match found {
                None => {
                    after.discard(key);
                    after.discard(second);
                    false
                }
                Some(known) => {
                    let id = match known {
                        Some(id) => {
                            after.discard(second);
                            id
                        }
                        None => s.slots.insert(hash, second),
                    };
                    s.owe_at(id, key, at, after);
                    true
                }
            }
        })
    }

    fn report(&self, s: &State<K>) -> ShutdownReport {
        ShutdownReport {
            queued: s.ready.len(),
            held: s.held.len(),
            delays_dropped: s.delays_dropped,
            refused: s.refused,
            key_panics: self.key_panics.load(Ordering::Relaxed),
        }
    }

    pub(super) fn is_down(&self) -> bool {
        self.state.lock().down
    }
}

impl<K> Drop for Shared<K> {
    fn drop(&mut self) {
        let mut after = After::new();
        self.state.lock().slots.take_all(&mut after);
        after.carry_out();
        let limiter = std::mem::replace(&mut self.limiter, Box::new(super::limiter::Unlimited));
        call_out::contain(Site::Hook, || drop(limiter));
    }
}

impl<K> State<K> {
    const fn new() -> Self {
        Self {
            slots: Slots::new(),
            ready: VecDeque::new(),
            held: Vec::new(),
            dirty: 0,
            timers: TimerHeap::new(),
            waiters: Waiters::new(),
            down: false,
            shutdowns: 0,
            finished: 0,
            delays_dropped: 0,
            refused: 0,
        }
    }

    /// Whether keys are taken in; counts those that are not.
    pub(super) fn admit(&mut self) -> bool {
        self.refused += u64::from(self.down);
        !self.down
    }

    /// Owes the key a hand-out from now on; several merge.
    pub(super) fn owe(&mut self, id: usize, key: K, after: &mut After<K>) {
        let slot = self.slots.get(id);
        if slot.next.is_some() {
            after.discard(key);
            return;
        }
        slot.next = Some(key);
        let held = slot.held.is_some();
        self.dirty += usize::from(held);
        if !held || !keep("workqueue: a held key waits for the end of its work") {
            self.ready.push_back(id);
        }
    }

    /// Hands out the key that is first, to the calling thread `me`.
    fn take(&mut self, me: ThreadId) -> Option<(usize, K)> {
        let id = self.ready.pop_front()?;
        let slot = self.slots.get(id);
        let key = slot.next.take().expect("a key in `ready` is owed a hand-out");
        slot.held = Some(Held { by: me, at: self.held.len() });
        self.held.push(id);
        Some((id, key))
    }

    /// The `Work` of a key is done.
    pub(super) fn finish(&mut self, id: usize, after: &mut After<K>) {
        let Some(held) = self.slots.get(id).held.take() else { return };
        self.held.swap_remove(held.at);
        if let Some(&moved) = self.held.get(held.at)
            && let Some(other) = &mut self.slots.get(moved).held
        {
            other.at = held.at;
        }
        self.finished += 1;
        if self.slots.get(id).next.is_some() {
            self.dirty -= 1;
            if keep("workqueue: a key added while held is queued after its work") {
                self.ready.push_back(id);
            }
            if self.down && keep("workqueue: the last round releases who waits for it") {
                // Workers that waited for this key only must learn that nothing else comes.
                self.waiters.release(&mut after.wake);
            }
        } else {
            self.tidy(id, after);
        }
    }

    /// Lets go of the key when nothing is owed to it, and of the room of a burst after its last key.
    fn tidy(&mut self, id: usize, after: &mut After<K>) {
        if self.slots.tidy(id, after) {
            self.ready = VecDeque::new();
            self.held = Vec::new();
        }
    }

    /// Whether nothing can become ready any more, as far as `me` may wait for it: a key that `me` itself took is not
    /// queued again while `me` waits.
    fn is_over(&mut self, me: ThreadId) -> bool {
        self.down && self.ready.is_empty() && (self.dirty == 0 || !self.others_owe(me))
    }

    fn others_owe(&mut self, me: ThreadId) -> bool {
        let slots = &mut self.slots;
        self.held.iter().any(|&id| {
            let slot = slots.get(id);
            slot.next.is_some() && slot.held.as_ref().is_some_and(|h| h.by != me)
        })
    }

    fn is_drained(&self) -> bool {
        self.down && self.ready.is_empty() && self.held.is_empty()
    }

    fn balance(&mut self, after: &mut After<K>) {
        self.waiters.balance(self.ready.len(), self.timers.next(), &mut after.wake);
        if self.is_drained() && keep("workqueue: the end of the last work releases a drain") {
            self.waiters.release_drainers(&mut after.wake);
        }
    }

    /// Refuses keys from now on; delays still running are dropped and counted.
    fn close(&mut self, after: &mut After<K>) {
        if self.down {
            return;
        }
        self.down = true;
        for id in self.timers.take_all() {
            if let Some((key, _)) = self.slots.get(id).later.take() {
                after.discard(key);
                self.delays_dropped += 1;
            }
            self.tidy(id, after);
        }
        if keep("workqueue: closing releases who waits") {
            self.waiters.release(&mut after.wake);
        }
    }
}

impl<K: Hash + Eq + Clone + Send + 'static> WorkQueue<K> {
    pub(super) fn with_parts(name: String, clock: Clock, limiter: Box<dyn Limiter<K>>) -> Self {
        Self(Arc::new(Shared {
            name,
            clock,
            limiter,
            hasher: DefaultHashBuilder::default(),
            state: Mutex::new(State::new()),
            key_panics: AtomicU64::new(0),
        }))
    }

    /// The name given to the builder.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The clock of delays and deadlines.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Queues a key. A key that is queued already stays where it is; one that is held is queued when its [`Work`] is
    /// done. A delay of the same key goes on running. client-go: `Add`.
    ///
    /// False when the queue is shut down, or when `Hash`, `Clone` or `Eq` of the key panicked; nothing is queued then.
    /// *Blocks*: briefly.
    pub fn add(&self, key: K) -> bool {
        self.0.accept(key, None)
    }

    /// [`add`](Self::add) for each key, in order; returns how many were accepted.
    pub fn add_all(&self, keys: impl IntoIterator<Item = K>) -> usize {
        keys.into_iter().map(|key| usize::from(self.add(key))).sum()
    }

    /// Takes the next key, waiting for one. `None` when the queue is shut down and no key will come any more: workers
    /// call this until then. client-go: `Get`.
    ///
    /// Keys that were accepted before the shut-down are still handed out, also those that were held then and are owed
    /// another round: as long as one of them is held by somebody else, this waits. `None` is final, except that a thread
    /// does not wait for keys that it took itself, and may ask again once it is done with them.
    ///
    /// *Blocks*: until there is a key, or the shut-down.
    pub fn get(&self) -> Option<Work<K>> {
        self.wait(Deadline::never()).ok()
    }

    /// As [`get`](Self::get), without waiting.
    ///
    /// # Errors
    /// [`TryGetError::Empty`] when there is no key now, [`TryGetError::ShutDown`] when none will come any more.
    pub fn try_get(&self) -> Result<Work<K>, TryGetError> {
        let me = this_thread();
        let taken = self.0.section(|s, _| match s.take(me) {
            Some(taken) => Ok(taken),
            None if s.is_over(me) => Err(TryGetError::ShutDown),
            None => Err(TryGetError::Empty),
        });
        taken.map(|(id, key)| Work::new(self.0.clone(), id, key))
    }

    /// As [`get`](Self::get), until a deadline.
    ///
    /// # Errors
    /// As [`try_get`](Self::try_get), when the deadline has passed.
    pub fn get_deadline(&self, deadline: impl Into<Deadline>) -> Result<Work<K>, TryGetError> {
        self.wait(deadline.into())
    }

    fn wait(&self, deadline: Deadline) -> Result<Work<K>, TryGetError> {
        match self.try_get() {
            Err(TryGetError::Empty) => {}
            found => return found,
        }
        let shared = &self.0;
        let (me, at) = (this_thread(), deadline.on(&shared.clock));
        let _door = Door::enter(&shared.clock);
        let mut ticket = None;
        let taken = loop {
            let step = shared.section(|s, _| {
                if let Some(ticket) = ticket.take() {
                    s.waiters.back(ticket);
                }
                // The key before the clock: this thread may have been woken for that key.
                if let Some(taken) = s.take(me) {
                    return Ok(Ok(taken));
                }
                if s.is_over(me) {
                    return Ok(Err(TryGetError::ShutDown));
                }
                if at.is_some_and(|at| shared.clock.now() >= at) {
                    return Ok(Err(TryGetError::Empty));
                }
                Err(s.waiters.enlist(at, s.timers.next()))
            });
            match step {
                Ok(taken) => break taken,
                Err((mine, until)) => {
                    ticket = Some(mine);
                    park(&shared.clock, until);
                }
            }
        };
        taken.map(|(id, key)| Work::new(shared.clone(), id, key))
    }

    /// How many keys are queued: not those held, owed another round while held, or delayed. client-go: `Len`.
    /// *Blocks*: briefly.
    pub fn len(&self) -> usize {
        self.0.section(|s, _| s.ready.len())
    }

    /// Whether no key is queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Refuses keys from now on. Delays are dropped and counted; keys already queued, and held ones that are owed another
    /// round, are still handed out; then [`get`](Self::get) returns `None`. A running [`drain`](Self::drain) ends as
    /// cancelled. May be called any number of times, from anywhere. *Blocks*: briefly. client-go: `ShutDown`.
    pub fn shutdown(&self) -> ShutdownReport {
        let report = self.0.section(|s, after| {
            s.close(after);
            s.shutdowns += 1;
            s.waiters.release_drainers(&mut after.wake);
            keep("workqueue: a shutdown reports in its own step").then(|| self.0.report(s))
        });
        report.unwrap_or_else(|| self.0.section(|s, _| self.0.report(s)))
    }

    /// Whether keys are refused, after [`shutdown`](Self::shutdown) or [`drain`](Self::drain). client-go:
    /// `ShuttingDown`.
    pub fn is_shut_down(&self) -> bool {
        self.0.is_down()
    }

    /// Refuses keys from now on and waits until every accepted one has been worked off: queued, held, and owed another
    /// round. Delays are dropped and counted. Workers must go on calling [`get`](Self::get). client-go:
    /// `ShutDownWithDrain`, which waits for the held ones only and can leave queued ones behind.
    ///
    /// Several threads may drain; all return when it is done.
    ///
    /// # Errors
    /// `WouldDeadlock`, with nothing changed, from inside a callback, or when a [`Work`] is outstanding that this thread
    /// took. `Timeout` at the deadline, which says how many keys are queued and which threads took those that are held;
    /// the queue stays shut down. `Cancelled` when somebody calls [`shutdown`](Self::shutdown) meanwhile.
    pub fn drain(&self, deadline: impl Into<Deadline>) -> Result<DrainReport, WaitError> {
        let shared = &self.0;
        let (me, at) = (this_thread(), deadline.into().on(&shared.clock));
        if call_out::inside().is_some() {
            return Err(WaitError::WouldDeadlock);
        }
        let start = shared.section(|s, after| {
            let slots = &mut s.slots;
            let mut holders = s.held.iter().filter_map(|&id| slots.get(id).held.as_ref().map(|h| h.by));
            if holders.any(|by| by == me) {
                return None;
            }
            s.close(after);
            Some((s.shutdowns, s.finished))
        });
        let Some((shutdowns, finished)) = start else { return Err(WaitError::WouldDeadlock) };

        let _door = Door::enter(&shared.clock);
        let mut ticket = None;
        loop {
            let step = shared.section(|s, _| {
                if let Some(ticket) = ticket.take() {
                    s.waiters.drainer_back(ticket);
                }
                if s.is_drained() {
                    return Some(Ok(DrainReport {
                        finished: s.finished - finished,
                        delays_dropped: s.delays_dropped,
                        refused: s.refused,
                    }));
                }
                if s.shutdowns != shutdowns {
                    return Some(Err(WaitError::Cancelled));
                }
                if at.is_some_and(|at| shared.clock.now() >= at) {
                    return Some(Err(WaitError::Timeout { missing: shared.outstanding(s), last_error: None }));
                }
                ticket = Some(s.waiters.enlist_drainer());
                None
            });
            if let Some(end) = step {
                return end;
            }
            park(&shared.clock, at);
        }
    }

    /// Keys that the queue still refers to, for tests of what it keeps.
    #[cfg(test)]
    pub(super) fn known_keys(&self) -> usize {
        self.0.section(|s, _| s.slots.len())
    }
}

impl<K> Shared<K> {
    /// What a drain is waiting for, in words.
    fn outstanding(&self, s: &mut State<K>) -> Vec<String> {
        let mut missing = Vec::new();
        if !s.ready.is_empty() {
            missing.push(format!("{}: {} queued", self.name, s.ready.len()));
        }
        for &id in &s.held {
            if let Some(held) = &s.slots.get(id).held {
                let by = held.by.name().unwrap_or_else(|| "that has ended".to_owned());
                missing.push(format!("{}: a key taken by thread {by}", self.name));
            }
        }
        missing
    }
}

impl<K: Hash + Eq + Clone + Send + 'static> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Hash + Eq + Clone + Send + 'static> fmt::Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (queued, held, down) = {
            let s = self.0.state.lock();
            (s.ready.len(), s.held.len(), s.down)
        };
        f.debug_struct("WorkQueue")
            .field("name", &self.0.name)
            .field("queued", &queued)
            .field("held", &held)
            .field("shut_down", &down)
            .finish_non_exhaustive()
    }
}

/// Why there was no key to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TryGetError {
    /// None is queued now; ask again.
    #[error("no key is queued")]
    Empty,
    /// The queue is shut down and every accepted key has been handed out: the worker can end.
    #[error("the queue is shut down")]
    ShutDown,
}

/// How a queue stood when it was shut down; see [`WorkQueue::shutdown`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Keys that are queued and will still be handed out.
    pub queued: usize,
    /// Keys that workers hold.
    pub held: usize,
    /// Delays that were running when the queue was closed, and will not come to anything.
    pub delays_dropped: u64,
    /// Adds, retries and delays refused since the queue was closed.
    pub refused: u64,
    /// Panics of `Hash`, `Eq`, `Clone` and `Drop` of keys in the queue's whole life.
    pub key_panics: u64,
}

/// What a drain did; see [`WorkQueue::drain`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DrainReport {
    /// Works done while it waited.
    pub finished: u64,
    /// Delays that were running when the queue was closed, and will not come to anything.
    pub delays_dropped: u64,
    /// Adds, retries and delays refused since the queue was closed.
    pub refused: u64,
}
