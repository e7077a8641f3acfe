//! What handlers are told.

use super::{Object, ObjectKey};
use std::fmt;

/// A deletion. Matching on it cannot overlook that the last state may be unknown.
///
/// client-go: the object, or a `DeletedFinalStateUnknown` in its place.
#[repr(C)]
pub enum Deleted<T> {
    /// The source told of the deletion, with the object's last state and the deletion's version.
    Observed(Object<T>),
    /// The object was found missing; what it was last is not known for sure.
    Missed {
        /// Which object.
        key: ObjectKey,
        /// The last state that was stored, when there was one.
        last_known: Option<Object<T>>,
    },
}

impl<T> Deleted<T> {
    /// Which object.
    pub fn key(&self) -> &ObjectKey {
        match self {
            Self::Observed(o) => Object::key(o),
            Self::Missed { key, .. } => key,
        }
    }

    /// The last state known: the final one, or the last that was stored.
    pub fn object(&self) -> Option<&Object<T>> {
        match self {
            Self::Observed(o) => Some(o),
            Self::Missed { last_known, .. } => last_known.as_ref(),
        }
    }
}

/// What happened to one object.
#[repr(C)]
pub enum Change<T> {
    /// It is new to this listener.
    Added(Object<T>),
    /// It changed. `old` is what this listener was given last for it.
    Updated {
        /// What it was.
        old: Object<T>,
        /// What it is.
        new: Object<T>,
    },
    /// It is gone.
    Deleted(Deleted<T>),
}

/// Why a listener is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Cause {
    /// Part of the first state this listener is given.
    Initial,
    /// The source reported the change.
    Watch,
    /// A later list differed from what was stored.
    Relist,
}

/// One call of a handler.
#[repr(C)]
pub struct Event<T> {
    /// Why.
    pub cause: Cause,
    /// What.
    pub change: Change<T>,
}

impl<T> Event<T> {
    /// Which object.
    pub fn key(&self) -> &ObjectKey {
        match &self.change {
            Change::Added(o) | Change::Updated { new: o, .. } => Object::key(o),
            Change::Deleted(d) => d.key(),
        }
    }

    /// What the object is now, or what is last known of it when it is gone.
    pub fn object(&self) -> Option<&Object<T>> {
        match &self.change {
            Change::Added(o) | Change::Updated { new: o, .. } => Some(o),
            Change::Deleted(d) => d.object(),
        }
    }
}

impl<T> Clone for Deleted<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Observed(o) => Self::Observed(o.clone()),
            Self::Missed { key, last_known } => Self::Missed { key: key.clone(), last_known: last_known.clone() },
        }
    }
}

impl<T> Clone for Change<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Added(o) => Self::Added(o.clone()),
            Self::Updated { old, new } => Self::Updated { old: old.clone(), new: new.clone() },
            Self::Deleted(d) => Self::Deleted(d.clone()),
        }
    }
}

impl<T> Clone for Event<T> {
    fn clone(&self) -> Self {
        Self { cause: self.cause, change: self.change.clone() }
    }
}

// By hand, because a derive would ask for `T: Debug`, and what is shown of an object is its key and version.

impl<T> fmt::Debug for Deleted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Observed(o) => f.debug_tuple("Observed").field(o).finish(),
            Self::Missed { key, last_known } => {
                f.debug_struct("Missed").field("key", key).field("last_known", last_known).finish()
            }
        }
    }
}

impl<T> fmt::Debug for Change<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added(o) => f.debug_tuple("Added").field(o).finish(),
            Self::Updated { old, new } => f.debug_struct("Updated").field("old", old).field("new", new).finish(),
            Self::Deleted(d) => f.debug_tuple("Deleted").field(d).finish(),
        }
    }
}

impl<T> fmt::Debug for Event<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("cause", &self.cause).field("change", &self.change).finish()
    }
}
