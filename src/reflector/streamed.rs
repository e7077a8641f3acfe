//! A whole state as the beginning of a watch: its objects, a mark behind the last, and the same stream goes on.
//!
//! Nothing of it reaches the sink before the mark, so what is there stays whole until the new state is. A stream that
//! ends in order before its mark, or brings nothing for [`MARK`], has no mark; see the room's table.

use super::{
    Core,
    ingest::{Failed, Ingested, RawStream, Share},
    list::{NoState, State, explain, without_version},
    observe::{Ending, FailureKind, ReflectorEvent},
    run::Run,
    watch::{GRACE, kind_of},
};
use crate::{
    flow::{Object, ObjectKey, Opaque},
    source::{Next, SourceError, SourceErrorKind, VersionMatch, WatchEvent, WatchParams},
    sync::{Deadline, Instant},
};
use std::{collections::HashMap, time::Duration};

/// A stream that owes its mark, and brings nothing for so long, will not bring it.
const MARK: Duration = Duration::from_secs(30);

/// A stream that goes on after its state, or was just opened.
pub(super) struct Open {
    pub(super) stream: Box<dyn RawStream>,
    /// Of the stream, or of its first frame after the state.
    pub(super) opened: Instant,
    /// When the server should have ended it.
    pub(super) deadline: Deadline,
}

/// Objects as they come, before it is known that they are all.
#[derive(Default)]
struct Gathering {
    /// In the order of arrival. A deleted one leaves its place empty.
    objects: Vec<Option<Object<Opaque>>>,
    places: HashMap<ObjectKey, usize>,
    failed: Vec<Failed>,
}

impl Gathering {
    fn put(&mut self, object: Object<Opaque>) {
        let key = Object::key(&object);
        self.forgive(key);
        match self.places.get(key) {
            Some(place) => self.objects[*place] = Some(object),
            None => {
                self.places.insert(key.clone(), self.objects.len());
                self.objects.push(Some(object));
            }
        }
    }

    fn remove(&mut self, key: &ObjectKey) {
        self.forgive(key);
        if let Some(place) = self.places.remove(key) {
            self.objects[place] = None;
        }
    }

    /// What could not be had before does not matter any more.
    fn forgive(&mut self, key: &ObjectKey) {
        if !self.failed.is_empty() {
            self.failed.retain(|f| f.key.as_ref() != Some(key));
        }
    }

    /// Takes a frame. The version of the state, when that was its mark.
    fn take(&mut self, event: WatchEvent<Ingested>) -> Option<String> {
        let (object, deleted) = match event {
            WatchEvent::Added(o) | WatchEvent::Modified(o) => (o, false),
            WatchEvent::Deleted(o) => (o, true),
            WatchEvent::Undecodable { object, deleted } => (Err(object.into()), deleted),
            WatchEvent::Bookmark { version, initial_events_end: true } => return Some(version),
            WatchEvent::Bookmark { .. } => return None,
        };
        match object {
            Ok(object) if deleted => self.remove(Object::key(&object)),
            Ok(object) => self.put(object),
            Err(Failed { key: Some(key), .. }) if deleted => self.remove(&key),
            // An earlier state of it that came stays: it is newer than what the sink has.
            Err(failed) => self.failed.push(failed),
        }
        None
    }

    fn finish(self, version: String) -> State {
        State { version, objects: self.objects.into_iter().flatten().collect(), failed: self.failed, paged: false }
    }
}

/// Why a stream before its mark is over.
enum End {
    NoMark { by_server: bool },
    Failed(SourceError),
    Unreadable(String),
    Stopped,
}

impl Run<'_> {
    /// Asks for a state as a stream and reads it up to its mark. The stream goes on.
    pub(super) fn streamed(&mut self, share: Share<'_>, version: &VersionMatch) -> Result<(State, Open), NoState> {
        let core = self.core;
        let from = match version {
            VersionMatch::NotOlderThan(v) | VersionMatch::Exact(v) => v.clone(),
            VersionMatch::MostRecent | VersionMatch::Any => String::new(),
        };
        let timeout = self.watch_timeout();
        let scope = core.options.scope.clone();
        let params = WatchParams { from, timeout, bookmarks: true, initial_events: true, scope };
        let opened = core.source.watch(self.stop, &params);
        if self.stop.is_stopped() {
            return Err(NoState::Stopped);
        }
        let mut stream = opened.map_err(|e| NoState::failed(e, false))?;
        self.contact(|_| {});
        let opened = self.now();
        let deadline = Deadline::from(opened.checked_add(timeout.saturating_add(GRACE)));
        let mut frames = 0;
        match self.gather(core, &mut *stream, share, deadline, &mut frames) {
            Ok(state) => Ok((state, Open { stream, opened: self.now(), deadline })),
            Err(end) => {
                drop(stream);
                let (how, why) = match end {
                    End::Stopped => (Ending::Stopped, None),
                    End::NoMark { by_server } => {
                        let (how, what) = if by_server {
                            (Ending::Clean, "the server ended the stream before the end of its state")
                        } else {
                            (Ending::TimedOut, "the server does not say where the state ends")
                        };
                        (how, Some((FailureKind::NoEndMark, what.to_owned())))
                    }
                    End::Unreadable(why) => (Ending::Unreadable, Some((FailureKind::Unreadable, why))),
                    End::Failed(error) => {
                        let (kind, message) = explain(error);
                        (Ending::Failed(kind_of(&kind)), Some((kind, message)))
                    }
                };
                self.tell(&ReflectorEvent::Ended { how, frames, lasted: self.now().since(opened) });
                Err(why.map_or(NoState::Stopped, |(kind, message)| NoState::Failed { kind, message, later_page: false }))
            }
        }
    }

    fn gather(
        &self,
        core: &Core,
        stream: &mut dyn RawStream,
        share: Share<'_>,
        deadline: Deadline,
        frames: &mut u64,
    ) -> Result<State, End> {
        let mut state = Gathering::default();
        let ends = deadline.on(&core.options.clock);
        // When the wait for the next frame is over; unset while frames come without a wait.
        let mut quiet = None;
        loop {
            if self.stop.is_stopped() {
                return Err(End::Stopped);
            }
            let next = stream.ready(share).unwrap_or_else(|| {
                let quiet = *quiet.get_or_insert_with(|| self.now().checked_add(MARK));
                stream.next(share, &self.wake, Deadline::from([quiet, ends].into_iter().flatten().min()))
            });
            match next {
                Next::Event(event) => {
                    *frames += 1;
                    quiet = None;
                    match state.take(event) {
                        Some(version) if version.is_empty() => return Err(End::Failed(without_version())),
                        Some(version) => return Ok(state.finish(version)),
                        None => {}
                    }
                    if core.options.on_undecodable.fails(state.failed.last()) {
                        let why = state.failed.pop().map_or(String::new(), |f| f.describe());
                        return Err(End::Unreadable(why));
                    }
                }
                Next::End => return Err(End::NoMark { by_server: true }),
                Next::Failed(error) => return Err(End::Failed(error)),
                Next::Deadline => return Err(End::NoMark { by_server: false }),
                Next::Woken => core.sink.woken(),
                Next::Stopped if self.stop.is_stopped() => return Err(End::Stopped),
                Next::Stopped => {
                    let error = SourceError::new(SourceErrorKind::Stopped).with_context("the source stopped by itself");
                    return Err(End::Failed(error));
                }
            }
        }
    }
}
