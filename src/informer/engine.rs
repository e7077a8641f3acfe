//! The engine: applies deltas to the store, publishes, fans out. It is a sink, so the reflector can call it directly
//! (merged) or a delta queue can stand between (decoupled).

use crate::{
    flow::{Delta, DeltaSink, KeyRef, Object, ObjectKey, Opaque, SinkError},
    processor::{Processor, Report},
    reflector::ReflectorEvent,
    store::{AnyReader, Gauge, IndexError, IndexSpec, Publication, Waits, Writer},
    sync::{
        Arc, Deadline, Monitor, Once, Stop, Turn, Wake,
        atomic::{AtomicBool, AtomicU64, Ordering},
        call_out::{Site, contain},
        keep,
    },
};
use std::{collections::VecDeque, time::Duration};

/// What an informer tells its `observe` hook. Every failure is among it.
#[derive(Debug)]
#[non_exhaustive]
pub enum InformerEvent<'a> {
    /// What the reflector does and meets.
    Reflector(&'a ReflectorEvent),
    /// A handler panicked; the panic was contained.
    HandlerPanicked {
        /// The handler's name.
        handler: &'a str,
        /// The panic's message.
        message: &'a str,
    },
    /// An object was refused by the store; its old state, if any, stays.
    Refused {
        /// Which object.
        key: &'a ObjectKey,
        /// Why.
        why: &'a str,
    },
    /// The source told of the deletion of objects that were not there; nobody was told.
    UnknownDeletes {
        /// How many, in one batch.
        count: usize,
    },
}

pub(super) type Hook = Arc<dyn Fn(&InformerEvent<'_>) + Send + Sync>;

/// The user's hook and the counters beside it.
pub(super) struct Observer {
    hook: Option<Hook>,
    pub(super) refused: AtomicU64,
    pub(super) unknown_deletes: AtomicU64,
    pub(super) handler_panics: AtomicU64,
    /// Set when a handler with [`crate::processor::PanicPolicy::Abort`] panicked.
    aborted: Once<(String, String)>,
    /// The informer's own stop.
    stop: Stop,
}

impl Observer {
    pub(super) fn new(hook: Option<Hook>, stop: Stop) -> Self {
        let zero = || AtomicU64::new(0);
        Self { hook, refused: zero(), unknown_deletes: zero(), handler_panics: zero(), aborted: Once::new(), stop }
    }

    pub(super) fn tell(&self, event: &InformerEvent<'_>) {
        if let Some(hook) = &self.hook {
            contain(Site::Hook, || hook(event));
        }
    }

    /// The handler that asked for the end, and why.
    pub(super) fn aborted(&self) -> Option<&(String, String)> {
        self.aborted.get()
    }

    fn published(&self, p: &Publication) {
        for refusal in &p.refused {
            self.refused.fetch_add(1, Ordering::Relaxed);
            self.tell(&InformerEvent::Refused { key: &refusal.key, why: &refusal.to_string() });
        }
        if p.unknown_deletes > 0 {
            self.unknown_deletes.fetch_add(p.unknown_deletes as u64, Ordering::Relaxed);
            self.tell(&InformerEvent::UnknownDeletes { count: p.unknown_deletes });
        }
    }
}

impl Report for Observer {
    fn handler_panicked(&self, handler: &str, message: &str) {
        self.handler_panics.fetch_add(1, Ordering::Relaxed);
        self.tell(&InformerEvent::HandlerPanicked { handler, message });
    }

    fn abort(&self, handler: &str, message: &str) {
        self.aborted.set((handler.to_owned(), message.to_owned())).ok();
        self.stop.stop();
    }
}

/// Called by one thread at a time: the reflector's when merged, the processor's when decoupled.
pub(super) struct StoreEngine {
    /// The writer, and room for a batch, kept from one to the next.
    turn: Turn<(Writer, VecDeque<Delta<Opaque>>)>,
    reader: AnyReader,
    processor: Arc<Processor>,
    observer: Arc<Observer>,
    /// Those who wait for publications.
    pub(super) waits: Arc<Waits>,
    pub(super) first: Monitor<FirstState>,
    /// There may be something of older versions to free now.
    owes: AtomicBool,
    /// There may be later: somebody is reading one.
    owes_later: AtomicBool,
}

/// Things of older versions that are freed between two looks at what came.
const SLICE: usize = 128;
/// When to look again at a version that somebody is in the middle of reading.
const LATER: Duration = Duration::from_millis(100);

/// The first whole state. One monitor holds all that a wait for it depends on, or a wake-up could be missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstState {
    Awaited,
    /// Published, and handed to every listener's ring.
    Handed,
    /// The informer ended before.
    Never,
}

impl StoreEngine {
    pub(super) fn new(writer: Writer, processor: Arc<Processor>, observer: Arc<Observer>, waits: Waits) -> Self {
        let (reader, waits) = (writer.reader(), Arc::new(waits));
        let (turn, first) = (Turn::new((writer, VecDeque::new())), Monitor::new(FirstState::Awaited));
        let (owes, owes_later) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { turn, reader, processor, observer, waits, first, owes, owes_later }
    }
}

impl DeltaSink<Opaque> for StoreEngine {
    fn apply(&self, batch: &mut Vec<Delta<Opaque>>) -> Result<(), SinkError> {
        let mut turn = self.turn.take();
        let (writer, deltas) = &mut *turn;
        deltas.extend(batch.drain(..));
        self.steps(writer, deltas);
        Ok(())
    }

    fn listens(&self, wake: &Wake) {
        let wake = wake.clone();
        self.on_garbage(move || wake.nudge());
    }

    fn due(&self) -> Deadline {
        match (self.owes.load(Ordering::Relaxed), self.owes_later.load(Ordering::Relaxed)) {
            (true, _) => Duration::ZERO.into(),
            (false, true) => LATER.into(),
            (false, false) => Deadline::never(),
        }
    }

    fn woken(&self) {
        let writer = &mut self.turn.take().0;
        self.owes.store(writer.reclaim(SLICE), Ordering::Relaxed);
        self.owes_later.store(writer.gauge().standing > 0, Ordering::Relaxed);
    }

    fn known(&self, key: KeyRef<'_>) -> Option<Object<Opaque>> {
        self.reader.known(key)
    }
}

impl StoreEngine {
    /// Adds an index, in the writer's turn.
    pub(super) fn add_index(&self, spec: IndexSpec) -> Result<(), IndexError> {
        let mut turn = self.turn.take();
        let publication = turn.0.add_index(spec)?;
        // Nothing changed, but somebody may be waiting for the index.
        self.waits.publish(|| Some(()));
        // And whoever compares with the newest publication has to come to it. In the turn, since the rings have one
        // producer at a time.
        self.processor.distribute(publication);
        Ok(())
    }

    /// `f` is called when there is something to free while nothing comes; [`DeltaSink::woken`] frees it.
    pub(super) fn on_garbage(&self, f: impl Fn() + Send + Sync + 'static) {
        self.turn.take().0.on_garbage(f);
    }

    /// Applies what a queue handed out.
    pub(super) fn take(&self, deltas: &mut VecDeque<Delta<Opaque>>) {
        self.steps(&mut self.turn.take().0, deltas);
    }

    /// Store first, then listeners: a handler that is told of an event finds its effect in the store.
    fn steps(&self, writer: &mut Writer, deltas: &mut VecDeque<Delta<Opaque>>) {
        loop {
            if let Some(Delta::ReplacedAll { new_era: true, .. }) = deltas.front() {
                self.waits.era_begins(self.reader.snapshot().seq() + 1);
            }
            let Some(publication) = self.waits.publish(|| writer.apply(deltas)) else { break };
            self.observer.published(&publication);
            let synced = publication.initial_done && !publication.was_done;
            self.processor.distribute(publication);
            if synced && keep("informer: the first state is told of") {
                *self.first.lock() = FirstState::Handed;
                self.first.notify_all();
            }
        }
        self.owes.store(writer.gauge() != Gauge::default(), Ordering::Relaxed);
    }

    /// Nothing will be applied any more.
    pub(super) fn ended(&self) {
        {
            let mut first = self.first.lock();
            if *first == FirstState::Awaited {
                *first = FirstState::Never;
            }
        }
        self.first.notify_all();
    }
}
