//! From a source's objects to ours: the only part of the reflector that is compiled once per type.
//!
//! Every object that is received takes the same way, whatever brought it: its metadata is read once, the transform is
//! applied once, the [`Object`] is made, and its type is forgotten. What cannot be had becomes a [`Failed`] that says
//! as much of the object as could be read. An object of another shard goes no further than its metadata: a list passes
//! over it, and of a frame of a watch its version is left, as a bookmark. Every call of the source's and the transform's code is contained here, so
//! that the loop above sees values only.

use crate::{
    flow::{DeltaSink, KeyRef, Label, Meta, Object, ObjectKey, Opaque},
    source::{
        ListEnd, ListParams, ListerWatcher, Next, Shard, SourceError, SourceErrorKind, Undecodable, WatchEvent, WatchParams,
        WatchStream,
    },
    sync::{
        Arc, Deadline, Stop, Wake,
        call_out::{self, Foreign, Panicked, Site},
    },
};
use std::{cmp::Ordering, fmt, ops::ControlFlow};

/// An object as it came in, or what is left of it.
pub(crate) type Ingested = Result<Object<Opaque>, Failed>;

/// An object that could not be had: not decoded, not named, or not transformed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    /// Which, when that much is known.
    pub(crate) key: Option<ObjectKey>,
    /// Its version, when that much is known.
    pub(crate) version: Option<String>,
    /// What went wrong.
    pub(crate) why: String,
    /// The source could not decode it. Else it has no proper name, or was not transformed.
    pub(crate) undecodable: bool,
}

impl Failed {
    fn new(key: Option<ObjectKey>, version: Option<String>, why: String) -> Self {
        Self { key, version, why, undecodable: false }
    }

    /// For people.
    pub(crate) fn describe(&self) -> String {
        match &self.key {
            Some(key) => format!("{key} cannot be read: {}", self.why),
            None => self.why.clone(),
        }
    }
}

/// An object of another shard.
struct NotOurs {
    version: String,
}

/// What incoming objects may share with those that the sink has.
#[derive(Clone, Copy)]
pub(crate) struct Share<'a> {
    /// Asked for the object that it has under a key.
    pub(crate) sink: &'a dyn DeltaSink<Opaque>,
    /// Whether an object with the same version is the same, and the one there can stand for the one that came.
    pub(crate) reuse: bool,
    /// Only these objects are wanted.
    pub(crate) shard: Option<Shard>,
}

impl Share<'_> {
    fn wants(&self, namespace: &str, name: &str) -> bool {
        self.shard.is_none_or(|shard| shard.owns(namespace, name))
    }

    /// Whether it is wanted; yes, when nobody knows which object it is.
    fn wants_failed(&self, key: Option<&ObjectKey>) -> bool {
        key.is_none_or(|key| self.wants(key.namespace(), key.name()))
    }
}

/// A source whose types are forgotten. Nothing in it panics.
pub(crate) trait RawSource: Send + Sync {
    /// [`ListerWatcher::list`].
    fn list(
        &self,
        stop: &Stop,
        params: &ListParams,
        share: Share<'_>,
        out: &mut dyn FnMut(Ingested) -> ControlFlow<()>,
    ) -> Result<ListEnd, SourceError>;

    /// [`ListerWatcher::watch`].
    fn watch(&self, stop: &Stop, params: &WatchParams) -> Result<Box<dyn RawStream>, SourceError>;

    /// [`ListerWatcher::list`], of which only the end matters.
    fn probe(&self, stop: &Stop, params: &ListParams) -> Result<ListEnd, SourceError>;

    /// [`ListerWatcher::compare`].
    fn compare(&self, a: &str, b: &str) -> Option<Ordering>;

    /// [`ListerWatcher::supports_watch_list`].
    fn supports_watch_list(&self) -> bool;
}

/// An open watch of a [`RawSource`]. Dropping it closes it.
pub(crate) trait RawStream: Send {
    /// [`WatchStream::next`].
    fn next(&mut self, share: Share<'_>, wake: &Wake, deadline: Deadline) -> Next<Ingested>;

    /// [`WatchStream::ready`].
    fn ready(&mut self, share: Share<'_>) -> Option<Next<Ingested>>;
}

/// Erases a source. `transform` is applied to each object that it brings.
pub(crate) fn ingest<L, T, E>(
    source: L,
    transform: impl Fn(L::Object) -> Result<T, E> + Send + Sync + 'static,
) -> Arc<dyn RawSource>
where
    L: ListerWatcher,
    T: Send + Sync + 'static,
    E: fmt::Display,
{
    Arc::new(Arc::new(Ingest { source: Foreign::new(source), transform: Foreign::new(transform) }))
}

struct Ingest<L, F> {
    source: Foreign<L>,
    transform: Foreign<F>,
}

/// The part of [`Ingest`] that an open stream needs; hides the transform's type from it.
trait Take<O>: Send + Sync {
    fn take(&self, raw: O, share: Share<'_>) -> Result<Ingested, NotOurs>;
}

impl<L, F, T, E> Take<L::Object> for Ingest<L, F>
where
    L: ListerWatcher,
    F: Fn(L::Object) -> Result<T, E> + Send + Sync,
    T: Send + Sync + 'static,
    E: fmt::Display,
{
    fn take(&self, raw: L::Object, share: Share<'_>) -> Result<Ingested, NotOurs> {
        let raw = Foreign::new(raw);
        let (label, known) = match call_out::call(Site::Source, || self.source.meta(&raw)) {
            Ok(meta) if !share.wants(meta.namespace, meta.name) => return Err(NotOurs { version: meta.version.to_owned() }),
            Ok(meta) => match name(meta, share) {
                Ok(named) => named,
                Err(failed) => return Ok(Err(failed)),
            },
            Err(panicked) => return Ok(Err(Failed::new(None, None, panicked.to_string()))),
        };
        let raw = raw.into_inner();
        let transformed = call_out::call(Site::Transform, || (self.transform)(raw).map_err(|e| e.to_string()));
        Ok(match transformed.unwrap_or_else(|panicked| Err(panicked.to_string())) {
            Ok(value) => match known.filter(|known| share.reuse && label.same_version(known)) {
                Some(known) => {
                    drop(Foreign::new(value));
                    Ok(known)
                }
                None => Ok(Object::with_label(label, value).erase()),
            },
            Err(why) => {
                let version = Some(label.version().to_string()).filter(|v| !v.is_empty());
                Err(Failed::new(Some(label.key().clone()), version, why))
            }
        })
    }
}

/// Reads the metadata. The key of a known object lends its text.
fn name(meta: Meta<'_>, share: Share<'_>) -> Result<(Label, Option<Object<Opaque>>), Failed> {
    let known = share.sink.known(KeyRef { namespace: meta.namespace, name: meta.name });
    let key = match &known {
        Some(known) => Ok(Object::key(known).clone()),
        None => ObjectKey::new(meta.namespace, meta.name),
    };
    match key {
        Ok(key) => Ok((Label::new(key, meta.version, meta.uid), known)),
        Err(e) => {
            let version = Some(meta.version.to_owned()).filter(|v| !v.is_empty());
            Err(Failed::new(None, version, e.to_string()))
        }
    }
}

impl<L, F> RawSource for Arc<Ingest<L, F>>
where
    L: ListerWatcher,
    Ingest<L, F>: Take<L::Object>,
    F: Send + Sync + 'static,
{
    fn list(
        &self,
        stop: &Stop,
        params: &ListParams,
        share: Share<'_>,
        out: &mut dyn FnMut(Ingested) -> ControlFlow<()>,
    ) -> Result<ListEnd, SourceError> {
        let mut sink = |raw: Result<L::Object, Undecodable>| match raw {
            Ok(raw) => self.take(raw, share).map_or(ControlFlow::Continue(()), &mut *out),
            Err(u) if share.wants_failed(u.key.as_ref()) => out(Err(u.into())),
            Err(_) => ControlFlow::Continue(()),
        };
        call_out::call(Site::Source, || self.source.list(stop, params, &mut sink)).unwrap_or_else(|p| Err(panicked(p)))
    }

    fn watch(&self, stop: &Stop, params: &WatchParams) -> Result<Box<dyn RawStream>, SourceError> {
        let stream = call_out::call(Site::Source, || self.source.watch(stop, params)).unwrap_or_else(|p| Err(panicked(p)))?;
        Ok(Box::new(Stream { take: self.clone(), stream: Some(stream) }))
    }

    fn probe(&self, stop: &Stop, params: &ListParams) -> Result<ListEnd, SourceError> {
        let mut sink = |raw: Result<L::Object, Undecodable>| {
            drop(raw);
            ControlFlow::Continue(())
        };
        call_out::call(Site::Source, || self.source.list(stop, params, &mut sink)).unwrap_or_else(|p| Err(panicked(p)))
    }

    fn compare(&self, a: &str, b: &str) -> Option<Ordering> {
        call_out::call(Site::Source, || self.source.compare(a, b)).ok().flatten()
    }

    fn supports_watch_list(&self) -> bool {
        call_out::call(Site::Source, || self.source.supports_watch_list()).unwrap_or(false)
    }
}

struct Stream<O> {
    take: Arc<dyn Take<O>>,
    /// Always there; an option only so that `Drop` can take it.
    stream: Option<Box<dyn WatchStream<O>>>,
}

impl<O> Stream<O> {
    fn turn(&self, next: Next<O>, share: Share<'_>) -> Next<Ingested> {
        let passed = |version| Next::Event(WatchEvent::Bookmark { version, initial_events_end: false });
        let take = |o, frame: fn(Ingested) -> WatchEvent<Ingested>| match self.take.take(o, share) {
            Ok(ingested) => Next::Event(frame(ingested)),
            Err(NotOurs { version }) => passed(version),
        };
        match next {
            Next::Event(WatchEvent::Added(o)) => take(o, WatchEvent::Added),
            Next::Event(WatchEvent::Modified(o)) => take(o, WatchEvent::Modified),
            Next::Event(WatchEvent::Deleted(o)) => take(o, WatchEvent::Deleted),
            Next::Event(WatchEvent::Bookmark { version, initial_events_end }) => {
                Next::Event(WatchEvent::Bookmark { version, initial_events_end })
            }
            Next::Event(WatchEvent::Undecodable { object, deleted }) if share.wants_failed(object.key.as_ref()) => {
                Next::Event(WatchEvent::Undecodable { object, deleted })
            }
            Next::Event(WatchEvent::Undecodable { object, .. }) => passed(object.version.unwrap_or_default()),
            Next::Failed(e) => Next::Failed(e),
            Next::End => Next::End,
            Next::Deadline => Next::Deadline,
            Next::Woken => Next::Woken,
            Next::Stopped => Next::Stopped,
        }
    }
}

impl<O: Send + Sync + 'static> RawStream for Stream<O> {
    fn next(&mut self, share: Share<'_>, wake: &Wake, deadline: Deadline) -> Next<Ingested> {
        let Some(stream) = &mut self.stream else { return Next::End };
        let next = call_out::call(Site::Source, || stream.next(wake, deadline)).unwrap_or_else(|p| Next::Failed(panicked(p)));
        self.turn(next, share)
    }

    fn ready(&mut self, share: Share<'_>) -> Option<Next<Ingested>> {
        let stream = self.stream.as_mut()?;
        let ready = call_out::call(Site::Source, || stream.ready()).unwrap_or_else(|p| Some(Next::Failed(panicked(p))));
        ready.map(|next| self.turn(next, share))
    }
}

impl<O> Drop for Stream<O> {
    fn drop(&mut self) {
        let stream = self.stream.take();
        call_out::contain(Site::Source, move || drop(stream));
    }
}

impl From<Undecodable> for Failed {
    fn from(u: Undecodable) -> Self {
        Self { undecodable: true, ..Self::new(u.key, u.version, u.why) }
    }
}

/// A panic of a source counts as a failure of no special class.
fn panicked(p: Panicked) -> SourceError {
    SourceError::caused_by(SourceErrorKind::Other, p)
}
