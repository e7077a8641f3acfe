//! What flows from the reflector to the store.

use super::{Deleted, Object, ObjectKey};

/// One instruction to whatever keeps the objects: the store's engine, a queue before it, or a user's own sink.
#[derive(Debug)]
pub enum Delta<T> {
    /// The source reported a new object.
    Added(Object<T>),
    /// The source reported a change.
    Updated(Object<T>),
    /// The source reported a deletion.
    Deleted(Deleted<T>),
    /// The whole state, as one step: what is not in it is gone.
    ReplacedAll {
        /// The version of the state.
        version: String,
        /// Every object of it, in the order of arrival.
        objects: Vec<Object<T>>,
        /// Keys that the state contains but whose object could not be had: what is stored for them stays.
        kept: Vec<ObjectKey>,
        /// False when objects may exist that the state does not name: nothing is to be deleted because of it.
        complete: bool,
        /// True when versions before this one prove nothing any more: every object replaces what is stored.
        new_era: bool,
    },
    /// The source has reached this version; no object changed.
    Bookmark {
        /// The version.
        version: String,
    },
}

impl<T> Delta<T> {
    /// The version that the source has reached with this delta; `None` for deletions that were inferred.
    pub fn version(&self) -> Option<super::Text<'_>> {
        match self {
            Self::Added(o) | Self::Updated(o) | Self::Deleted(Deleted::Observed(o)) => Some(Object::version(o)),
            Self::ReplacedAll { version, .. } | Self::Bookmark { version } => Some(super::Text::borrowed(version)),
            Self::Deleted(Deleted::Missed { .. }) => None,
        }
    }

    /// Which object, for deltas of one object.
    pub fn key(&self) -> Option<&ObjectKey> {
        match self {
            Self::Added(o) | Self::Updated(o) => Some(Object::key(o)),
            Self::Deleted(d) => Some(d.key()),
            Self::ReplacedAll { .. } | Self::Bookmark { .. } => None,
        }
    }
}
