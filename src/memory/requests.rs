//! The request log: what was asked, and what came of it.

use crate::{
    source::{ListParams, RequestKind, SourceErrorKind, WatchParams},
    sync::Instant,
};

/// One request that reached the server, or found nobody there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// Counts the requests of the server, from 1.
    pub number: u64,
    /// When it came.
    pub at: Instant,
    /// The type asked for, as [`std::any::type_name`] says it.
    pub resource: &'static str,
    /// What was asked.
    pub asked: Asked,
    /// What came of it so far.
    pub answer: Answer,
}

impl Request {
    /// List, watch, or a watch that begins with the state.
    pub const fn kind(&self) -> RequestKind {
        self.asked.kind()
    }

    /// The parameters, when it was a list.
    pub const fn list(&self) -> Option<&ListParams> {
        match &self.asked {
            Asked::List(p) => Some(p),
            Asked::Watch(_) => None,
        }
    }

    /// The parameters, when it was a watch of either kind.
    pub const fn watch(&self) -> Option<&WatchParams> {
        match &self.asked {
            Asked::Watch(p) => Some(p),
            Asked::List(_) => None,
        }
    }
}

/// The parameters of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A list.
    List(ListParams),
    /// A watch, perhaps one that begins with the state.
    Watch(WatchParams),
}

impl Asked {
    /// List, watch, or a watch that begins with the state.
    pub const fn kind(&self) -> RequestKind {
        match self {
            Self::List(_) => RequestKind::List,
            Self::Watch(p) if p.initial_events => RequestKind::StreamedList,
            Self::Watch(_) => RequestKind::Watch,
        }
    }
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing yet.
    Pending,
    /// A list.
    Listed {
        /// Its version.
        version: String,
        /// Its items; of this page when it was asked for in pages.
        items: usize,
        /// Whether more pages follow.
        more: bool,
    },
    /// A failure instead of an answer, or in the middle of a list.
    Failed(SourceErrorKind),
    /// The caller stopped it.
    Stopped,
    /// A watch was opened.
    Watched {
        /// Frames delivered so far, bookmarks included.
        frames: u64,
        /// How it ended, once it has.
        ended: Option<Ended>,
    },
}

/// How a watch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The server ended it in order.
    Clean,
    /// It broke, or the server reported this in it.
    Failed(SourceErrorKind),
    /// The watcher dropped it.
    Dropped,
}
