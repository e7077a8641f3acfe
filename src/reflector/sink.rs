//! A user's own sink behind the erased port.

use crate::{
    flow::{Deleted, Delta, DeltaSink, KeyRef, Object, Opaque, SinkError},
    sync::{
        Deadline, Wake,
        call_out::{self, Foreign, Site},
    },
};
use std::marker::PhantomData;

/// Gives the deltas their type back, and contains what the sink does: a panic in it is a refusal.
pub(super) struct TypedSink<T, S> {
    inner: Foreign<S>,
    of: PhantomData<fn(T)>,
}

impl<T, S> TypedSink<T, S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner: Foreign::new(inner), of: PhantomData }
    }
}

impl<T: Send + Sync + 'static, S: DeltaSink<T>> DeltaSink<Opaque> for TypedSink<T, S> {
    fn apply(&self, batch: &mut Vec<Delta<Opaque>>) -> Result<(), SinkError> {
        let mut typed: Vec<Delta<T>> = batch.drain(..).map(|d| turn(d, Object::typed)).collect();
        let outcome = call_out::call(Site::Sink, || self.inner.apply(&mut typed));
        batch.extend(typed.into_iter().map(|d| turn(d, Object::erase)));
        outcome.unwrap_or_else(|panicked| Err(SinkError::Refused(panicked.into())))
    }

    fn listens(&self, wake: &Wake) {
        call_out::contain(Site::Sink, || self.inner.listens(wake));
    }

    fn due(&self) -> Deadline {
        call_out::call(Site::Sink, || self.inner.due()).unwrap_or(Deadline::never())
    }

    fn woken(&self) {
        call_out::contain(Site::Sink, || self.inner.woken());
    }

    fn known(&self, key: KeyRef<'_>) -> Option<Object<Opaque>> {
        call_out::call(Site::Sink, || self.inner.known(key)).ok().flatten().map(Object::erase)
    }
}

/// The same delta of objects of another type.
fn turn<A, B>(delta: Delta<A>, f: impl Fn(Object<A>) -> Object<B>) -> Delta<B> {
    match delta {
        Delta::Added(o) => Delta::Added(f(o)),
        Delta::Updated(o) => Delta::Updated(f(o)),
        Delta::Deleted(Deleted::Observed(o)) => Delta::Deleted(Deleted::Observed(f(o))),
        Delta::Deleted(Deleted::Missed { key, last_known }) => {
            Delta::Deleted(Deleted::Missed { key, last_known: last_known.map(f) })
        }
        Delta::ReplacedAll { version, objects, kept, complete, new_era } => {
            Delta::ReplacedAll { version, objects: objects.into_iter().map(f).collect(), kept, complete, new_era }
        }
        Delta::Bookmark { version } => Delta::Bookmark { version },
    }
}
