//! What a worker does: get, reconcile, and by the outcome forget or come again, done.
//!
//! Whatever happens, the key is given back: [`Work`] is done when it is dropped, and the part that may panic runs inside
//! `call_out`. The repetition is noted and the key released in one step of the queue, so nobody can get between.

use super::{Action, AtStop, ControllerEvent, ReconcileError, StopReport, outcome::Retry};
use crate::{
    sync::{
        Clock, Stop,
        atomic::{AtomicU64, Ordering},
        call_out::{self, Site},
    },
    workqueue::{Work, WorkQueue},
};
use std::hash::Hash;

/// Brings one key from what is to what should be. Closures of this shape are reconcilers; write the types of both
/// arguments (`|key: &K, _: &Context|`), or the compiler takes the closure for one of a single lifetime.
///
/// Called on several threads at once, never for the same key. The same key comes again after failures, after stops and
/// for changes long known, so a reconcile looks at the state of things and not at what happened. controller-runtime:
/// `reconcile.Reconciler`.
pub trait Reconciler<K>: Send + Sync {
    /// Works on one key. A panic is contained and counts as an error to be tried again.
    ///
    /// # Errors
    /// [`ReconcileError`], which says when to try again.
    fn reconcile(&self, key: &K, cx: &Context) -> Result<Action, ReconcileError>;
}

impl<K, F> Reconciler<K> for F
where
    F: Fn(&K, &Context) -> Result<Action, ReconcileError> + Send + Sync,
{
    fn reconcile(&self, key: &K, cx: &Context) -> Result<Action, ReconcileError> {
        self(key, cx)
    }
}

/// What a reconcile may want to know besides the key.
#[derive(Debug)]
pub struct Context {
    stop: Stop,
    clock: Clock,
    attempt: u32,
}

impl Context {
    /// The controller's stop: long reconciles look at it and return early; nobody interrupts them.
    ///
    /// Deadlines of its [`Stop::wait`] are on the clock that the stop was made with, which need not be [`Self::clock`]:
    /// a test on a manual clock runs the controller with a [`Stop::with_clock`].
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// The queue's clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Which run this is since the key's failures were last forgotten, counted from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}

/// A controller's `observe` hook.
pub(super) type Observe<K> = Box<dyn Fn(&ControllerEvent<'_, K>) + Send + Sync>;

/// What the workers of a controller share.
pub(super) struct Crew<K: Hash + Eq + Clone + Send + 'static> {
    pub(super) queue: WorkQueue<K>,
    pub(super) reconciler: Box<dyn Reconciler<K>>,
    pub(super) observe: Option<Observe<K>>,
    pub(super) at_stop: AtStop,
    pub(super) counts: Counts,
}

#[derive(Default)]
pub(super) struct Counts {
    reconciles: AtomicU64,
    failed: AtomicU64,
    terminal: AtomicU64,
    panicked: AtomicU64,
    dropped: AtomicU64,
    retries_refused: AtomicU64,
}

impl Counts {
    /// Read when the workers have ended.
    pub(super) fn report(&self, delays_dropped: u64) -> StopReport {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        StopReport {
            reconciles: read(&self.reconciles),
            failed: read(&self.failed),
            terminal: read(&self.terminal),
            panicked: read(&self.panicked),
            dropped: read(&self.dropped),
            retries_refused: read(&self.retries_refused),
            delays_dropped,
        }
    }
}

fn count(n: &AtomicU64) {
    n.fetch_add(1, Ordering::Relaxed);
}

impl<K: Hash + Eq + Clone + Send + 'static> Crew<K> {
    /// One worker, until the queue has nothing more for it.
    pub(super) fn work(&self, stop: &Stop) {
        let mut cx = Context { stop: stop.clone(), clock: self.queue.clock().clone(), attempt: 1 };
        while let Some(work) = self.queue.get() {
            if self.at_stop == AtStop::Drop && stop.is_stopped() {
                count(&self.counts.dropped);
                Work::done(work);
                continue;
            }
            cx.attempt = Work::failures(&work).saturating_add(1);
            self.reconcile(work, &cx);
        }
    }

    fn reconcile(&self, work: Work<K>, cx: &Context) {
        let (attempt, start) = (cx.attempt, cx.clock.now());
        let outcome = call_out::call(Site::Reconcile, || self.reconciler.reconcile(&work, cx));
        let took = cx.clock.now().since(start);
        count(&self.counts.reconciles);
        let again = match &outcome {
            Ok(Ok(action)) => {
                let action = *action;
                self.tell(&ControllerEvent::Reconciled { key: &work, action, attempt, took });
                match action {
                    Action::Done => Retry::Never,
                    Action::Requeue => Retry::Limited,
                    Action::RequeueAfter(d) => {
                        Work::forget(&work);
                        Retry::After(d)
                    }
                }
            }
            Ok(Err(error)) => {
                count(if error.is_terminal() { &self.counts.terminal } else { &self.counts.failed });
                self.tell(&ControllerEvent::Failed { key: &work, error, attempt, took });
                error.when()
            }
            Err(panic) => {
                count(&self.counts.panicked);
                self.tell(&ControllerEvent::Panicked { key: &work, message: &panic.message, attempt, took });
                Retry::Limited
            }
        };
        let accepted = match again {
            Retry::Limited => Work::retry(work),
            Retry::After(d) => Work::requeue_after(work, d),
            Retry::Never => {
                Work::forget(&work);
                Work::done(work);
                true
            }
        };
        if !accepted {
            count(&self.counts.retries_refused);
        }
        // The error is the user's, and so is what its `Drop` does.
        call_out::contain(Site::Drop, || drop(outcome));
    }

    pub(super) fn tell(&self, event: &ControllerEvent<'_, K>) {
        if let Some(observe) = &self.observe {
            call_out::contain(Site::Hook, || observe(event));
        }
    }
}
