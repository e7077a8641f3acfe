//! The ports that rooms share, in the order of the flow.

use super::{Delta, KeyRef, Object, ObjectKey};
use crate::sync::{Arc, Deadline, Wake};

/// Takes deltas: the engine, the queues, or a user's own.
///
/// One thread at a time calls [`DeltaSink::apply`] (the reflector), in the order in which the source reported.
pub trait DeltaSink<T>: Send + Sync {
    /// Takes every delta out of `batch`, in order; what is left in it after `Ok` counts as taken. *Blocks*: as long as
    /// the sink needs; the source waits meanwhile.
    ///
    /// A failure of one object is the sink's own business: it keeps the old state of that object, reports it, and goes
    /// on. `Err` means that the sink as a whole could not take what is left in `batch`; the reflector then asks for a
    /// whole state again.
    ///
    /// # Errors
    /// [`SinkError`] when the sink can take nothing now, or nothing any more.
    fn apply(&self, batch: &mut Vec<Delta<T>>) -> Result<(), SinkError>;

    /// Whoever calls [`DeltaSink::apply`] says, before the first call, what it listens to while it has nothing to hand
    /// over. Nudging that leads to [`DeltaSink::woken`], on the same thread, between two batches.
    fn listens(&self, wake: &Wake) {
        let _ = wake;
    }

    /// When the sink wants [`DeltaSink::woken`] to be called although nobody nudges. Asked before each wait; it
    /// must not wait for anybody.
    fn due(&self) -> Deadline {
        Deadline::never()
    }

    /// What the sink put off may be done now; the source waits meanwhile, so it should be little at a time.
    fn woken(&self) {}

    /// What the sink holds for a key, so that an unchanged object need not be kept twice. It must not wait for
    /// anybody.
    fn known(&self, key: KeyRef<'_>) -> Option<Object<T>> {
        let _ = key;
        None
    }
}

impl<T, S: DeltaSink<T> + ?Sized> DeltaSink<T> for Arc<S> {
    fn apply(&self, batch: &mut Vec<Delta<T>>) -> Result<(), SinkError> {
        (**self).apply(batch)
    }

    fn listens(&self, wake: &Wake) {
        (**self).listens(wake);
    }

    fn due(&self) -> Deadline {
        (**self).due()
    }

    fn woken(&self) {
        (**self).woken();
    }

    fn known(&self, key: KeyRef<'_>) -> Option<Object<T>> {
        (**self).known(key)
    }
}

/// Why a sink refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// It was closed and takes nothing any more; the reflector ends.
    #[error("the sink is closed")]
    Closed,
    /// It could not take the deltas now; the reflector lists again after a backoff.
    #[error("the sink refused: {0}")]
    Refused(Box<dyn std::error::Error + Send + Sync>),
}

/// What is known of objects by key; queues consult it.
pub trait KnownObjects<T>: Send + Sync {
    /// The object with this key. It must not wait for anybody.
    fn get(&self, key: KeyRef<'_>) -> Option<Object<T>>;

    /// Calls `f` for every key.
    fn for_each_key(&self, f: &mut dyn FnMut(&ObjectKey));
}
