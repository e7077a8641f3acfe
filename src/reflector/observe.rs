//! What a reflector tells: [`ReflectorEvent`] to its hook as things happen, [`Health`] to whoever asks.

use crate::{
    flow::ObjectKey,
    source::{SourceErrorKind, VersionMatch},
    sync::{
        Arc, Instant,
        call_out::{self, Site},
    },
};
use std::time::Duration;

/// Something a reflector did or met. Every request, failure, fallback and wait is told, before it takes effect.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ReflectorEvent {
    /// A whole state is asked for. Its pages are not told one by one.
    Listing {
        /// Why the reflector wants one. Stays the same while it tries again.
        reason: ListReason,
        /// How new it has to be.
        version: VersionMatch,
        /// Items per page.
        limit: Option<u32>,
        /// As the beginning of a watch. That goes on after it; no [`ReflectorEvent::Watching`] follows.
        streamed: bool,
    },
    /// The sink has taken a whole state.
    Listed {
        /// Its version.
        version: String,
        /// Objects in it, without those that were skipped.
        objects: usize,
        /// From the request to here.
        took: Duration,
    },
    /// A watch is asked for.
    Watching {
        /// Changes after this version.
        from: String,
        /// How long the server was asked to keep the stream open.
        timeout: Duration,
    },
    /// A stream was closed. What follows is told by [`ReflectorEvent::Failed`], except for an orderly end after which
    /// the reflector watches on at once.
    Ended {
        /// How.
        how: Ending,
        /// Frames it brought.
        frames: u64,
        /// From the server's answer to here; of a stream that began with a state, from the end of that.
        lasted: Duration,
    },
    /// A request failed, a stream ended in a way that is no good, or the sink refused.
    Failed {
        /// What was being done.
        during: During,
        /// What went wrong.
        kind: FailureKind,
        /// What the reflector does about it.
        action: Action,
        /// How long it waits first.
        wait: Duration,
        /// For people.
        message: String,
    },
    /// A watch brought nothing for a while, so the server was asked whether it has reached the version watched from.
    Probed {
        /// That version.
        from: String,
        /// What came instead of an answer. `None`: the watch is good. `TooLargeVersion`: it is not, and
        /// [`ReflectorEvent::Failed`] follows. `Timeout`, `Transport`, `Connect` or `ConnectionRefused`: nobody answers,
        /// the stream is closed. Anything else proves that the server is there, and no more.
        failure: Option<SourceErrorKind>,
        /// When it is asked again, if the watch stays silent.
        again: Option<Duration>,
        /// From the request to here.
        took: Duration,
    },
    /// A consistent list proved that versions began anew, as after a restored backup. Versions of before mean nothing.
    Era {
        /// The last version of the old era.
        old: String,
        /// The first of the new one.
        new: String,
    },
    /// An object could not be read or transformed. What the sink has for it stays.
    Skipped {
        /// Which, when that much could be read.
        key: Option<ObjectKey>,
        /// Its version, when that much could be read.
        version: Option<String>,
        /// What is wrong.
        why: String,
    },
    /// A watch brought a frame with a version below one seen before. It was applied; the position did not move back.
    Backwards {
        /// Which object; `None` for a bookmark.
        key: Option<ObjectKey>,
        /// The version of the frame.
        version: String,
        /// The position.
        position: String,
    },
    /// The sink did not take what it was given.
    Refused {
        /// Which object, when it was about one.
        key: Option<ObjectKey>,
        /// What it said.
        why: String,
    },
}

/// Why a whole state is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ListReason {
    /// There is none yet.
    First,
    /// The version watched from is older than the server's history.
    Expired,
    /// The server has not reached the version watched from.
    TooLargeVersion,
    /// The server could not read its own store.
    StoreReadError,
    /// Watching failed three times in a row without bringing anything.
    Repeated,
    /// The sink did not take a batch of the watch.
    SinkRefused,
    /// A watch brought an object that could not be read, and nobody knows which, or that was not to be passed over.
    Unreadable,
}

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// The server ended it in order.
    Clean,
    /// It broke, or the server reported an error in it.
    Failed(SourceErrorKind),
    /// The server should have ended it by now, or said where its state ends, and did not; the reflector closed it.
    TimedOut,
    /// It was silent, and the server did not answer either; the reflector closed it.
    HalfOpen,
    /// It brought an object that could not be read, and nobody knows which, or that was not to be passed over; the
    /// reflector closed it.
    Unreadable,
    /// The sink refused a batch; the reflector closed it.
    SinkRefused,
    /// The reflector was stopped.
    Stopped,
}

/// What was being done when something failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum During {
    /// Asking for a whole state, or handing it over.
    List,
    /// Asking for a watch.
    Watch,
    /// Reading a watch, or handing over what it brought.
    Stream,
    /// Asking whether a silent watch is good.
    Probe,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// The source failed.
    Source(SourceErrorKind),
    /// The server ended a watch in order, but so soon that something must be wrong.
    CleanEnd,
    /// A frame did not say which object it is about; or an object could not be read, and was not to be passed over
    /// ([`OnUndecodable::Fail`](super::OnUndecodable)).
    Unreadable,
    /// A stream ended in order before it had said where its state ends, or did not say so.
    NoEndMark,
    /// The sink refused.
    SinkRefused,
}

/// What the reflector does about a failure, after the wait that is told with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// The same list again, from its first page.
    SameRequest,
    /// The same list in one page.
    Unpaged,
    /// The same state, by a list and not as a stream.
    AsList,
    /// A list of the most recent state, whatever was asked before.
    MostRecent,
    /// A list not older than what the sink has.
    InitialState,
    /// A watch from where the last one was.
    SameWatch,
}

/// How a reflector is doing.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Health {
    /// When the server last answered anything, an error included.
    pub last_contact: Option<Instant>,
    /// When the sink last took an object of a watch.
    pub last_event: Option<Instant>,
    /// The last failure, never cleared.
    pub last_error: Option<LastError>,
    /// Objects whose newest state could not be read or transformed. An older one may be stored.
    pub stale_objects: usize,
}

/// The last failure of a reflector.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LastError {
    /// When.
    pub at: Instant,
    /// What was being done.
    pub during: During,
    /// What went wrong.
    pub kind: FailureKind,
    /// For people.
    pub message: String,
}

/// Whether a failure proves that a server is there.
pub(super) fn answered(kind: &FailureKind) -> bool {
    use SourceErrorKind as K;
    match kind {
        FailureKind::CleanEnd | FailureKind::Unreadable => true,
        FailureKind::SinkRefused | FailureKind::NoEndMark => false,
        FailureKind::Source(kind) => matches!(
            kind,
            K::Expired
                | K::TooLargeVersion { .. }
                | K::TooManyRequests { .. }
                | K::Unauthorized
                | K::Forbidden
                | K::NotFound
                | K::WatchListUnsupported
                | K::Server { .. }
        ),
    }
}

/// An `observe` hook, shared.
pub(crate) type Hook = Arc<dyn Fn(&ReflectorEvent) + Send + Sync>;

/// Calls the hook, when there is one. A panic in it is contained.
pub(super) fn tell(hook: Option<&Hook>, event: &ReflectorEvent) {
    if let Some(hook) = hook {
        call_out::contain(Site::Hook, || hook(event));
    }
}
