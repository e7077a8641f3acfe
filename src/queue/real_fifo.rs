//! [`RealFifo`]: the batch queue in global order.

use super::{Taken, Uncommitted};
use crate::{
    flow::{Delta, DeltaSink, SinkError},
    sync::{
        Clock, Deadline, Instant, Monitor, MutexGuard, Synced, WaitError,
        call_out::{self, Foreign, Site},
        keep,
    },
};
use std::{collections::VecDeque, fmt};

/// The queue is closed: nothing is handed out any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue is closed")]
pub struct Closed;

/// A queue of deltas that keeps their order across all keys. Its contract is that of the room.
///
/// client-go: `RealFIFO` with `AtomicEvents` and `UnlockWhileProcessing`, without its threshold at which producers
/// begin to wait.
pub struct RealFifo<T> {
    name: String,
    clock: Clock,
    state: Monitor<State<T>>,
    on_uncommitted: Option<Foreign<OnUncommitted>>,
}

type OnUncommitted = Box<dyn Fn(&Uncommitted) + Send + Sync>;

struct State<T> {
    deltas: VecDeque<Delta<T>>,
    /// Becomes `deltas` when those are taken all at once. Empty, but not without capacity.
    spare: VecDeque<Delta<T>>,
    out: Out,
    closed: bool,
    /// The taker is to look at something else.
    nudged: bool,
    synced: bool,
    uncommitted: u64,
}

/// What is taken and neither committed nor dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Out {
    Nothing,
    Deltas,
    /// Deltas whose commit makes the queue synced.
    Initial,
}

/// Buffers larger than this many deltas are not kept.
const KEPT_CAPACITY: usize = 1024;

impl<T> RealFifo<T> {
    /// An empty queue. `name` is what a wait that timed out calls it; `clock` is what deadlines are measured on.
    pub fn new(name: impl Into<String>, clock: &Clock) -> Self {
        let state = State {
            deltas: VecDeque::new(),
            spare: VecDeque::new(),
            out: Out::Nothing,
            closed: false,
            nudged: false,
            synced: false,
            uncommitted: 0,
        };
        Self { name: name.into(), clock: clock.clone(), state: Monitor::new(state), on_uncommitted: None }
    }

    /// Calls `f`, contained, on the thread that drops a [`Taken`] without committing it, after the fact.
    #[must_use]
    pub fn on_uncommitted(mut self, f: impl Fn(&Uncommitted) + Send + Sync + 'static) -> Self {
        self.on_uncommitted = Some(Foreign::new(Box::new(f)));
        self
    }

    /// Takes up to `max` deltas (at least one), from the head, in order.
    ///
    /// *Blocks*: while the queue is empty, and while another [`Taken`] is out; a thread that has one itself must end
    /// it first. Several takers are served one at a time, in no order. *Cancel*: [`RealFifo::close`].
    ///
    /// # Errors
    /// [`Closed`], at once, also when deltas were left.
    pub fn take(&self, max: usize) -> Result<Taken<'_, T>, Closed> {
        loop {
            // Without a deadline the wait ends with deltas or closed.
            if let Some(taken) = self.wait_take(max, None)? {
                return Ok(taken);
            }
        }
    }

    /// [`RealFifo::take`] that gives up at `deadline` with `None`.
    ///
    /// # Errors
    /// As [`RealFifo::take`].
    pub fn take_deadline(&self, max: usize, deadline: impl Into<Deadline>) -> Result<Option<Taken<'_, T>>, Closed> {
        self.wait_take(max, deadline.into().on(&self.clock))
    }

    /// [`RealFifo::take_deadline`] that ends with `None` as well when somebody calls [`RealFifo::nudge`], before or while
    /// it waits.
    pub(crate) fn take_or_nudge(&self, max: usize, deadline: Deadline) -> Result<Option<Taken<'_, T>>, Closed> {
        let (deadline, wait) = (deadline.on(&self.clock), |s: &mut State<T>| s.must_wait() && !s.nudged);
        let (mut state, _) = self.state.wait_while(self.state.lock(), &self.clock, deadline, wait);
        state.nudged = false;
        if state.must_wait() { Ok(None) } else { self.take_now(state, max).map(Some) }
    }

    /// Ends a [`RealFifo::take_or_nudge`]. *Blocks*: briefly.
    pub(crate) fn nudge(&self) {
        self.state.lock().nudged = true;
        self.state.notify_all();
    }

    /// [`RealFifo::take`] that does not wait: `None` when the queue is empty or another [`Taken`] is out.
    ///
    /// *Blocks*: briefly.
    ///
    /// # Errors
    /// As [`RealFifo::take`].
    pub fn try_take(&self, max: usize) -> Result<Option<Taken<'_, T>>, Closed> {
        let state = self.state.lock();
        if state.must_wait() { Ok(None) } else { self.take_now(state, max).map(Some) }
    }

    fn wait_take(&self, max: usize, deadline: Option<Instant>) -> Result<Option<Taken<'_, T>>, Closed> {
        let (state, ready) = self.state.wait_while(self.state.lock(), &self.clock, deadline, |s| s.must_wait());
        if ready { self.take_now(state, max).map(Some) } else { Ok(None) }
    }

    fn take_now(&self, mut state: MutexGuard<'_, State<T>>, max: usize) -> Result<Taken<'_, T>, Closed> {
        if state.closed {
            return Err(Closed);
        }
        let mut taken = std::mem::take(&mut state.spare);
        if state.deltas.len() <= max {
            std::mem::swap(&mut taken, &mut state.deltas);
        } else {
            taken.extend(state.deltas.drain(..max.max(1)));
        }
        let initial = !state.synced;
        let has_whole = initial && taken.iter().any(|d| matches!(d, Delta::ReplacedAll { .. }));
        state.out = if has_whole { Out::Initial } else { Out::Deltas };
        state.synced |= has_whole && !keep("queue: synced is what was committed");
        drop(state);
        Ok(Taken::new(self, taken, initial))
    }

    pub(super) fn name_of(&self) -> String {
        self.name.clone()
    }

    /// Ends the one `Taken` that is out.
    pub(super) fn end(&self, mut buffer: VecDeque<Delta<T>>, committed: Result<(), Uncommitted>) {
        // What the consumer left in it is dropped here, outside the lock.
        buffer.clear();
        let surplus = {
            let mut state = self.state.lock();
            if committed.is_ok() || !keep("queue: what is dropped makes nothing synced") {
                state.synced |= state.out == Out::Initial;
            } else {
                state.uncommitted += 1;
            }
            state.out = Out::Nothing;
            if buffer.capacity() <= KEPT_CAPACITY { std::mem::replace(&mut state.spare, buffer) } else { buffer }
        };
        drop(surplus);
        if keep("queue: the end of what was taken wakes") {
            self.state.notify_all();
        }
        if let (Err(report), Some(f)) = (committed, &self.on_uncommitted) {
            call_out::contain(Site::Hook, || f(&report));
        }
    }

    /// How many deltas wait to be taken; a whole state counts as one. *Blocks*: briefly.
    pub fn len(&self) -> usize {
        self.state.lock().deltas.len()
    }

    /// Whether none waits. *Blocks*: briefly.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many [`Taken`]s were dropped without commit. *Blocks*: briefly.
    pub fn uncommitted(&self) -> u64 {
        self.state.lock().uncommitted
    }

    /// Closes the queue for both sides and wakes everybody who waits. Returns how many deltas were left and dropped;
    /// closing again does nothing. *Blocks*: briefly.
    pub fn close(&self) -> usize {
        let left = {
            let mut state = self.state.lock();
            state.closed = true;
            std::mem::take(&mut state.deltas)
        };
        if keep("queue: closing wakes") {
            self.state.notify_all();
        }
        left.len()
    }

    /// Whether it was closed. *Blocks*: briefly.
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        let state = self.state.lock();
        state.deltas.capacity() + state.spare.capacity()
    }
}

impl<T> State<T> {
    fn must_wait(&self) -> bool {
        let one_at_a_time = keep("queue: one has something taken at a time");
        !self.closed && (self.deltas.is_empty() || (self.out != Out::Nothing && one_at_a_time))
    }
}

impl<T: Send + Sync> DeltaSink<T> for RealFifo<T> {
    /// Appends the whole batch, in one step. *Blocks*: briefly.
    fn apply(&self, batch: &mut Vec<Delta<T>>) -> Result<(), SinkError> {
        if batch.is_empty() {
            return Ok(());
        }
        if batch.len() > 1 && !keep("queue: a batch goes in at once") {
            let mut rest = batch.split_off(1);
            return self.apply(batch).and_then(|()| self.apply(&mut rest));
        }
        if !keep("queue: a batch is in before the wake") {
            self.state.notify_all();
        }
        let was_empty = {
            let mut state = self.state.lock();
            if state.closed {
                return Err(SinkError::Closed);
            }
            let was_empty = state.deltas.is_empty();
            state.deltas.extend(batch.drain(..));
            was_empty
        };
        // With deltas before, either nobody waits or the end of the `Taken` that is out wakes them.
        if was_empty && keep("queue: a batch is in before the wake") && keep("queue: a batch wakes who waits for the first") {
            self.state.notify_all();
        }
        Ok(())
    }
}

impl<T: Send + Sync> Synced for RealFifo<T> {
    fn name(&self) -> &str {
        &self.name
    }

    /// Whether a whole state was committed. *Blocks*: briefly.
    fn has_synced(&self) -> bool {
        self.state.lock().synced
    }

    /// Not from the thread that has the [`Taken`]: it would wait for itself until the deadline.
    fn wait_synced(&self, deadline: Deadline) -> Result<(), WaitError> {
        let deadline = deadline.on(&self.clock);
        let may_come = |s: &State<T>| s.out == Out::Initial && keep("queue: what is out may make it synced");
        let pending = |s: &mut State<T>| !s.synced && (!s.closed || may_come(s));
        let state = self.state.lock();
        if state.synced {
            return Ok(());
        }
        if !matches!(call_out::inside(), None | Some(Site::Handler | Site::Reconcile)) {
            return Err(WaitError::WouldDeadlock);
        }
        let (state, ended) = self.state.wait_while(state, &self.clock, deadline, pending);
        match (state.synced, ended) {
            (true, _) => Ok(()),
            (false, true) => Err(WaitError::Stopped),
            (false, false) => Err(WaitError::Timeout { missing: vec![self.name.clone()], last_error: None }),
        }
    }
}

impl<T> fmt::Debug for RealFifo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("RealFifo")
            .field("name", &self.name)
            .field("len", &state.deltas.len())
            .field("closed", &state.closed)
            .field("synced", &state.synced)
            .finish_non_exhaustive()
    }
}
