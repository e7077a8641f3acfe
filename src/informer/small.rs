//! What the model and the tests of progress have in common: a source of one object, which is listed once and changed once.

use super::{Engine, SharedInformer};
use crate::{
    flow::Meta,
    source::{ListEnd, ListParams, ListerWatcher, Next, SourceError, Undecodable, WatchEvent, WatchParams, WatchStream},
    sync::{Arc, Clock, Deadline, Stop, Wake, Woken},
};
use std::ops::ControlFlow;

/// The places at which a world may want to step in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    Nowhere,
    Handler,
    List,
    Watch,
    Transform,
    Index,
    Observe,
}

/// Is called at each place.
pub(super) type Callback = Arc<dyn Fn(At) + Send + Sync>;

/// The object, which is nothing but its version.
pub(super) struct Thing(&'static str);

struct Source(Callback);

impl ListerWatcher for Source {
    type Object = Thing;

    fn meta<'a>(&self, object: &'a Thing) -> Meta<'a> {
        Meta { namespace: "", name: "a", version: object.0, uid: "" }
    }

    fn list(
        &self,
        _: &Stop,
        _: &ListParams,
        sink: &mut dyn FnMut(Result<Thing, Undecodable>) -> ControlFlow<()>,
    ) -> Result<ListEnd, SourceError> {
        (self.0)(At::List);
        let _whatever = sink(Ok(Thing("1")));
        Ok(ListEnd { version: "1".into(), continue_token: None })
    }

    fn watch(&self, _: &Stop, _: &WatchParams) -> Result<Box<dyn WatchStream<Thing>>, SourceError> {
        Ok(Box::new(Stream(self.0.clone(), false)))
    }
}

struct Stream(Callback, bool);

impl WatchStream<Thing> for Stream {
    fn next(&mut self, wake: &Wake, deadline: Deadline) -> Next<Thing> {
        (self.0)(At::Watch);
        if !std::mem::replace(&mut self.1, true) {
            return Next::Event(WatchEvent::Modified(Thing("2")));
        }
        match wake.wait(deadline) {
            Woken::Stopped => Next::Stopped,
            Woken::Nudged => Next::Woken,
            Woken::Deadline => Next::Deadline,
        }
    }
}

/// An informer of that source, which calls `callback` wherever it calls the user's code but in handlers.
pub(super) fn informer(engine: Engine, clock: &Clock, callback: &Callback) -> SharedInformer<Thing> {
    let [of_source, of_transform, of_index, of_hook] = [(); 4].map(|()| callback.clone());
    let transform = move |thing: Thing| {
        of_transform(At::Transform);
        Ok::<_, std::convert::Infallible>(thing)
    };
    SharedInformer::builder_with(Source(of_source), transform)
        .engine(engine)
        .clock(clock)
        .seed(1)
        .index::<u8>("index", move |_, emit| {
            of_index(At::Index);
            emit(1);
        })
        .observe(move |_| of_hook(At::Observe))
        .build()
        .unwrap_or_else(|e| panic!("{e}"))
}
