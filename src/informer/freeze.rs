//! Progress of the whole informer: a callback of the user's that does not return keeps `run` from returning, and nobody
//! else from anything.

use super::{
    Engine, InformerState, SharedInformer,
    small::{At, Callback, Thing, informer},
};
use crate::{
    flow::Event,
    sync::{
        Arc, Clock, Deadline, Gate, Stop, Synced, WaitError,
        atomic::{AtomicBool, Ordering},
        prove::{Verdict, World, arrives, stand_still, stuck, worker},
    },
};

/// Opens when it is dropped.
struct Opens(Gate);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A callback that stands still when it is called at this place for the first time; the gate opens when it is inside.
fn stands_still(at: At) -> (Callback, Gate) {
    let (inside, first) = (Gate::new(), AtomicBool::new(true));
    let enters = inside.clone();
    let callback = move |place| {
        if place == at && first.swap(false, Ordering::Relaxed) {
            enters.open();
            stand_still();
        }
    };
    (Arc::new(callback), inside)
}

/// Reads, adds a handler and takes it off again.
fn uses(informer: &SharedInformer<Thing>) {
    assert!(informer.store().snapshot().len() <= 1);
    assert!(informer.health().last_error.is_none());
    if let Ok(registration) = informer.on(|_| ()) {
        registration.remove();
        assert_eq!(registration.shutdown(Deadline::never()), Ok(()));
    }
}

/// A callback does not return, and then the informer is stopped.
fn stopped(engine: Engine, at: At) -> World {
    let (callback, inside) = stands_still(at);
    let informer = informer(engine, &Clock::real(), &callback);
    let of_handler = callback;
    let handler = informer.on(move |_: &Event<Thing>| of_handler(At::Handler)).unwrap();
    let ended = Opens(Gate::new());
    let end = ended.0.clone();
    let other = informer
        .on(move |_: &Event<Thing>| {
            let _until_the_end = &ended;
        })
        .unwrap();
    let stop = Stop::new();
    let (stops, e) = (stop.clone(), inside.clone());
    let stops = move || {
        e.wait();
        stops.stop();
        if at == At::Handler {
            // The end of the other handler, by itself.
            end.wait();
        }
    };
    let (used, e) = (informer.clone(), inside);
    let uses = move || {
        e.wait();
        uses(&used);
        assert_eq!(other.shutdown(Deadline::never()), Ok(()));
    };
    let runs = informer.clone();
    let after = move || {
        assert_eq!(informer.state(), InformerState::Stopped);
        drop(handler);
    };
    World::new().finishes(stops).finishes(uses).waits(move || runs.run(&stop).unwrap()).after(after)
}

macro_rules! stop_against {
    ($($name:ident: $engine:ident $at:ident;)*) => { $(
        #[test]
        fn $name() {
            let name = concat!("informer: stop, ", stringify!($engine), ", frozen in ", stringify!($at));
            let verdict = stuck(name, || stopped(Engine::$engine, At::$at));
            assert!(matches!(verdict, Verdict::Passes { .. }), "{verdict:?}");
        }
    )* };
}

/// `run` does not return; stop does, and readers, and whoever adds and removes handlers.
mod only_run_waits_for {
    use super::*;

    stop_against! {
        a_handler_merged: Merged Handler;
        a_handler_decoupled: Decoupled Handler;
        a_list_merged: Merged List;
        a_list_decoupled: Decoupled List;
        a_watch_merged: Merged Watch;
        a_watch_decoupled: Decoupled Watch;
        a_transform_merged: Merged Transform;
        a_transform_decoupled: Decoupled Transform;
        an_index_merged: Merged Index;
        an_index_decoupled: Decoupled Index;
        a_hook_merged: Merged Observe;
        a_hook_decoupled: Decoupled Observe;
    }
}

/// A handler does not return; the source is read on, stored, and told to another handler.
fn flows_on(engine: Engine) -> World {
    let (callback, inside) = stands_still(At::Handler);
    let informer = informer(engine, &Clock::real(), &callback);
    let handler = informer.on(move |_: &Event<Thing>| callback(At::Handler)).unwrap();
    let told = Gate::new();
    let tells = told.clone();
    let mut events = 0;
    let other = informer
        .on(move |_: &Event<Thing>| {
            events += 1;
            if events == 2 {
                tells.open();
            }
        })
        .unwrap();
    let stop = Stop::new();
    let (reads, e) = (informer.clone(), inside.clone());
    let reads = move || {
        e.wait();
        told.wait();
        assert_eq!(reads.store().snapshot().version(), "2");
        assert_eq!(reads.wait_synced(Deadline::never()), Ok(()));
        assert_eq!(other.wait_synced(Deadline::never()), Ok(()));
        uses(&reads);
    };
    let stops = stop.clone();
    let waits = move || {
        // Until it is removed, or the informer ends with it.
        inside.wait();
        let synced = handler.wait_synced(Deadline::never());
        assert!(matches!(synced, Ok(()) | Err(WaitError::Stopped)));
        stops.stop();
    };
    World::new().finishes(reads).waits(waits).waits(move || informer.run(&stop).unwrap())
}

#[test]
fn reflector_store_and_other_handlers_do_not_wait_for_a_handler_that_does_not_return() {
    let verdict = stuck("informer: merged, a handler frozen", || flows_on(Engine::Merged));
    assert!(matches!(verdict, Verdict::Passes { .. }), "{verdict:?}");
    let verdict = stuck("informer: decoupled, a handler frozen", || flows_on(Engine::Decoupled));
    assert!(matches!(verdict, Verdict::Passes { .. }), "{verdict:?}");
}

/// The stop arrives at steps of `run`, while one waits for sync.
fn stop_arrives<const DECOUPLED: bool>() -> [crate::sync::prove::Worker; 3] {
    let engine = if DECOUPLED { Engine::Decoupled } else { Engine::Merged };
    let nothing: Callback = Arc::new(|_| ());
    let informer = informer(engine, &Clock::real(), &nothing);
    let handler = informer.on(|_: &Event<Thing>| ()).unwrap();
    let stop = Stop::new();
    let (stops, runs) = (stop.clone(), informer.clone());
    let waits = move || {
        let synced = handler.wait_synced(Deadline::never());
        assert!(matches!(synced, Ok(()) | Err(WaitError::Stopped)));
        assert!(matches!(informer.wait_synced(Deadline::never()), Ok(()) | Err(WaitError::Stopped)));
    };
    [worker(move || stops.stop()), worker(move || runs.run(&stop).unwrap()), worker(waits)]
}

#[test]
fn a_stop_that_arrives_at_any_step_ends_everybody() {
    arrives("informer: stop arrives, merged", 1, 1, stop_arrives::<false>);
    arrives("informer: stop arrives, decoupled", 1, 1, stop_arrives::<true>);
}
