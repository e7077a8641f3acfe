//! One listener: a ring, a thread, a handler, and the snapshot it is consistent with.
//!
//! # Position
//! A listener has one position: the number of the publication it has been told of in full. It begins with the
//! snapshot it joined on, which it walks as its initial state. A ring entry of a publication not above the position is
//! dropped: its effect was in that snapshot.
//!
//! # Leaving
//! `leave` is set once, by whoever removes the registration or ends the processor; `running` is the listener's own.
//! Per batch the listener stores `running`, fences, and looks at `leave` before every event. [`Listener::leave`]
//! stores `leave`, fences, and looks at `running`: when that is false, no callback runs and none will, and what the
//! callbacks did is visible. The two fences exclude that each misses the other's store; `leave` itself carries nothing.

use super::{
    Listeners, Report,
    handler::{AnyHandler, PanicPolicy},
    take_off,
};
use crate::{
    flow::{Cause, Event, Opaque},
    ring::{Consumer, Producer},
    store::{AnySnapshot, Changes, Held, Publication},
    sync::{
        Arc, Clock, Deadline, Monitor, WaitError,
        atomic::{AtomicBool, AtomicU64, Ordering, fence},
        call_out::{self, Site},
        keep, order, thread_local,
    },
};
use std::cell::Cell;

/// No publication has this number.
const NOTHING: u64 = u64::MAX;

/// Events of a lazily walked difference that are handed over at once.
const CHUNK: usize = if cfg!(test) { 3 } else { 256 };

thread_local! {
    /// The address of the listener whose thread this is; null elsewhere. (Numbers are unique in one processor only.)
    static ME: Cell<*const Listener> = const { Cell::new(std::ptr::null()) };
}

/// Whether a removal found the handler at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// No callback runs and none will start; what the callbacks did is visible to the caller.
    Quiet,
    /// The listener is inside a batch: a callback that was already decided may still run or even begin. No further one
    /// starts once the listener has seen the removal, which it looks for before every event.
    Running,
}

/// What the engine, the registration and the listener's thread share.
pub(crate) struct Listener {
    pub(super) id: u64,
    name: String,
    ring: Producer<Held<Publication>>,
    leave: AtomicBool,
    running: AtomicBool,
    /// The publication up to which the handler has returned from everything; [`NOTHING`] before the first state.
    told: AtomicU64,
    progress: Monitor<Progress>,
    delivered: AtomicU64,
    panics: AtomicU64,
    clock: Clock,
}

#[derive(Default)]
struct Progress {
    synced: bool,
    /// Why it leaves.
    end: Option<End>,
    /// Its thread calls nothing any more.
    ended: bool,
    last_panic: Option<String>,
}

/// Why a listener leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Removed,
    Stopped,
}

/// What only the listener's thread has.
pub(super) struct Run {
    pub(super) listener: Arc<Listener>,
    pub(super) ring: Consumer<Held<Publication>>,
    pub(super) handler: Box<dyn AnyHandler>,
    pub(super) policy: PanicPolicy,
    /// The snapshot the listener joined on.
    pub(super) start: AnySnapshot,
    pub(super) report: Arc<dyn Report>,
    pub(super) list: Arc<Monitor<Listeners>>,
}

impl Listener {
    pub(super) fn new(id: u64, name: String, ring: Producer<Held<Publication>>, clock: &Clock) -> Self {
        Self {
            id,
            name,
            ring,
            leave: AtomicBool::new(false),
            running: AtomicBool::new(false),
            told: AtomicU64::new(NOTHING),
            progress: Monitor::default(),
            delivered: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            clock: clock.clone(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the handler has returned from everything up to a publication, or will be told of nothing more. What it did
    /// is visible then.
    pub(super) fn is_idle(&self, published: u64) -> bool {
        let told = self.told.load(order("processor: what was told is looked at", Ordering::Acquire));
        (told != NOTHING && told >= published) || self.progress.lock().ended
    }

    /// Publications that the handler has not been told of in full.
    pub(crate) fn backlog(&self) -> usize {
        self.ring.len()
    }

    /// Events whose callback has ended.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    /// Callbacks that panicked.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    pub(crate) fn has_synced(&self) -> bool {
        self.progress.lock().synced
    }

    /// Engine: appends a publication; does not wake.
    pub(super) fn push(&self, publication: Held<Publication>) {
        // A closed ring belongs to a listener that leaves; it is to be told of nothing more.
        let _refused = self.ring.push(publication);
    }

    /// Engine: wakes the listener if it sleeps.
    pub(super) fn wake(&self) {
        self.ring.wake();
    }

    /// Makes the listener leave; legal anywhere. *Blocks*: briefly.
    pub(super) fn leave(&self, why: End) -> Removed {
        self.leave.store(true, Ordering::Relaxed);
        if keep("processor: the remover's fence") {
            fence(Ordering::SeqCst);
        }
        let running = self.running.load(order("processor: whether a batch runs is looked at", Ordering::Acquire));
        self.progress.lock().end.get_or_insert(why);
        self.ring.close();
        self.progress.notify_all();
        if running { Removed::Running } else { Removed::Quiet }
    }

    /// Waits until the first state has been handed over in full.
    pub(crate) fn wait_synced(&self, deadline: Deadline) -> Result<(), WaitError> {
        match call_out::inside() {
            None | Some(Site::Reconcile) => {}
            Some(Site::Handler) if !std::ptr::eq(ME.with(Cell::get), self) => {}
            Some(_) => return Err(WaitError::WouldDeadlock),
        }
        let at = deadline.on(&self.clock);
        let (p, reached) = self.progress.wait_while(self.progress.lock(), &self.clock, at, |p| !p.synced && p.end.is_none());
        if p.synced {
            return Ok(());
        }
        match p.end {
            Some(End::Removed) => Err(WaitError::Removed),
            Some(End::Stopped) => Err(WaitError::Stopped),
            None => {
                debug_assert!(!reached);
                Err(WaitError::Timeout { missing: vec![self.name.clone()], last_error: p.last_panic.clone() })
            }
        }
    }

    /// Waits until the listener's thread calls nothing any more. Whoever calls it made the listener leave before.
    pub(crate) fn wait_ended(&self, deadline: Deadline) -> Result<(), WaitError> {
        if call_out::inside().is_some() {
            return Err(WaitError::WouldDeadlock);
        }
        let at = deadline.on(&self.clock);
        let (p, ended) = self.progress.wait_while(self.progress.lock(), &self.clock, at, |p| !p.ended);
        if ended {
            Ok(())
        } else {
            Err(WaitError::Timeout { missing: vec![self.name.clone()], last_error: p.last_panic.clone() })
        }
    }

    fn pass_sync_marker(&self) {
        let first = !std::mem::replace(&mut self.progress.lock().synced, true);
        if first {
            self.progress.notify_all();
        }
    }
}

/// Marks the end, also when the thread unwinds: everything of the user's is contained, so that is a defect of the
/// crate, and the informer must not go on without a listener as if nothing had happened.
struct Ended {
    listener: Arc<Listener>,
    report: Arc<dyn Report>,
    in_order: bool,
}

impl Drop for Ended {
    fn drop(&mut self) {
        {
            let mut p = self.listener.progress.lock();
            p.end.get_or_insert(End::Stopped);
            p.ended = true;
        }
        self.listener.progress.notify_all();
        if !self.in_order {
            self.report.abort(&self.listener.name, "the listener's thread panicked outside of the handler");
        }
    }
}

impl Run {
    /// The listener's thread.
    pub(super) fn run(mut self) {
        ME.with(|me| me.set(&raw const *self.listener));
        let mut ended = Ended { listener: self.listener.clone(), report: self.report.clone(), in_order: false };
        self.follow();
        // One that leaves by itself, because of a panic, is still on the list.
        take_off(&self.list, &self.listener);
        let Self { handler, ring, start, .. } = self;
        drop((ring, start, handler));
        ended.in_order = true;
    }

    fn follow(&mut self) {
        let nothing = AnySnapshot::empty();
        let start = std::mem::replace(&mut self.start, nothing.clone());
        let mut scratch = Vec::new();
        if start.initial_done() && !keep("processor: the marker stands behind the first state") {
            self.listener.pass_sync_marker();
        }
        if !self.walk(&nothing, &start, Cause::Initial, &mut scratch) {
            return;
        }
        if start.initial_done() && keep("processor: the marker of the snapshot joined on is passed") {
            self.listener.pass_sync_marker();
        }
        let position = start.seq();
        self.listener.told.store(position, order("processor: the first state is told", Ordering::Release));
        // The snapshot joined on is not needed any more; what it alone holds is freed now.
        drop((start, nothing));
        while let Some(publication) = self.ring.pop() {
            if publication.seq <= position && keep("processor: what the snapshot joined on has is dropped") {
                continue;
            }
            let go_on = match &publication.changes {
                Changes::Each(events) => self.hand_over(events),
                Changes::All { old, new } => {
                    let cause = if publication.was_done { Cause::Relist } else { Cause::Initial };
                    self.walk(old, new, cause, &mut scratch)
                }
            };
            if !go_on {
                return;
            }
            if publication.initial_done && keep("processor: the marker of a publication is passed") {
                self.listener.pass_sync_marker();
            }
            self.listener.told.store(publication.seq, order("processor: a publication is told", Ordering::Release));
        }
    }

    /// Hands over the difference of two snapshots, in chunks; false when the listener leaves.
    fn walk(&mut self, old: &AnySnapshot, new: &AnySnapshot, cause: Cause, scratch: &mut Vec<Event<Opaque>>) -> bool {
        let mut changes = old.diff(new).map(|change| Event { cause, change });
        loop {
            scratch.extend(changes.by_ref().take(CHUNK));
            if scratch.is_empty() {
                return !self.listener.leave.load(Ordering::Relaxed);
            }
            let go_on = self.hand_over(scratch);
            scratch.clear();
            if !go_on {
                return false;
            }
        }
    }

    /// Hands over events until the end or until the listener leaves; false when it leaves.
    fn hand_over(&mut self, events: &[Event<Opaque>]) -> bool {
        let listener = &*self.listener;
        listener.running.store(true, Ordering::Relaxed);
        if keep("processor: the listener's fence") {
            fence(Ordering::SeqCst);
        }
        let mut at = 0;
        while at < events.len() && !listener.leave.load(Ordering::Relaxed) {
            let begun = at;
            match call_out::call(Site::Handler, || self.handler.on_batch(events, &mut at, &listener.leave)) {
                Ok(()) => {
                    listener.delivered.fetch_add((at - begun) as u64, Ordering::Relaxed);
                    // What the handler did not take it chose to skip.
                    at = events.len();
                }
                Err(panicked) => {
                    // The event that panicked is given up. A handler that panicked before it took one gives up the
                    // first, or it would be called for ever.
                    at = at.max(begun + 1);
                    listener.delivered.fetch_add((at - begun) as u64, Ordering::Relaxed);
                    listener.panics.fetch_add(1, Ordering::Relaxed);
                    listener.progress.lock().last_panic = Some(panicked.message.clone());
                    self.report.handler_panicked(&listener.name, &panicked.message);
                    match self.policy {
                        PanicPolicy::Isolate => {}
                        PanicPolicy::Remove => drop(listener.leave(End::Removed)),
                        PanicPolicy::Abort => {
                            self.report.abort(&listener.name, &panicked.message);
                            // Not when the informer gets to it: this handler is not to be called again.
                            listener.leave(End::Stopped);
                        }
                    }
                }
            }
        }
        listener.running.store(false, order("processor: a batch ends", Ordering::Release));
        !listener.leave.load(Ordering::Relaxed)
    }
}
