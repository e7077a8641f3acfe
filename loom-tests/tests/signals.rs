//! Stop, gates and wakes as a source or a handler uses them.
#![cfg(informer_loom)]

use informer::sync::{Clock, Deadline, Gate, Stop, Wake, Woken};
use loom::thread;
use loom_tests::prove::{self, Watched};
use std::sync::Arc;

/// A source that waits for its own news while somebody stops the reflector.
fn source_is_stopped() {
    let clock = Clock::real();
    let stop = Stop::with_clock(&clock);
    let wake = Wake::new(&stop, &clock);
    let stopper = thread::spawn(move || stop.stop());
    assert_eq!(wake.wait(Deadline::never()), Woken::Stopped);
    stopper.join().unwrap();
}

#[test]
fn a_source_that_waits_hears_of_stop() {
    prove::model("wake: wait against stop", Some(3), source_is_stopped);
    prove::rejects("wake: stop rings", "deadlock", Some(2), || source_is_stopped());
}

/// The wake is made while somebody stops: it must hear of that as well.
fn late_wake() {
    let clock = Clock::real();
    let stop = Stop::with_clock(&clock);
    let stops = stop.clone();
    let stopper = thread::spawn(move || stops.stop());
    let wake = Wake::new(&stop, &clock);
    let nudged = wake.wait(Deadline::never());
    assert_eq!(nudged, Woken::Stopped);
    stopper.join().unwrap();
}

#[test]
fn a_wake_made_while_stop_arrives_hears_of_it() {
    prove::model("wake: made against stop", Some(3), late_wake);
    prove::rejects("wake: stop is looked at before waiting", "deadlock", Some(3), || late_wake());
}

/// News are brought and a nudge comes; neither is lost.
fn news_and_nudge() {
    let clock = Clock::real();
    let wake = Wake::new(&Stop::new(), &clock);
    let news = Arc::new(loom::sync::atomic::AtomicBool::new(false));
    let (pokes, brought) = (wake.clone(), news.clone());
    let bringer = thread::spawn(move || {
        brought.store(true, loom::sync::atomic::Ordering::Relaxed);
        if prove::keep("world: who brings news pokes") {
            pokes.poke();
        }
    });
    let ready = || news.load(loom::sync::atomic::Ordering::Relaxed);
    assert_eq!(wake.wait_until(Deadline::never(), ready), None, "the news is what ends the wait");
    wake.nudge();
    assert_eq!(wake.wait(Deadline::never()), Woken::Nudged);
    bringer.join().unwrap();
}

#[test]
fn news_brought_on_the_way_to_waiting_is_not_missed() {
    prove::model("wake: wait_until against poke", Some(3), news_and_nudge);
    prove::rejects("world: who brings news pokes", "deadlock", Some(2), || news_and_nudge());
}

/// Who goes through a gate sees what was done before it was opened.
fn gate() {
    let (gate, before) = (Gate::new(), Arc::new(Watched::default()));
    let (opens, touched) = (gate.clone(), before.clone());
    let opener = thread::spawn(move || {
        if prove::keep("world: the opener works before it opens") {
            touched.write();
            opens.open();
        } else {
            opens.open();
            touched.write();
        }
    });
    gate.wait();
    before.read();
    opener.join().unwrap();
}

#[test]
fn a_gate_lets_through_and_shows_what_came_before() {
    prove::model("gate: wait against open", Some(3), gate);
    prove::rejects("world: the opener works before it opens", "Causality violation", Some(3), || gate());
}

/// A hook that users register is user code: a race inside it must not be contained.
#[test]
fn a_planted_race_inside_a_hook_fails_the_model() {
    prove::rejects("planted: a race inside a hook", "Causality violation", Some(2), || {
        let (stop, cell) = (Stop::new(), Arc::new(Watched::default()));
        let (stops, inside) = (stop.clone(), cell.clone());
        let _guard = stop.on_stop(move || inside.write());
        let stopper = thread::spawn(move || stops.stop());
        cell.write();
        stopper.join().unwrap();
    });
}
