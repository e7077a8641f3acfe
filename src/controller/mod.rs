//! The controller: workers that take keys from a queue and reconcile them.
//!
//! ```
//! use informer::{
//!     controller::{Action, Context, Controller},
//!     sync::Stop,
//!     workqueue::WorkQueue,
//! };
//!
//! let queue = WorkQueue::builder().name("pods").build();
//! let stop = Stop::new();
//! let controller = Controller::builder(queue.clone(), |key: &String, cx: &Context| {
//!     println!("{key}, attempt {}", cx.attempt());
//!     cx.stop().stop(); // an example must end
//!     Ok(Action::Done)
//! })
//! .workers(2)
//! .build();
//! queue.add("default/web-1".to_owned());
//! let report = controller.run(&stop)?;
//! assert_eq!(report.reconciles, 1);
//! # Ok::<(), informer::controller::ControllerError>(())
//! ```
//!
//! `worker.rs` is what a worker does with a key, `outcome.rs` what a reconcile can say; here is the life of the whole:
//! wait for the stores, start the workers, and let them end in order. Keys are exclusive because the queue's are (P6): two
//! workers never reconcile one key at a time.

mod outcome;
mod worker;

pub use outcome::{Action, ControllerError, ControllerEvent, ReconcileError, StopReport};
pub use worker::{Context, Reconciler};

use crate::{
    sync::{
        Arc, Clock, Deadline, Door, Instant, Stop, Synced, WaitError,
        atomic::{AtomicBool, Ordering},
        call_out, spawn,
    },
    workqueue::WorkQueue,
};
use std::{fmt, hash::Hash, time::Duration};
use worker::{Counts, Crew, Observe};

/// Workers that reconcile the keys of one queue. controller-runtime: `controller.Controller`.
pub struct Controller<K: Hash + Eq + Clone + Send + 'static> {
    crew: Arc<Crew<K>>,
    thread_prefix: String,
    workers: usize,
    wait_for: Vec<Arc<dyn Synced>>,
    sync_deadline: Deadline,
    ran: AtomicBool,
}

/// What becomes of keys that are queued when a controller is stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtStop {
    /// They are dropped and counted. The next start finds them again, as it reconciles everything.
    #[default]
    Drop,
    /// They are worked off first. Repetitions they ask for are refused and counted.
    Drain,
}

/// Makes a [`Controller`]; see [`Controller::builder`].
#[must_use = "a builder does nothing before `build`"]
pub struct ControllerBuilder<K: Hash + Eq + Clone + Send + 'static> {
    queue: WorkQueue<K>,
    reconciler: Box<dyn Reconciler<K>>,
    name: String,
    workers: usize,
    wait_for: Vec<Arc<dyn Synced>>,
    sync_deadline: Deadline,
    at_stop: AtStop,
    observe: Option<Observe<K>>,
}

/// How long stores may take when nothing is said, as in controller-runtime.
const SYNC_DEADLINE: Duration = Duration::from_secs(120);

/// How often a wait for a store looks whether it is to stop: a [`Synced`] knows nothing of stops.
const LOOK_FOR_STOP: Duration = Duration::from_millis(100);

/// Of a thread's 15 bytes, the number of the worker gets five.
const PREFIX_BYTES: usize = 10;

impl<K: Hash + Eq + Clone + Send + 'static> Controller<K> {
    /// Begins a controller of `queue`. It lives by the queue's clock. Without further words it has one worker, waits for
    /// no store, and drops what is queued when it is stopped.
    pub fn builder(queue: WorkQueue<K>, reconciler: impl Reconciler<K> + 'static) -> ControllerBuilder<K> {
        ControllerBuilder {
            queue,
            reconciler: Box::new(reconciler),
            name: "recon".to_owned(),
            workers: 1,
            wait_for: Vec::new(),
            sync_deadline: SYNC_DEADLINE.into(),
            at_stop: AtStop::default(),
            observe: None,
        }
    }

    /// Waits for the stores, then reconciles keys on threads of its own until `stop`, or until somebody shuts the queue
    /// down and all its keys are worked off.
    ///
    /// At the end, whatever brought it about, the queue is shut down, reconciles that run have returned, and every thread
    /// has ended (P8): nothing is called afterwards. A reconcile that does not return keeps this from returning; see
    /// [`Context::stop`]. When `stop` comes before the stores are synced nothing is reconciled, and that is no error.
    ///
    /// *Blocks*: until then. Stop is heard at once, during the wait for the stores within 100 ms. Test:
    /// `p8_stop_ends_every_thread_and_reports` in `controller/tests.rs`.
    ///
    /// # Errors
    /// [`ControllerError`]; `AlreadyRan` the second time.
    pub fn run(&self, stop: &Stop) -> Result<StopReport, ControllerError> {
        if self.ran.swap(true, Ordering::AcqRel) {
            return Err(ControllerError::AlreadyRan);
        }
        let queue = &self.crew.queue;
        let _door = Door::enter(queue.clock());
        let closing = queue.clone();
        let _closes = stop.on_stop(move || {
            closing.shutdown();
        });
        let outcome = match self.wait_for_stores(stop) {
            Ok(true) => self.work(stop),
            Ok(false) => Ok(()),
            Err(e) => Err(e),
        };
        let closed = queue.shutdown();
        let mut report = self.crew.counts.report(closed.delays_dropped);
        // What no worker came to; in the ordinary case nothing.
        report.dropped += closed.queued as u64;
        outcome.map(|()| report)
    }

    /// True when the workers may begin, false when they are to stop before.
    fn wait_for_stores(&self, stop: &Stop) -> Result<bool, ControllerError> {
        let clock = self.crew.queue.clock();
        let at = self.sync_deadline.on(clock);
        for store in &self.wait_for {
            while !stop.is_stopped() {
                let look = clock.now().checked_add(LOOK_FOR_STOP);
                let until = at.into_iter().chain(look).min();
                let part = || format!("waiting for {}", store.name());
                let waited = call_out::guard(|| store.wait_synced(until.into()))
                    .map_err(|message| ControllerError::Panicked { part: part(), message })?;
                let error = match waited {
                    Ok(()) => break,
                    Err(WaitError::Timeout { .. }) if !passed(at, clock) => continue,
                    Err(WaitError::Timeout { last_error, .. }) => WaitError::Timeout { missing: self.missing(), last_error },
                    // Most likely it heard the same stop.
                    Err(WaitError::Stopped) if stop.is_stopped() => break,
                    Err(error) => error,
                };
                return Err(ControllerError::NotSynced { store: store.name().to_owned(), error });
            }
        }
        Ok(!stop.is_stopped())
    }

    fn missing(&self) -> Vec<String> {
        self.wait_for.iter().filter(|s| !s.has_synced()).map(|s| s.name().to_owned()).collect()
    }

    fn work(&self, stop: &Stop) -> Result<(), ControllerError> {
        let queue = &self.crew.queue;
        self.crew.tell(&ControllerEvent::Started { workers: self.workers });
        let (mut threads, mut outcome) = (Vec::new(), Ok(()));
        for i in 0..self.workers {
            let (crew, stop) = (self.crew.clone(), stop.clone());
            let name = format!("{}-{i}", self.thread_prefix);
            let worker = move || {
                let ended = call_out::guard(|| crew.work(&stop));
                // One that died must not leave the others working on in silence.
                crew.queue.shutdown();
                ended
            };
            match spawn(queue.clock(), &name, worker) {
                Ok(thread) => threads.push((name, thread)),
                Err(e) => {
                    outcome = Err(ControllerError::Spawn(e));
                    queue.shutdown();
                    break;
                }
            }
        }
        for (part, thread) in threads {
            let ended = thread.join().and_then(|ended| ended);
            outcome = outcome.and(ended.map_err(|message| ControllerError::Panicked { part, message }));
        }
        outcome
    }
}

fn passed(at: Option<Instant>, clock: &Clock) -> bool {
    at.is_some_and(|at| clock.now() >= at)
}

impl<K: Hash + Eq + Clone + Send + 'static> ControllerBuilder<K> {
    /// What the workers' threads are called: the first ten bytes of it and a number.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How many keys are reconciled at once, each on a thread of its own; 0 counts as 1, more than 9,999 as 9,999.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.clamp(1, 9_999);
        self
    }

    /// Reconciles nothing before all these are synced: informers and registrations (a registration is synced when its
    /// handler has enqueued the initial state). May be said more than once.
    ///
    /// They are shared, because the controller outlives the scope it is built in: `Arc::new(informer.clone()) as _`
    /// for an informer, an `Arc` of the registration that one keeps anyway.
    pub fn wait_for(mut self, stores: impl IntoIterator<Item = Arc<dyn Synced>>) -> Self {
        self.wait_for.extend(stores);
        self
    }

    /// Until when all of them are synced, from the call of `run`; two minutes when nothing is said.
    pub fn sync_deadline(mut self, deadline: impl Into<Deadline>) -> Self {
        self.sync_deadline = deadline.into();
        self
    }

    /// What becomes of queued keys at a stop.
    pub fn at_stop(mut self, at_stop: AtStop) -> Self {
        self.at_stop = at_stop;
        self
    }

    /// Is told of every reconcile, on the worker's thread. A panic in it is contained.
    pub fn observe(mut self, hook: impl Fn(&ControllerEvent<'_, K>) + Send + Sync + 'static) -> Self {
        self.observe = Some(Box::new(hook));
        self
    }

    /// The controller, not yet running.
    pub fn build(self) -> Controller<K> {
        let Self { queue, reconciler, name, workers, wait_for, sync_deadline, at_stop, observe } = self;
        let mut thread_prefix = String::new();
        for c in name.chars().filter(|c| !c.is_control()) {
            if thread_prefix.len() + c.len_utf8() > PREFIX_BYTES {
                break;
            }
            thread_prefix.push(c);
        }
        let crew = Arc::new(Crew { queue, reconciler, observe, at_stop, counts: Counts::default() });
        Controller { crew, thread_prefix, workers, wait_for, sync_deadline, ran: AtomicBool::new(false) }
    }
}

impl<K: Hash + Eq + Clone + Send + 'static> fmt::Debug for Controller<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("threads", &self.thread_prefix)
            .field("workers", &self.workers)
            .field("queue", &self.crew.queue)
            .finish_non_exhaustive()
    }
}

impl<K: Hash + Eq + Clone + Send + 'static> fmt::Debug for ControllerBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
mod tests;
