//! [`Work`]: the right to work on a key.

use super::{
    key::After,
    queue::{Shared, State},
};
use crate::sync::Arc;
use std::{fmt, ops::Deref};

/// A key that was handed out, and the right to work on it: nobody else gets the key while this exists.
///
/// Dereferences to the key; everything else is an associated function, so that the key's own methods stay visible. It
/// cannot be cloned. Dropping it is being done with it, also while a panic unwinds the worker, so a key cannot get lost
/// with its worker (client-go leaves `Done` to the caller). It may be sent to another thread and dropped there.
#[must_use = "dropping the work is being done with it"]
pub struct Work<K> {
    queue: Arc<Shared<K>>,
    id: usize,
    /// Taken when the work is done.
    key: Option<K>,
}

impl<K> Work<K> {
    pub(super) fn new(queue: Arc<Shared<K>>, id: usize, key: K) -> Self {
        Self { queue, id, key: Some(key) }
    }

    pub(super) fn queue(&self) -> &Shared<K> {
        &self.queue
    }

    /// Done with the key: what dropping does, by name. A key that was added meanwhile is queued again, at the tail.
    /// *Blocks*: briefly. client-go: `Done`.
    pub fn done(work: Self) {
        drop(work);
    }

    /// Ends the work with `again`, which owes the key another round, unless the queue is shut down; says whether.
    pub(super) fn end(mut self, again: impl FnOnce(&mut State<K>, usize, K, &mut After<K>)) -> bool {
        let Some(key) = self.key.take() else { return false };
        let id = self.id;
        self.queue.section(|s, after| {
            let open = s.admit();
            if open {
                again(s, id, key, after);
            } else {
                after.discard(key);
            }
            s.finish(id, after);
            open
        })
    }
}

impl<K> Drop for Work<K> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            let id = self.id;
            self.queue.section(|s, after| {
                s.finish(id, after);
                after.discard(key);
            });
        }
    }
}

impl<K> Deref for Work<K> {
    type Target = K;
    fn deref(&self) -> &K {
        self.key.as_ref().expect("the key is taken by the functions that consume the work")
    }
}

impl<K: fmt::Debug> fmt::Debug for Work<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Work").field(&self.key).finish()
    }
}
