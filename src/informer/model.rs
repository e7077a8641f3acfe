//! A loom model of the whole informer over a source of one object: what follows the first state, and the end. Beside it
//! the places that it must not survive the loss of. (Worlds of this size are for few preemptions; `freeze.rs` has them
//! under many schedules, and the stages have models of their own.)

use super::{
    Engine, InformerState,
    small::{Callback, Thing, informer},
};
use crate::{
    flow::Event,
    sync::{
        Arc, Clock, Deadline, Gate, Stop, Synced,
        prove::{self, Watched},
    },
};

/// Runs until the handler was told of the first state; then it is stopped.
fn runs(engine: Engine) {
    let clock = Clock::real();
    let nothing: Callback = Arc::new(|_| ());
    let informer = informer(engine, &clock, &nothing);
    let (told, touched) = (Gate::new(), Arc::new(Watched::default()));
    let (tells, touches) = (told.clone(), touched.clone());
    let handler = informer
        .on(move |_: &Event<Thing>| {
            touches.write();
            tells.open();
        })
        .unwrap();
    let stop = Stop::new();
    let run = informer.spawn(&stop).unwrap();
    assert_eq!(informer.wait_synced(Deadline::never()), Ok(()));
    assert_eq!(informer.store().snapshot().len(), 1, "synced means stored");
    told.wait();
    stop.stop();
    run.join().unwrap();
    touched.write();
    assert_eq!(informer.state(), InformerState::Stopped);
    assert!(clock.threads().is_empty(), "the end leaves nobody behind");
    drop(handler);
}

#[test]
fn a_merged_informer_is_synced_when_stored_and_leaves_nobody_behind() {
    prove::model("informer: merged, run and stop", Some(1), || runs(Engine::Merged));
    prove::rejects("informer: the first state is told of", "deadlock", Some(1), || runs(Engine::Merged));
    prove::rejects("informer: the end waits for the handlers", "Causality violation|nobody behind", Some(1), || {
        runs(Engine::Merged)
    });
}
