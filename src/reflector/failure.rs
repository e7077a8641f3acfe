//! What a failure does: one function from what happened to what is done about it.
//!
//! It knows nothing of clocks and counters; the run loop turns its verdict into a wait and a request. The table in the
//! room's documentation is this function in words.

use super::observe::{Action, FailureKind};
use crate::source::SourceErrorKind as Kind;

/// What was being done when it happened, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Asking for a whole state, or handing it over.
    List {
        /// How new the state was to be.
        asked: Asked,
        /// On a page after the first of a list that may be asked again in one page.
        later_page: bool,
        /// As a stream.
        streamed: bool,
    },
    /// Asking for a watch.
    Watch {
        /// It was the first request since a stream broke: the connection may have been a dead one out of a pool.
        after_broken: bool,
    },
    /// Reading a watch, or handing over what it brought.
    Stream {
        /// It brought a frame that moved the position, or stayed open for a while.
        lived: bool,
    },
}

/// How new a list was to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Anything would do.
    Anything,
    /// Not older than a version.
    Version,
    /// The most recent state.
    MostRecent,
}

/// What happened before, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Past {
    /// A version that was too large has sent us to the most recent state once, and no frame was accepted since.
    pub(super) too_large: bool,
    /// The last list made because of an expired version began a short while ago.
    pub(super) expired_lately: bool,
    /// A connection was refused a short while ago. The server may be on its way back, and say no to what it will allow or
    /// have in a moment.
    pub(super) returning: bool,
}

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// Not at all.
    None,
    /// A random part of the relist spread.
    Spread,
    /// A step of the ladder for failures in general, at least what the server asked for.
    Backoff,
    /// A step of the ladder for refused connections.
    Refused,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) pause: Pause,
    pub(super) action: Action,
    /// The third such failure in a row makes a list of a watch.
    pub(super) counts: bool,
}

impl Verdict {
    const fn new(pause: Pause, action: Action) -> Self {
        Self { pause, action, counts: false }
    }

    /// Counts, unless a list is asked for anyway.
    const fn counted(self) -> Self {
        Self { counts: matches!(self.action, Action::SameWatch), ..self }
    }
}

pub(super) fn judge(place: Place, kind: &FailureKind, past: Past) -> Verdict {
    use Action::{AsList, InitialState, MostRecent, SameRequest, SameWatch, Unpaged};
    let again = Verdict::new(Pause::Backoff, if matches!(place, Place::List { .. }) { SameRequest } else { SameWatch });
    let anew = Verdict::new(Pause::Backoff, if matches!(place, Place::List { .. }) { SameRequest } else { InitialState });
    let kind = match kind {
        FailureKind::SinkRefused | FailureKind::Unreadable => return anew,
        // The third such failure in a row makes a list of a stream; the run loop counts them.
        FailureKind::NoEndMark => return again,
        FailureKind::CleanEnd if matches!(place, Place::Stream { lived: true }) => return Verdict::new(Pause::None, SameWatch),
        FailureKind::CleanEnd => return again.counted(),
        FailureKind::Source(kind) => kind,
    };
    match (kind, place) {
        (Kind::Server { code: 500, reason, .. }, _) if reason == "StoreReadError" => anew,

        (Kind::Expired, Place::List { later_page: true, .. }) => Verdict::new(Pause::None, Unpaged),
        // The most recent state cannot be too old; asking the very same again at once would be no other question.
        (Kind::Expired, Place::List { asked: Asked::MostRecent, .. }) => again,
        (Kind::Expired, Place::List { .. }) => Verdict::new(Pause::None, MostRecent),
        (Kind::Expired, _) if past.expired_lately => anew,
        (Kind::Expired, _) => Verdict::new(Pause::Spread, InitialState),

        (Kind::TooLargeVersion { .. }, Place::List { asked: Asked::MostRecent, .. }) => again,
        (Kind::TooLargeVersion { .. }, _) if past.too_large => Verdict::new(Pause::Backoff, MostRecent),
        (Kind::TooLargeVersion { .. }, _) => Verdict::new(Pause::None, MostRecent),

        (Kind::TooManyRequests { .. } | Kind::Server { retry_after: Some(_), .. }, _) => again,
        (Kind::ConnectionRefused, _) => Verdict { pause: Pause::Refused, ..again },

        (
            Kind::Connect | Kind::Timeout | Kind::Transport,
            Place::Watch { after_broken: true } | Place::Stream { lived: true },
        ) => Verdict::new(Pause::None, SameWatch),
        (Kind::Connect | Kind::Timeout | Kind::Transport, _) => again,

        (Kind::Unauthorized | Kind::Forbidden | Kind::NotFound, _) if past.returning => {
            Verdict { pause: Pause::Refused, ..again }
        }
        (Kind::Unauthorized | Kind::Forbidden | Kind::NotFound, _) => again,

        (Kind::WatchListUnsupported, Place::List { streamed: true, .. }) => Verdict::new(Pause::None, AsList),

        (Kind::Server { code: 400 | 422, .. }, Place::List { asked: Asked::Version, .. }) => {
            Verdict::new(Pause::None, MostRecent)
        }

        _ => again.counted(),
    }
}
