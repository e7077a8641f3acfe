//! Where objects come from: [`ListerWatcher`], its parameters, its answers and its errors.

mod error;
mod http;
mod selector;
mod shard;

pub use error::{SourceError, SourceErrorKind};
pub use http::{HttpAnswer, RequestKind};
pub use selector::{Selector, SelectorError};
pub use shard::{Shard, ShardError};

use crate::{
    flow::{Meta, ObjectKey},
    sync::{Arc, Deadline, Stop, Wake},
};
use std::{cmp::Ordering, ops::ControlFlow, time::Duration};

/// Which objects of a kind. Set once; every request of a reflector carries it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Scope {
    /// Only this namespace; all when `None`.
    pub namespace: Option<String>,
    /// A label selector in Kubernetes' syntax; [`Selector`] checks and writes them.
    pub labels: Option<String>,
    /// A field selector in Kubernetes' syntax.
    pub fields: Option<String>,
    /// Only this part of them. A source may ignore it: the reflector drops the others as they come in.
    pub shard: Option<Shard>,
}

/// How new the answer of a list has to be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VersionMatch {
    /// The newest there is: a consistent read. Kubernetes: an unset `resourceVersion`.
    MostRecent,
    /// Whatever the server has at hand. Kubernetes: `resourceVersion=0`.
    Any,
    /// At least this version. Kubernetes: `resourceVersionMatch=NotOlderThan`.
    NotOlderThan(String),
    /// Exactly this version. Kubernetes: `resourceVersionMatch=Exact`.
    Exact(String),
}

/// One list request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListParams {
    /// How new. Not to be sent together with a continue token.
    pub version: VersionMatch,
    /// Items per page; `None` asks for everything at once.
    pub limit: Option<u32>,
    /// From the page before.
    pub continue_token: Option<String>,
    /// Which objects.
    pub scope: Scope,
}

/// What a list answered besides its items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEnd {
    /// The version of the whole list.
    pub version: String,
    /// Present when more pages follow; never empty.
    pub continue_token: Option<String>,
}

/// One watch request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchParams {
    /// Changes after this version. With `initial_events`: the version that the state must not be older than; the most
    /// recent state when empty.
    pub from: String,
    /// After this the server should end the stream.
    pub timeout: Duration,
    /// Whether bookmarks are wanted. Always, with `initial_events`.
    pub bookmarks: bool,
    /// Begin with the whole state, as [`WatchEvent::Added`] frames and a bookmark with `initial_events_end` behind them,
    /// and go on with the changes after it. Kubernetes: `sendInitialEvents=true` with
    /// `resourceVersionMatch=NotOlderThan`. Asked only of sources that can
    /// ([`ListerWatcher::supports_watch_list`]).
    pub initial_events: bool,
    /// Which objects.
    pub scope: Scope,
}

/// One frame of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent<O> {
    /// A new object, or one that entered the selection.
    Added(O),
    /// A changed object.
    Modified(O),
    /// A deleted object, or one that left the selection, in its last state with the deletion's version.
    Deleted(O),
    /// The stream has reached this version.
    Bookmark {
        /// The version.
        version: String,
        /// The objects before it were the whole state of this version; see [`WatchParams::initial_events`]. False in
        /// all other bookmarks.
        initial_events_end: bool,
    },
    /// A frame whose object could not be decoded.
    Undecodable {
        /// What could be read of it.
        object: Undecodable,
        /// It was in a frame that says that the object is gone.
        deleted: bool,
    },
}

/// An object that its source could not decode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecodable {
    /// Which object, when that much could be read.
    pub key: Option<ObjectKey>,
    /// Its version, when that much could be read.
    pub version: Option<String>,
    /// What is wrong with it, without its content.
    pub why: String,
}

/// What [`WatchStream::next`] answers.
///
/// What [`Wake::wait_until`] answers becomes it: `None` is an [`Next::Event`], [`Woken::Stopped`](crate::sync::Woken) is
/// [`Next::Stopped`], `Nudged` is [`Next::Woken`], `Deadline` is [`Next::Deadline`].
#[derive(Debug)]
pub enum Next<O> {
    /// A frame.
    Event(WatchEvent<O>),
    /// The stream broke, or the server reported an error in it; it is over.
    Failed(SourceError),
    /// The server ended the stream in order.
    End,
    /// Nothing came until the deadline.
    Deadline,
    /// The wake was nudged.
    Woken,
    /// The wake was stopped.
    Stopped,
}

/// An open watch. Dropping it closes it.
pub trait WatchStream<O>: Send {
    /// The next frame, in the order of the server. *Blocks*: until there is one, until `deadline`, a nudge or stop;
    /// through `wake` only. It is the same wake in every call on a stream; keep a clone where news arrive and
    /// [`Wake::poke`] it.
    fn next(&mut self, wake: &Wake, deadline: Deadline) -> Next<O>;

    /// What can be had at once; the reflector hands all of it over as one batch. It must not wait.
    fn ready(&mut self) -> Option<Next<O>> {
        None
    }
}

/// A source of objects of one kind. Object safe. Shared by whoever needs it; every method may be called concurrently.
///
/// A source must honour the [`Scope`] (but for its shard), and the version that a watch begins after. It may take the
/// rest for advice: answer a list whole, newer than asked for, or without bookmarks. A watch that is still open ten
/// seconds after its time-out is closed and asked for again.
///
/// A panic in a method is contained and counts as [`SourceErrorKind::Other`]. client-go: `ListerWatcher`.
pub trait ListerWatcher: Send + Sync + 'static {
    /// What it delivers. Needs no trait of this crate: foreign types will do.
    type Object: Send + Sync + 'static;

    /// Name, namespace, version and uid of an object. Called once for each object received.
    fn meta<'a>(&self, object: &'a Self::Object) -> Meta<'a>;

    /// Calls `emit` with each label of an object.
    fn labels(&self, object: &Self::Object, emit: &mut dyn FnMut(&str, &str)) {
        let _ = (object, emit);
    }

    /// One list request. Hands each item to `sink` in order, as it is decoded, and stops when `sink` says so. The
    /// transform runs inside `sink`, so hold no lock that it may need.
    /// *Blocks*: until the answer is complete or `stop` is given.
    ///
    /// # Errors
    /// [`SourceError`]; items handed over before are then worth nothing.
    fn list(
        &self,
        stop: &Stop,
        params: &ListParams,
        sink: &mut dyn FnMut(Result<Self::Object, Undecodable>) -> ControlFlow<()>,
    ) -> Result<ListEnd, SourceError>;

    /// Opens a watch. *Blocks*: until the server answers or `stop` is given.
    ///
    /// # Errors
    /// [`SourceError`]; nothing is left open then.
    fn watch(&self, stop: &Stop, params: &WatchParams) -> Result<Box<dyn WatchStream<Self::Object>>, SourceError>;

    /// The order of two versions of one era; `None` when they cannot be compared. The default is [`compare_decimal`],
    /// which is right for Kubernetes' versions and has no opinion on others. Answer `None` always if the source's
    /// versions look like numbers and are in no order; a list from a server that lags behind is then not noticed, and
    /// takes readers back in time.
    fn compare(&self, a: &str, b: &str) -> Option<Ordering> {
        compare_decimal(a, b)
    }

    /// Whether a watch may be asked to begin with the state ([`WatchParams::initial_events`]). A server that turns out
    /// not to know it is reported by [`SourceErrorKind::WatchListUnsupported`], and asked for lists from then on.
    fn supports_watch_list(&self) -> bool {
        false
    }
}

impl<L: ListerWatcher + ?Sized> ListerWatcher for Arc<L> {
    type Object = L::Object;

    fn meta<'a>(&self, object: &'a Self::Object) -> Meta<'a> {
        (**self).meta(object)
    }

    fn labels(&self, object: &Self::Object, emit: &mut dyn FnMut(&str, &str)) {
        (**self).labels(object, emit);
    }

    fn list(
        &self,
        stop: &Stop,
        params: &ListParams,
        sink: &mut dyn FnMut(Result<Self::Object, Undecodable>) -> ControlFlow<()>,
    ) -> Result<ListEnd, SourceError> {
        (**self).list(stop, params, sink)
    }

    fn watch(&self, stop: &Stop, params: &WatchParams) -> Result<Box<dyn WatchStream<Self::Object>>, SourceError> {
        (**self).watch(stop, params)
    }

    fn compare(&self, a: &str, b: &str) -> Option<Ordering> {
        (**self).compare(a, b)
    }

    fn supports_watch_list(&self) -> bool {
        (**self).supports_watch_list()
    }
}

/// Compares decimal versions of any length, as Kubernetes' are; `None` for anything that is not canonical decimal.
pub fn compare_decimal(a: &str, b: &str) -> Option<Ordering> {
    let canonical = |s: &str| !s.is_empty() && s.bytes().all(|c| c.is_ascii_digit()) && (s == "0" || !s.starts_with('0'));
    (canonical(a) && canonical(b)).then(|| a.len().cmp(&b.len()).then_with(|| a.cmp(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source that says nothing of the order of its versions.
    struct Plain;

    impl ListerWatcher for Plain {
        type Object = ();

        fn meta<'a>(&self, _: &'a ()) -> Meta<'a> {
            Meta::default()
        }

        fn list(
            &self,
            _: &Stop,
            _: &ListParams,
            _: &mut dyn FnMut(Result<(), Undecodable>) -> ControlFlow<()>,
        ) -> Result<ListEnd, SourceError> {
            Err(SourceErrorKind::NotFound.into())
        }

        fn watch(&self, _: &Stop, _: &WatchParams) -> Result<Box<dyn WatchStream<()>>, SourceError> {
            Err(SourceErrorKind::NotFound.into())
        }
    }

    #[test]
    fn a_source_that_says_nothing_has_decimal_versions_in_their_order_and_no_order_of_others() {
        assert_eq!(Plain.compare("9", "10"), Some(Ordering::Less));
        assert_eq!(Arc::new(Plain).compare("18446744073709551616", "2"), Some(Ordering::Greater));
        assert_eq!(Plain.compare("7", "7"), Some(Ordering::Equal));
        for (a, b) in [("a", "1"), ("1", ""), ("01", "2"), ("-1", "1")] {
            assert_eq!(Plain.compare(a, b), None, "{a:?} {b:?}");
        }
    }
}
