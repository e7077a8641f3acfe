//! Watches: opening one, reading it in batches, closing it.

use super::{
    failure::Place,
    ingest::{Ingested, RawStream, Share},
    list::explain,
    observe::{Ending, FailureKind, ReflectorEvent},
    probe::Probed,
    run::{Over, Run, Taken},
    streamed::Open,
};
use crate::{
    flow::{Deleted, Delta, Object, ObjectKey},
    source::{Next, SourceError, SourceErrorKind, WatchEvent, WatchParams},
    sync::{Deadline, Instant},
};
use std::{cmp::Ordering, time::Duration};

/// Frames handed over at once, at most.
const BATCH: u64 = 256;
/// A watch that stayed open for so long was a good one, whatever it brought. client-go: "very short watch".
const SHORT: Duration = Duration::from_secs(1);
/// How much longer than asked a server may keep a watch open before it is taken for dead.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// Why a stream is over.
enum End {
    Clean,
    Failed(SourceError),
    TimedOut,
    HalfOpen(String),
    NotReached(FailureKind, String),
    Unreadable(String),
    SinkRefused(String),
}

/// How a stream was.
struct Was {
    kind: FailureKind,
    message: String,
    /// A good one: it moved the position, or stayed open for a while.
    lived: bool,
    /// It brought nothing, and was not checked.
    unproved: bool,
}

/// One stream.
struct Reading {
    opened: Instant,
    deadline: Deadline,
    frames: u64,
    /// A frame moved the position.
    moved: bool,
    /// Where the position will be when the sink has taken the batch.
    ahead: String,
    /// The batch holds a frame of an object, and not only bookmarks.
    events: bool,
    /// When the silence is to be checked; `None` when it has been, or never is.
    probe_at: Option<Instant>,
    /// It has been checked once.
    probed: bool,
}

impl Run<'_> {
    /// Watches, and watches again, until a list is due. Begins with `open`, the rest of a watch that began with a state.
    pub(super) fn watches(&mut self, mut open: Option<Open>) -> Result<(), Over> {
        let mut after_broken = false;
        loop {
            let opened = match open.take() {
                Some(open) => Ok(open),
                None => self.watch()?,
            };
            let again = match opened {
                Err(error) => {
                    let (kind, message) = explain(error);
                    self.watch_failed(Place::Watch { after_broken: std::mem::take(&mut after_broken) }, kind, message)?
                }
                Ok(open) => {
                    let Was { kind, message, lived, unproved } = self.read(open)?;
                    after_broken = is_broken(&kind);
                    if kind != FailureKind::CleanEnd || !lived {
                        self.watch_failed(Place::Stream { lived }, kind, message)?
                    } else if unproved {
                        match self.probe()? {
                            Probed::Good => true,
                            Probed::Unclear(wait) => {
                                self.probe_again = self.now().checked_add(wait);
                                true
                            }
                            Probed::Dead(_) => {
                                after_broken = true;
                                true
                            }
                            Probed::NotReached(kind, message) => self.watch_failed(Place::Stream { lived }, kind, message)?,
                        }
                    } else {
                        true
                    }
                }
            };
            if !again {
                return Ok(());
            }
        }
    }

    /// Asks for a watch from the position.
    fn watch(&mut self) -> Result<Result<Open, SourceError>, Over> {
        self.alive()?;
        let params = WatchParams {
            from: self.position.clone(),
            timeout: self.watch_timeout(),
            bookmarks: true,
            initial_events: false,
            scope: self.core.options.scope.clone(),
        };
        self.tell(&ReflectorEvent::Watching { from: params.from.clone(), timeout: params.timeout });
        match self.core.source.watch(self.stop, &params) {
            Err(error) => {
                self.alive()?;
                Ok(Err(error))
            }
            Ok(stream) => {
                self.contact(|_| {});
                let opened = self.now();
                let deadline = Deadline::from(opened.checked_add(params.timeout.saturating_add(GRACE)));
                Ok(Ok(Open { stream, opened, deadline }))
            }
        }
    }

    pub(super) fn watch_timeout(&mut self) -> Duration {
        let (least, most) = self.core.options.watch_timeout;
        let drawn = least + most.saturating_sub(least).mul_f64(self.rng.f64());
        // Servers count whole seconds.
        let whole = Duration::from_secs(drawn.as_secs());
        if whole >= least { whole } else { drawn }
    }

    /// Reads a stream to its end and closes it. Says how it ended and whether it had been a good one.
    fn read(&mut self, open: Open) -> Result<Was, Over> {
        let Open { mut stream, opened, deadline } = open;
        let mut reading = Reading {
            opened,
            deadline,
            frames: 0,
            moved: false,
            ahead: self.position.clone(),
            events: false,
            probe_at: [self.probe_again.take(), self.silent_until(opened)].into_iter().flatten().min(),
            probed: false,
        };
        let end = self.read_on(&mut *stream, &mut reading);
        drop(stream);
        let (how, outcome) = match end {
            Err(Over::SinkClosed) => (Ending::SinkRefused, Err(Over::SinkClosed)),
            Err(Over::Stopped) => (Ending::Stopped, Err(Over::Stopped)),
            Ok(End::Clean) => {
                (Ending::Clean, Ok((FailureKind::CleanEnd, "the watch ended at once and brought nothing".to_owned())))
            }
            Ok(End::Failed(error)) => {
                let (kind, message) = explain(error);
                (Ending::Failed(kind_of(&kind)), Ok((kind, message)))
            }
            Ok(End::TimedOut) => {
                let message = "the server did not end the watch in time; the connection is taken for dead".to_owned();
                (Ending::TimedOut, Ok((FailureKind::Source(SourceErrorKind::Timeout), message)))
            }
            Ok(End::HalfOpen(why)) => (Ending::HalfOpen, Ok((FailureKind::Source(SourceErrorKind::Timeout), why))),
            Ok(End::NotReached(kind, message)) => (Ending::Failed(kind_of(&kind)), Ok((kind, message))),
            Ok(End::Unreadable(why)) => (Ending::Unreadable, Ok((FailureKind::Unreadable, why))),
            Ok(End::SinkRefused(why)) => (Ending::SinkRefused, Ok((FailureKind::SinkRefused, why))),
        };
        let lasted = self.now().since(reading.opened);
        self.tell(&ReflectorEvent::Ended { how, frames: reading.frames, lasted });
        let (kind, message) = outcome?;
        let lived = reading.moved || lasted >= SHORT;
        let silent = reading.frames == 0;
        if silent && reading.probed {
            // An unclear answer is not made clear by the end of the watch.
            self.probe_again = reading.probe_at;
        }
        Ok(Was { kind, message, lived, unproved: silent && !reading.probed && reading.probe_at.is_some() })
    }

    /// When a silence that begins now is to be checked.
    fn silent_until(&self, now: Instant) -> Option<Instant> {
        let silence = self.core.options.silence;
        if silence == Duration::MAX { None } else { now.checked_add(silence.max(SHORT)) }
    }

    /// Batches are what the stream has ready. Everything that came before an end is handed over before the end is
    /// looked at, so nothing of a watch is applied after the list that follows it.
    fn read_on(&mut self, stream: &mut dyn RawStream, reading: &mut Reading) -> Result<End, Over> {
        let core = self.core;
        let share = Share { sink: &*core.sink, reuse: false, shard: core.options.scope.shard };
        loop {
            self.alive()?;
            // Frames are counted, not deltas: what is not of our shard leaves no delta.
            let full = reading.frames + BATCH;
            let before = reading.frames;
            let wake = [reading.deadline.on(&core.options.clock), reading.probe_at].into_iter().flatten().min();
            let (wake, sinks) = self.or_due(Deadline::from(wake));
            let mut end = match stream.next(share, &self.wake, wake) {
                Next::Woken => {
                    core.sink.woken();
                    continue;
                }
                Next::Deadline if sinks => {
                    core.sink.woken();
                    continue;
                }
                Next::Deadline if self.is_silent(reading) => self.check(reading)?,
                next => self.take(next, reading)?,
            };
            while end.is_none() && reading.frames < full {
                let Some(next) = stream.ready(share) else { break };
                end = self.take(next, reading)?;
            }
            if !self.batch.is_empty() {
                if let Taken::Refused { some, why } = self.hand_over()? {
                    if some {
                        self.partly_taken();
                    }
                    self.refused(&why);
                    return Ok(End::SinkRefused(why));
                }
                if reading.ahead != self.position {
                    reading.moved = true;
                    let ahead = std::mem::take(&mut reading.ahead);
                    self.moved_to(&ahead);
                    reading.ahead = ahead;
                }
                self.accepted();
                let (now, events, stale) = (self.now(), std::mem::take(&mut reading.events), self.stale_objects());
                self.contact(|health| {
                    health.stale_objects = stale;
                    if events {
                        health.last_event = Some(now);
                    }
                });
            }
            if let Some(end) = end {
                return Ok(end);
            }
            if reading.frames > before {
                reading.probe_at = self.silent_until(self.now());
            }
        }
    }

    /// Whether the silence has lasted long enough, and the watch should not have ended by now.
    fn is_silent(&self, reading: &Reading) -> bool {
        let now = self.now();
        let over = reading.deadline.on(&self.core.options.clock).is_some_and(|at| now >= at);
        !over && reading.probe_at.is_some_and(|at| now >= at)
    }

    /// Checks a silent watch; once for each silence, unless the answer is unclear.
    fn check(&mut self, reading: &mut Reading) -> Result<Option<End>, Over> {
        (reading.probe_at, reading.probed) = (None, true);
        Ok(match self.probe()? {
            Probed::Good => None,
            Probed::Unclear(wait) => {
                reading.probe_at = self.now().checked_add(wait);
                None
            }
            Probed::NotReached(kind, message) => Some(End::NotReached(kind, message)),
            Probed::Dead(why) => Some(End::HalfOpen(format!("the watch is silent and the server does not answer either: {why}"))),
        })
    }

    /// Puts what the stream answered into the batch; `Some` when the stream is over.
    fn take(&mut self, next: Next<Ingested>, reading: &mut Reading) -> Result<Option<End>, Over> {
        let event = match next {
            Next::Event(event) => event,
            Next::End => return Ok(Some(End::Clean)),
            Next::Failed(error) => return Ok(Some(End::Failed(error))),
            Next::Deadline => return Ok(Some(End::TimedOut)),
            Next::Woken => return Ok(None),
            Next::Stopped => {
                self.alive()?;
                let error = SourceError::new(SourceErrorKind::Stopped).with_context("the source stopped by itself");
                return Ok(Some(End::Failed(error)));
            }
        };
        reading.frames += 1;
        let (object, delta, deleted): (Ingested, fn(Object<_>) -> Delta<_>, bool) = match event {
            WatchEvent::Added(o) => (o, Delta::Added, false),
            WatchEvent::Modified(o) => (o, Delta::Updated, false),
            WatchEvent::Deleted(o) => (o, |o| Delta::Deleted(Deleted::Observed(o)), true),
            WatchEvent::Undecodable { object, deleted } => (Err(object.into()), Delta::Updated, deleted),
            WatchEvent::Bookmark { version, .. } => {
                self.reached(Some(&version), None, reading);
                return Ok(None);
            }
        };
        match object {
            Ok(object) => {
                reading.events = true;
                if !self.stale.is_empty() {
                    self.stale.remove(Object::key(&object));
                }
                let backwards = {
                    let version = Object::version(&object);
                    self.advance(&version, Some(Object::key(&object)), reading)
                };
                self.batch.push(delta(object));
                if backwards {
                    // Its own version must not become the sink's.
                    self.batch.push(Delta::Bookmark { version: reading.ahead.clone() });
                }
                Ok(None)
            }
            Err(failed) => {
                self.skipped(&failed);
                let fails = !deleted && self.core.options.on_undecodable.fails(Some(&failed));
                if fails || failed.key.is_none() {
                    return Ok(Some(End::Unreadable(failed.describe())));
                }
                let Some(key) = failed.key else { return Ok(None) };
                if deleted {
                    // The deletion is sure, whatever the object was last.
                    reading.events = true;
                    self.stale.remove(&key);
                    self.batch.push(Delta::Deleted(Deleted::Missed { key: key.clone(), last_known: None }));
                    self.reached(failed.version.as_deref(), Some(&key), reading);
                } else {
                    self.reached(failed.version.as_deref(), Some(&key), reading);
                    self.stale.insert(key);
                }
                Ok(None)
            }
        }
    }

    /// A frame without an object to hand over; the sink is told how far the source is.
    fn reached(&mut self, version: Option<&str>, key: Option<&ObjectKey>, reading: &mut Reading) {
        if let Some(version) = version {
            self.advance(version, key, reading);
        }
        match self.batch.last_mut() {
            // Of several in a row the last says it all.
            Some(Delta::Bookmark { version }) => version.clone_from(&reading.ahead),
            _ => self.batch.push(Delta::Bookmark { version: reading.ahead.clone() }),
        }
    }

    /// Moves the position to come, never back. Says whether the frame lies before it.
    fn advance(&self, version: &str, key: Option<&ObjectKey>, reading: &mut Reading) -> bool {
        if version.is_empty() || version == reading.ahead {
            return false;
        }
        match self.core.source.compare(version, &reading.ahead) {
            Some(Ordering::Less) => {
                let (version, position) = (version.to_owned(), reading.ahead.clone());
                self.tell(&ReflectorEvent::Backwards { key: key.cloned(), version, position });
                true
            }
            Some(Ordering::Equal) => false,
            Some(Ordering::Greater) | None => {
                reading.ahead.clear();
                reading.ahead.push_str(version);
                false
            }
        }
    }
}

pub(super) fn kind_of(kind: &FailureKind) -> SourceErrorKind {
    match kind {
        FailureKind::Source(kind) => kind.clone(),
        FailureKind::CleanEnd | FailureKind::NoEndMark | FailureKind::Unreadable | FailureKind::SinkRefused => {
            SourceErrorKind::Other
        }
    }
}

/// Whether the stream's connection broke, so that others of the same pool may be dead too.
fn is_broken(kind: &FailureKind) -> bool {
    use SourceErrorKind::{Connect, Timeout, Transport};
    matches!(kind, FailureKind::Source(Connect | Timeout | Transport))
}
