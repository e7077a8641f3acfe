//! The fault script: what the server does wrong, when, and to whom.
//!
//! Frames are counted without bookmarks.
//!
//! A [`Fault`] says what goes wrong (a constructor) and which requests it is for (the methods). Faults are looked at in
//! the order in which they were given to [`super::Server::faults`]; the first that fits a request and is not used up
//! strikes, one per request.

use super::{Resource, requests::Asked};
use crate::{
    source::{RequestKind, SourceErrorKind},
    sync::Instant,
};
use std::{any::TypeId, time::Duration};

/// Something that goes wrong with the next fitting request, once unless said otherwise.
#[derive(Clone, Debug)]
pub struct Fault {
    effect: Effect,
    delay: Option<Duration>,
    kind: Option<RequestKind>,
    of: Option<TypeId>,
    pages_only: bool,
    streams_only: bool,
    nth: u64,
    times: Option<u64>,
    until: Option<Instant>,
}

/// What a fault does to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing but its delay.
    Pass,
    /// The answer is this failure.
    Refuse(SourceErrorKind),
    /// No answer at all.
    Hang,
    /// The answer breaks off.
    Break { when: When, how: Break },
    /// The stream goes silent: no frames, no end.
    Silence { when: When },
    /// One object of the answer cannot be read.
    Garble { at: u64, key: bool },
    /// A streamed state does not say where it ends.
    NoEndMark,
    /// The server that answers has not seen the last so many versions.
    Behind(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// After this many objects.
    Frames(u64),
    /// This long after the stream was opened.
    After(Duration),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Break {
    Fail(SourceErrorKind),
    Clean,
}

impl Fault {
    fn new(effect: Effect) -> Self {
        Self {
            effect,
            delay: None,
            kind: None,
            of: None,
            pages_only: false,
            streams_only: false,
            nth: 1,
            times: Some(1),
            until: None,
        }
    }

    /// Of watches only, those that begin with the state included.
    fn of_streams(effect: Effect) -> Self {
        Self { streams_only: true, ..Self::new(effect) }
    }

    /// The request is answered with this failure: an error of `list` or of `watch`.
    pub fn refuse(kind: SourceErrorKind) -> Self {
        Self::new(Effect::Refuse(kind))
    }

    /// The right answer, late by `d`.
    pub fn delay(d: Duration) -> Self {
        Self { delay: Some(d), ..Self::new(Effect::Pass) }
    }

    /// No answer, until the caller gives up or the connection is cut.
    pub fn hang() -> Self {
        Self::new(Effect::Hang)
    }

    /// The answer begins and fails after `n` frames (bookmarks do not count), or items of a list; with zero at once, in
    /// the stream.
    pub fn fail_after(n: u64, kind: SourceErrorKind) -> Self {
        Self::new(Effect::Break { when: When::Frames(n), how: Break::Fail(kind) })
    }

    /// The stream fails `d` after it was opened. Watches only.
    pub fn fail_in(d: Duration, kind: SourceErrorKind) -> Self {
        Self::of_streams(Effect::Break { when: When::After(d), how: Break::Fail(kind) })
    }

    /// The connection is cut after `n` frames, or items of a list.
    pub fn cut_after(n: u64) -> Self {
        Self::fail_after(n, SourceErrorKind::Transport)
    }

    /// The server ends the stream in order after `n` frames. Watches only.
    pub fn close_after(n: u64) -> Self {
        Self::of_streams(Effect::Break { when: When::Frames(n), how: Break::Clean })
    }

    /// The server ends the stream in order `d` after it was opened. Watches only.
    pub fn close_in(d: Duration) -> Self {
        Self::of_streams(Effect::Break { when: When::After(d), how: Break::Clean })
    }

    /// After `n` frames the line is half open: nothing more comes, not even an end, until it is cut. Watches only.
    pub fn silence_after(n: u64) -> Self {
        Self::of_streams(Effect::Silence { when: When::Frames(n) })
    }

    /// From `d` after its opening on the line is half open: nothing more comes, not even an end, until it is cut.
    /// Watches only.
    pub fn silence_in(d: Duration) -> Self {
        Self::of_streams(Effect::Silence { when: When::After(d) })
    }

    /// A watch that begins with the state does not say where that ends, and goes on with the changes.
    pub fn no_end_mark() -> Self {
        Self::new(Effect::NoEndMark).on_streamed()
    }

    /// Another server of the same cluster answers, and stays `versions` behind: it takes that version for its newest.
    /// Consistent and exact lists come from the storage, and so are right.
    pub fn behind(versions: u64) -> Self {
        Self::new(Effect::Behind(versions))
    }

    /// The `n`-th object of the answer (the first is 1) cannot be decoded, though its key and version can.
    pub fn garble(n: u64) -> Self {
        Self::new(Effect::Garble { at: n, key: true })
    }

    /// The `n`-th object of the answer (the first is 1) cannot be decoded at all.
    pub fn garble_whole(n: u64) -> Self {
        Self::new(Effect::Garble { at: n, key: false })
    }

    /// Only lists.
    #[must_use]
    pub fn on_list(mut self) -> Self {
        self.kind = Some(RequestKind::List);
        self
    }

    /// Only lists that ask for a further page.
    #[must_use]
    pub fn on_pages(mut self) -> Self {
        self.pages_only = true;
        self.on_list()
    }

    /// Only watches, and none that begins with the state.
    #[must_use]
    pub fn on_watch(mut self) -> Self {
        self.kind = Some(RequestKind::Watch);
        self
    }

    /// Only watches that begin with the state.
    #[must_use]
    pub fn on_streamed(mut self) -> Self {
        self.kind = Some(RequestKind::StreamedList);
        self
    }

    /// Only requests for this resource.
    #[must_use]
    pub fn of<R: Resource>(mut self) -> Self {
        self.of = Some(TypeId::of::<R>());
        self
    }

    /// Not before the `n`-th fitting request from now on (the first is 1).
    #[must_use]
    pub fn nth(mut self, n: u64) -> Self {
        self.nth = n;
        self
    }

    /// For this many requests.
    #[must_use]
    pub fn times(mut self, n: u64) -> Self {
        self.times = Some(n);
        self
    }

    /// For every fitting request, until [`Fault::until`] or [`super::Server::clear_faults`].
    #[must_use]
    pub fn always(mut self) -> Self {
        self.times = None;
        self
    }

    /// Not at `at` and later.
    #[must_use]
    pub fn until(mut self, at: Instant) -> Self {
        self.until = Some(at);
        self
    }

    /// The answer, whatever it is, comes late by `d`.
    #[must_use]
    pub fn late_by(mut self, d: Duration) -> Self {
        self.delay = Some(d);
        self
    }
}

/// A fault that was given to the server.
struct Installed {
    fault: Fault,
    seen: u64,
    struck: u64,
}

impl Installed {
    fn fits(&self, of: TypeId, asked: &Asked, now: Instant) -> bool {
        let f = &self.fault;
        let page = matches!(asked, Asked::List(p) if p.continue_token.is_some());
        f.kind.is_none_or(|k| k == asked.kind())
            && f.of.is_none_or(|t| t == of)
            && (!f.pages_only || page)
            && (!f.streams_only || asked.kind() != RequestKind::List)
            && f.until.is_none_or(|t| now < t)
            && f.times.is_none_or(|n| self.struck < n)
    }
}

/// What strikes one request.
#[derive(Clone, Debug)]
pub(super) struct Strike {
    pub(super) effect: Effect,
    pub(super) delay: Option<Duration>,
}

/// The faults of a server.
#[derive(Default)]
pub(super) struct Script {
    installed: Vec<Installed>,
    struck: u64,
}

impl Script {
    pub(super) fn add(&mut self, fault: Fault) {
        self.installed.push(Installed { fault, seen: 0, struck: 0 });
    }

    pub(super) fn clear(&mut self) {
        self.installed.clear();
    }

    pub(super) fn struck(&self) -> u64 {
        self.struck
    }

    /// What strikes a request that arrives `now`. Every fault that fits counts it; the first that is due strikes.
    pub(super) fn strike(&mut self, of: TypeId, asked: &Asked, now: Instant) -> Option<Strike> {
        let mut found = None;
        for one in &mut self.installed {
            if !one.fits(of, asked, now) {
                continue;
            }
            one.seen += 1;
            if found.is_none() && one.seen >= one.fault.nth {
                one.struck += 1;
                found = Some(Strike { effect: one.fault.effect.clone(), delay: one.fault.delay });
            }
        }
        self.struck += u64::from(found.is_some());
        found
    }
}
