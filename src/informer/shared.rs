//! [`SharedInformer`]: the river, assembled.
//!
//! ```text
//! merged      source → reflector ───────────────→ engine (store, then processor) → rings → handlers
//!             one thread: the caller of `run`                                       a thread each
//!
//! decoupled   source → reflector → RealFifo ─────→ engine (store, then processor) → rings → handlers
//!             a thread             the caller of `run`                              a thread each
//! ```
//!
//! Order at the end: the reflector ends (and closes its stream), the queue is closed, the engine ends, the listeners
//! leave, every thread is joined; only then does `run` return.

use super::{
    Registration,
    builder::InformerBuilder,
    engine::{FirstState, Observer, StoreEngine},
};
use crate::{
    flow::{DeltaSink, Event, Opaque},
    processor::{AddHandlerError, Handler, HandlerOptions, Processor, erase},
    queue::{Closed, RealFifo},
    reflector::{self, Health, Reflector},
    source::ListerWatcher,
    store::{AnyReader, Index, IndexError, IndexSpec, Labels, Lister, Reason, StoreReader},
    sync::{
        Arc, Clock, Deadline, Door, JoinHandle, Monitor, Mutex, Stop, Synced, WaitError,
        atomic::Ordering,
        call_out::{self, Site},
        keep, spawn,
    },
};
use std::{fmt, hash::Hash, io};

/// Deltas that the decoupled engine takes at once.
const TAKE: usize = 256;

/// On which threads the stages run. What handlers and readers see is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Engine {
    /// One thread reads the source, writes the store and fans out.
    #[default]
    Merged,
    /// One thread reads the source, another takes from a queue, writes the store and fans out.
    Decoupled,
}

/// Where an informer is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InformerState {
    /// `run` has not been called.
    New,
    /// Inside `run`.
    Running,
    /// `run` has returned, or the informer was shut down or its last handle dropped before it was called.
    Stopped,
}

/// Why [`SharedInformer::run`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// An informer runs once, and not after it was shut down; build another.
    #[error("the informer runs, has run or was shut down already; build another one")]
    AlreadyRan,
    /// The operating system gave no thread.
    #[error("no thread for the informer")]
    Spawn(#[source] io::Error),
    /// A handler that asked for it by [`crate::processor::PanicPolicy::Abort`] panicked.
    #[error("handler {handler} panicked: {message}")]
    HandlerPanicked {
        /// The handler's name.
        handler: String,
        /// The panic's message.
        message: String,
    },
    /// Joined from inside a callback of this crate, which the informer may have to wait for.
    #[error("would deadlock: an informer must not be joined from inside a callback")]
    WouldDeadlock,
    /// A thread of the informer panicked outside of user code: a defect of this crate.
    #[error("thread {thread} panicked: {message}")]
    ThreadPanicked {
        /// The thread's name.
        thread: String,
        /// The panic's message.
        message: String,
    },
}

/// A local, indexed, live copy of the objects of one source, shared by any number of handlers and readers.
///
/// Cheap to clone; clones are handles to the same informer. *Life*: built, then [`SharedInformer::run`] exactly once,
/// until its [`Stop`] is given, the last handle is dropped, or a handler aborts it. Handlers may be added and removed at
/// any time; readers keep working after the end, on what was stored last.
///
/// *Order*: each handler is called one event at a time, in order, on a thread of its own; the store holds an event's
/// effect (or a later one) before any handler is told of it. *Panics* of user code are contained, counted and reported
/// to the `observe` hook. client-go: `SharedIndexInformer`.
pub struct SharedInformer<T> {
    handle: Arc<LastHandle>,
    labels: Arc<Labels<T>>,
}

/// Stops the informer when the last handle goes. Does not wait for `run`, since that may be the thread it happens on; an
/// informer that never ran has only sleeping listeners, which are joined unless this is one of them.
struct LastHandle(Arc<Inner>);

impl Drop for LastHandle {
    fn drop(&mut self) {
        self.0.stop.stop();
        self.0.end_before_it_ran();
    }
}

pub(super) struct Inner {
    pub(super) name: String,
    pub(super) clock: Clock,
    pub(super) reflector: Arc<Reflector<Opaque>>,
    pub(super) engine: Arc<StoreEngine>,
    /// Between the two, when decoupled.
    pub(super) queue: Option<Arc<RealFifo<Opaque>>>,
    pub(super) processor: Arc<Processor>,
    pub(super) reader: AnyReader,
    pub(super) observer: Arc<Observer>,
    pub(super) stop: Stop,
    pub(super) state: Monitor<InformerState>,
}

impl<T: Send + Sync + 'static> SharedInformer<T> {
    /// An informer of a source's objects as they are.
    pub fn builder<L: ListerWatcher<Object = T>>(source: L) -> InformerBuilder<T> {
        InformerBuilder::new(source, Ok::<_, std::convert::Infallible>)
    }

    /// An informer of what `transform` makes of a source's objects, once per received object, before they are stored.
    /// An object that it refuses keeps its old state and is reported.
    pub fn builder_with<L, E, F>(source: L, transform: F) -> InformerBuilder<T>
    where
        L: ListerWatcher,
        E: fmt::Display + 'static,
        F: Fn(L::Object) -> Result<T, E> + Send + Sync + 'static,
    {
        InformerBuilder::new(source, transform)
    }

    pub(super) fn from_inner(inner: Inner, labels: Arc<Labels<T>>) -> Self {
        let inner = Arc::new(inner);
        let weak = Arc::downgrade(&inner);
        inner.engine.waits.ask(weak);
        Self { handle: Arc::new(LastHandle(inner)), labels }
    }

    fn inner(&self) -> &Arc<Inner> {
        &self.handle.0
    }

    /// Runs the informer on this thread until `stop` is given. *Blocks*: until then, and until every thread that the
    /// informer started has ended: nothing of it is called afterwards. A callback that never returns keeps it here.
    ///
    /// # Errors
    /// [`RunError`]. It never ends silently because something panicked.
    pub fn run(&self, stop: &Stop) -> Result<(), RunError> {
        // A thread that is not ours counts as ours on a manual clock, as long as it does our work.
        let _door = Door::enter(&self.inner().clock);
        self.inner().begin()?;
        self.inner().run(stop)
    }

    /// [`SharedInformer::run`] on a thread of its own.
    ///
    /// # Errors
    /// `AlreadyRan`, or `Spawn` when there is no thread for it; the informer is stopped then.
    pub fn spawn(&self, stop: &Stop) -> Result<InformerHandle, RunError> {
        self.inner().begin()?;
        // The thread keeps no handle: dropping the last one must stop it.
        let (inner, stop) = (self.inner().clone(), stop.clone());
        let started = spawn(&self.inner().clock, "informer", move || inner.run(&stop));
        match started {
            Ok(thread) => Ok(InformerHandle { stop: self.inner().stop.clone(), thread: Mutex::new(Some(thread)) }),
            Err(e) => {
                self.inner().end();
                Err(RunError::Spawn(e))
            }
        }
    }

    /// Stops the informer and waits until `run` has returned. One that never ran is over at once, and can be run no
    /// more.
    ///
    /// # Errors
    /// `Timeout` (it is stopping all the same), `WouldDeadlock` inside a callback of this crate while the informer runs
    /// (stopping, too).
    pub fn shutdown(&self, deadline: impl Into<Deadline>) -> Result<(), WaitError> {
        let inner = self.inner();
        inner.stop.stop();
        inner.end_before_it_ran();
        if *inner.state.lock() == InformerState::Stopped {
            return Ok(());
        }
        if call_out::inside().is_some() {
            return Err(WaitError::WouldDeadlock);
        }
        let at = deadline.into().on(&inner.clock);
        let (state, stopped) = inner.state.wait_while(inner.state.lock(), &inner.clock, at, |s| *s == InformerState::Running);
        drop(state);
        if stopped {
            Ok(())
        } else {
            Err(WaitError::Timeout { missing: vec![inner.name.clone()], last_error: inner.last_error() })
        }
    }

    /// Adds a closure as a handler; see [`SharedInformer::add_handler_with`].
    ///
    /// # Errors
    /// [`AddHandlerError`].
    pub fn on(&self, f: impl FnMut(&Event<T>) + Send + 'static) -> Result<Registration<T>, AddHandlerError> {
        self.add_handler_with(f, HandlerOptions::default())
    }

    /// Adds a handler; see [`SharedInformer::add_handler_with`].
    ///
    /// # Errors
    /// [`AddHandlerError`].
    pub fn add_handler(&self, handler: impl Handler<T> + 'static) -> Result<Registration<T>, AddHandlerError> {
        self.add_handler_with(handler, HandlerOptions::default())
    }

    /// Adds a handler: it is told of everything that is stored now, as additions with cause `Initial`, then of every
    /// later change, without gap or repetition. Legal anywhere, callbacks included, before and while the informer runs.
    ///
    /// # Errors
    /// [`AddHandlerError`].
    pub fn add_handler_with(
        &self,
        handler: impl Handler<T> + 'static,
        options: HandlerOptions,
    ) -> Result<Registration<T>, AddHandlerError> {
        let processor = &self.inner().processor;
        let listener = processor.add(erase(handler), &options)?;
        Ok(Registration::new(listener, processor.clone(), Arc::downgrade(self.inner())))
    }

    /// How many handlers there are.
    pub fn handlers(&self) -> usize {
        self.inner().processor.len()
    }

    /// Reads what is stored. Works before, while and after the informer runs.
    pub fn store(&self) -> StoreReader<T> {
        self.inner().reader.typed().waiting(&self.inner().engine.waits)
    }

    /// Adds an index: of what is stored now, at once, and of all that comes. Readers have it from one version to the next,
    /// whole. `f` is called for every stored object before this returns, on this thread; see
    /// [`InformerBuilder::index`]. *Blocks*: while the informer writes, and the informer meanwhile; no reader.
    /// client-go: `AddIndexers`.
    ///
    /// # Errors
    /// [`IndexError`]: `Duplicate`; `Failed` when `f` panics for a stored object, and then nothing is added; `Reentrant`.
    pub fn add_index<V>(
        &self,
        name: &str,
        f: impl Fn(&T, &mut dyn FnMut(V)) + Send + Sync + 'static,
    ) -> Result<Index<V>, IndexError>
    where
        V: Hash + Ord + Clone + Send + Sync + 'static,
    {
        // On these the writer may be waiting, in its turn.
        if !matches!(call_out::inside(), None | Some(Site::Handler | Site::Reconcile | Site::Source | Site::Transform)) {
            return Err(IndexError::Reentrant);
        }
        self.inner().engine.add_index(IndexSpec::new(name, f))?;
        self.inner().reader.index(name)
    }

    /// Lists what is stored: all, by namespace, by label.
    pub fn lister(&self) -> Lister<T> {
        Lister::of(self.store(), self.labels.clone())
    }

    /// Where it is in its life. *Blocks*: briefly.
    pub fn state(&self) -> InformerState {
        *self.inner().state.lock()
    }

    /// How the source is doing.
    pub fn health(&self) -> Health {
        self.inner().reflector.health()
    }

    /// Objects that the store refused, deletions of objects that were not there, callbacks that panicked: so far.
    pub fn failures(&self) -> Failures {
        let o = &self.inner().observer;
        Failures {
            refused_objects: o.refused.load(Ordering::Relaxed),
            unknown_deletes: o.unknown_deletes.load(Ordering::Relaxed),
            handler_panics: o.handler_panics.load(Ordering::Relaxed),
        }
    }
}

/// Failures counted by an informer since it was built; each was also told to the `observe` hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Failures {
    /// Objects that the store refused because an index function failed; their old state stayed.
    pub refused_objects: u64,
    /// Deletions that the source told of objects that were not there.
    pub unknown_deletes: u64,
    /// Callbacks that panicked.
    pub handler_panics: u64,
}

impl Inner {
    fn begin(&self) -> Result<(), RunError> {
        let mut state = self.state.lock();
        if *state != InformerState::New {
            return Err(RunError::AlreadyRan);
        }
        *state = InformerState::Running;
        Ok(())
    }

    fn run(&self, stop: &Stop) -> Result<(), RunError> {
        let own = self.stop.clone();
        let _follows = stop.on_stop(move || own.stop());
        let mut outcome = match &self.queue {
            Some(queue) => self.run_decoupled(queue),
            None => reflect(&self.reflector, &self.stop),
        };
        // Whatever ended it, the listeners end with it. A handler may be waiting for a publication, and there are no more.
        self.stop.stop();
        self.engine.waits.end();
        self.close_processor();
        if let Some((handler, message)) = self.observer.aborted() {
            outcome = outcome.and(Err(RunError::HandlerPanicked { handler: handler.clone(), message: message.clone() }));
        }
        self.end();
        outcome
    }

    fn run_decoupled(&self, queue: &Arc<RealFifo<Opaque>>) -> Result<(), RunError> {
        let closing = queue.clone();
        let _closes = self.stop.on_stop(move || {
            // What is left in it is dropped with it; the end of an informer does not drain.
            closing.close();
        });
        let (reflector, stop) = (self.reflector.clone(), self.stop.clone());
        let thread = spawn(&self.clock, "reflector", move || {
            let outcome = reflect(&reflector, &stop);
            stop.stop();
            outcome
        })
        .map_err(RunError::Spawn)?;
        let idle = queue.clone();
        self.engine.on_garbage(move || idle.nudge());
        let processed = guard("processor", || {
            loop {
                match queue.take_or_nudge(TAKE, self.engine.due()) {
                    Ok(Some(mut taken)) => {
                        self.engine.take(taken.queue_mut());
                        taken.commit();
                    }
                    // Nothing comes: time for what was put off.
                    Ok(None) => self.engine.woken(),
                    Err(Closed) => return,
                }
            }
        });
        self.stop.stop();
        let reflected =
            thread.join().unwrap_or_else(|message| Err(RunError::ThreadPanicked { thread: "reflector".into(), message }));
        processed.and(reflected)
    }

    /// Nobody will run it any more; does nothing when somebody has. Its listeners have slept so far, and are joined
    /// unless this may be one of them.
    fn end_before_it_ran(&self) {
        {
            let mut state = self.state.lock();
            if *state != InformerState::New {
                return;
            }
            *state = InformerState::Stopped;
        }
        self.state.notify_all();
        self.engine.waits.end();
        self.engine.ended();
        self.processor.stop();
        if call_out::inside().is_none() {
            self.processor.close();
        }
    }

    fn close_processor(&self) {
        if keep("informer: the end waits for the handlers") {
            self.processor.close();
        } else {
            self.processor.stop();
        }
    }

    fn end(&self) {
        self.stop.stop();
        self.engine.waits.end();
        self.close_processor();
        *self.state.lock() = InformerState::Stopped;
        self.state.notify_all();
        self.engine.ended();
    }

    fn last_error(&self) -> Option<String> {
        self.reflector.health().last_error.map(|e| e.message)
    }

    fn is_new(&self) -> bool {
        *self.state.lock() == InformerState::New
    }

    /// For those who wait for what follows the first state; `None` when it is there.
    pub(super) fn why_no_first_state(&self) -> Option<String> {
        if *self.engine.first.lock() != FirstState::Awaited {
            return None;
        }
        let name = &self.name;
        Some(match self.last_error() {
            _ if self.is_new() => format!("{name} does not run yet; call `run` or `spawn`"),
            Some(error) => format!("{name}: {error}"),
            None => format!("{name}: the source has not answered"),
        })
    }
}

/// For those who wait for a publication.
impl Reason for Inner {
    fn reason(&self) -> Option<String> {
        self.why_no_first_state().or_else(|| self.last_error())
    }
}

/// Runs a part of the crate itself; a panic there is an error, never a silent end.
fn guard<R>(part: &str, f: impl FnOnce() -> R) -> Result<R, RunError> {
    call_out::guard(f).map_err(|message| RunError::ThreadPanicked { thread: part.to_owned(), message })
}

fn reflect(reflector: &Reflector<Opaque>, stop: &Stop) -> Result<(), RunError> {
    match guard("reflector", || reflector.run(stop))? {
        // The queue is closed by stop only, so the one who closed it wanted the end.
        Ok(()) | Err(reflector::RunError::SinkClosed) => Ok(()),
        Err(reflector::RunError::AlreadyRunning) => Err(RunError::AlreadyRan),
    }
}

impl<T> Clone for SharedInformer<T> {
    fn clone(&self) -> Self {
        Self { handle: self.handle.clone(), labels: self.labels.clone() }
    }
}

impl<T> fmt::Debug for SharedInformer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformer").field("name", &self.handle.0.name).finish_non_exhaustive()
    }
}

/// Synced once the first whole state is in the store and on its way to every handler; each [`Registration`] says when
/// its own handler has been told.
impl<T: Send + Sync + 'static> Synced for SharedInformer<T> {
    fn name(&self) -> &str {
        &self.inner().name
    }

    fn has_synced(&self) -> bool {
        *self.inner().engine.first.lock() == FirstState::Handed
    }

    fn wait_synced(&self, deadline: Deadline) -> Result<(), WaitError> {
        if !matches!(call_out::inside(), None | Some(Site::Handler | Site::Reconcile)) {
            return Err(WaitError::WouldDeadlock);
        }
        let inner = self.inner();
        let at = deadline.on(&inner.clock);
        let first = &inner.engine.first;
        let state = *first.wait_while(first.lock(), &inner.clock, at, |s| *s == FirstState::Awaited).0;
        match state {
            FirstState::Handed => Ok(()),
            FirstState::Never => Err(WaitError::Stopped),
            FirstState::Awaited => {
                let last_error = if inner.is_new() { inner.why_no_first_state() } else { inner.last_error() };
                Err(WaitError::Timeout { missing: vec![inner.name.clone()], last_error })
            }
        }
    }
}

/// A running informer's thread. Dropping it stops the informer and waits for it, except inside a callback of this
/// crate, where it only stops it.
#[must_use = "dropping the handle stops the informer"]
pub struct InformerHandle {
    stop: Stop,
    thread: Mutex<Option<JoinHandle<Result<(), RunError>>>>,
}

impl InformerHandle {
    /// Waits until the informer has ended, however that comes about.
    ///
    /// # Errors
    /// What [`SharedInformer::run`] returned; `WouldDeadlock`, at once, inside a callback of this crate (the handle is
    /// gone then, and so the informer stops).
    pub fn join(self) -> Result<(), RunError> {
        if call_out::inside().is_some() {
            return Err(RunError::WouldDeadlock);
        }
        self.take_and_join().unwrap_or(Ok(()))
    }

    fn take_and_join(&self) -> Option<Result<(), RunError>> {
        let thread = self.thread.lock().take()?;
        if thread.is_current() {
            // In a destructor of a thread-local: the informer has ended.
            return None;
        }
        Some(thread.join().unwrap_or_else(|message| Err(RunError::ThreadPanicked { thread: "informer".into(), message })))
    }
}

impl Drop for InformerHandle {
    fn drop(&mut self) {
        if self.thread.lock().is_some() {
            self.stop.stop();
            if call_out::inside().is_none() {
                let _seen_by_nobody = self.take_and_join();
            }
        }
    }
}

impl fmt::Debug for InformerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerHandle").finish_non_exhaustive()
    }
}
