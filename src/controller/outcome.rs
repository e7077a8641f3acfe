//! What a reconcile says, and what a controller tells about it.

use crate::sync::WaitError;
use std::{error::Error, fmt, io, time::Duration};

/// What a reconcile that went well wants next. client-go has no counterpart; controller-runtime: `reconcile.Result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing: the key's failures are forgotten.
    Done,
    /// Again after the wait that the queue's limiter decides, which counts as a failure there and forgets nothing. For
    /// keys that are on their way.
    Requeue,
    /// Again after this time; the key's failures are forgotten. Zero is at once, at the tail of the queue. A change that
    /// comes earlier does not cancel it.
    RequeueAfter(Duration),
}

/// A reconcile that failed, and when it is to be tried again. `?` on any error makes one that the limiter decides.
///
/// An error and a wish for a time cannot contradict each other: the time is part of the error.
pub struct ReconcileError {
    error: Box<dyn Error + Send + Sync>,
    retry: Retry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    Limited,
    After(Duration),
    Never,
}

impl ReconcileError {
    /// Tried again after the wait that the queue's limiter decides.
    pub fn retry(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { error: error.into(), retry: Retry::Limited }
    }

    /// Tried again after `wait`, whatever the limiter would say; it is not asked and does not count this failure.
    pub fn retry_after(error: impl Into<Box<dyn Error + Send + Sync>>, wait: Duration) -> Self {
        Self { error: error.into(), retry: Retry::After(wait) }
    }

    /// Not tried again before the key is added anew. The key's failures are forgotten. controller-runtime:
    /// `TerminalError`, which keeps them.
    pub fn terminal(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { error: error.into(), retry: Retry::Never }
    }

    /// What went wrong.
    pub fn error(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.error
    }

    /// True when it is not tried again.
    pub fn is_terminal(&self) -> bool {
        self.retry == Retry::Never
    }

    pub(super) fn when(&self) -> Retry {
        self.retry
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for ReconcileError {
    fn from(error: E) -> Self {
        Self::retry(error)
    }
}

impl fmt::Display for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl fmt::Debug for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReconcileError").field("error", &self.error).field("retry", &self.retry).finish()
    }
}

/// What a controller tells its `observe` hook, on the worker's thread. Events of one key come one after the other.
#[derive(Debug)]
#[non_exhaustive]
pub enum ControllerEvent<'a, K> {
    /// Every store is synced; the workers begin.
    Started {
        /// How many.
        workers: usize,
    },
    /// A reconcile went well.
    Reconciled {
        /// Of this key.
        key: &'a K,
        /// What it wants next.
        action: Action,
        /// Which run it was since the key's failures were last forgotten, counted from 1.
        attempt: u32,
        /// How long it ran.
        took: Duration,
    },
    /// A reconcile failed.
    Failed {
        /// Of this key.
        key: &'a K,
        /// Why, and whether it is tried again.
        error: &'a ReconcileError,
        /// Which run it was since the key's failures were last forgotten, counted from 1.
        attempt: u32,
        /// How long it ran.
        took: Duration,
    },
    /// A reconcile panicked; it is tried again as after [`ReconcileError::retry`].
    Panicked {
        /// Of this key.
        key: &'a K,
        /// The panic's message.
        message: &'a str,
        /// Which run it was since the key's failures were last forgotten, counted from 1.
        attempt: u32,
        /// How long it ran.
        took: Duration,
    },
}

/// What a controller did, and what it left undone; see [`Controller::run`](super::Controller::run).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StopReport {
    /// Reconciles run, however they ended.
    pub reconciles: u64,
    /// Those that returned an error to be tried again.
    pub failed: u64,
    /// Those that returned a terminal error.
    pub terminal: u64,
    /// Those that panicked.
    pub panicked: u64,
    /// Keys that were queued when it stopped and were not worked off.
    pub dropped: u64,
    /// Repetitions wanted after the queue was shut down.
    pub retries_refused: u64,
    /// Delays that were running when the queue was shut down.
    pub delays_dropped: u64,
}

/// Why a controller did not run, or ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// A controller runs once; build another one.
    #[error("the controller runs or has run already; build another one, on another queue")]
    AlreadyRan,
    /// A store did not become synced; no reconcile was run.
    #[error("the store {store} is not synced: {error}")]
    NotSynced {
        /// The first that is not.
        store: String,
        /// Why; a time-out names all that are missing.
        #[source]
        error: WaitError,
    },
    /// A worker could not be started; those that could have ended.
    #[error("a worker could not be started: {0}")]
    Spawn(#[source] io::Error),
    /// A part of the controller, not a reconcile, panicked; every worker has ended.
    #[error("{part} panicked: {message}")]
    Panicked {
        /// A thread, or a store that was waited for.
        part: String,
        /// The panic's message.
        message: String,
    },
}
