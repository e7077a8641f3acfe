//! loom models of the processor, with a real store below it: joining, leaving, the sync marker, the end. Tiny worlds, one
//! question each; beside each the places that it must not survive the loss of.
//!
//! The fences of joining have no place here: as long as the list of listeners stands behind a lock, whoever comes second
//! to it is ordered after the first, and a model without either of the two fences passes.
//!
//! Each world keeps its listeners until their threads are joined: loom does not see the counts of `Arc`, so it would take
//! their last drop on another thread for a race.

use super::{
    Removed,
    small::{Small, add, try_add},
};
use crate::sync::{
    Arc, Clock, Deadline, Gate, JoinHandle,
    prove::{self, Reached, Watched},
    spawn,
};

fn start<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    spawn(&Clock::real(), "other", f).unwrap()
}

static AT_FIRST: Reached = Reached::new();
static LATER: Reached = Reached::new();

/// A newcomer joins while the last of two states is published.
fn joins() {
    let mut small = Small::new(&Clock::real());
    small.publish();
    let (processor, told_last) = (small.processor.clone(), Gate::new());
    let opens = told_last.clone();
    let adder = start(move || {
        let mut first = true;
        add(&processor, move |n| {
            if n == 2 {
                if first {
                    AT_FIRST.count()
                } else {
                    LATER.count()
                }
                opens.open();
            }
            first = false;
        })
    });
    small.publish();
    told_last.wait();
    let listener = adder.join().unwrap();
    small.processor.close();
    drop(listener);
}

#[test]
fn a_newcomer_is_told_of_everything_once_and_in_order() {
    prove::model("processor: add against a publication", Some(2), joins);
    if prove::intact() {
        assert!(AT_FIRST.get() > 0 && LATER.get() > 0, "at first {AT_FIRST} times, later {LATER} times");
    }
    prove::rejects("processor: a newcomer is listed before its snapshot", "deadlock", Some(2), || joins());
    prove::rejects("processor: what the snapshot joined on has is dropped", "once and in order", Some(2), || joins());
}

static QUIET: Reached = Reached::new();
static RUNNING: Reached = Reached::new();

/// A handler is removed while it is told of something. Who removed it quietly has what the handler used for itself.
fn removes() {
    let mut small = Small::new(&Clock::real());
    let used = Arc::new(Watched::default());
    let uses = used.clone();
    let listener = add(&small.processor, move |_| uses.write());
    let processor = small.processor.clone();
    let remover = start(move || {
        match processor.remove(&listener) {
            Removed::Quiet => {
                QUIET.count();
                used.write();
            }
            Removed::Running => RUNNING.count(),
        }
        listener
    });
    small.publish();
    let listener = remover.join().unwrap();
    small.processor.close();
    drop(listener);
}

#[test]
fn after_a_quiet_removal_no_callback_runs_and_what_they_did_is_visible() {
    prove::model("processor: remove against a publication", Some(2), removes);
    if prove::intact() {
        assert!(QUIET.get() > 0 && RUNNING.get() > 0, "quiet {QUIET} times, running {RUNNING} times");
    }
    for place in [
        "processor: the remover's fence",
        "processor: the listener's fence",
        "processor: a batch ends",
        "processor: whether a batch runs is looked at",
    ] {
        prove::rejects(place, "Causality violation", Some(2), || removes());
    }
}

/// Who waits for the sync of a handler finds what the handler did. The whole state is published before the handler joins,
/// or while.
fn syncs(before: bool) {
    let mut small = Small::new(&Clock::real());
    if before {
        small.publish_whole();
    }
    let effect = Arc::new(Watched::default());
    let did = effect.clone();
    let listener = add(&small.processor, move |_| did.write());
    let l = listener.clone();
    let waiter = start(move || {
        assert!(l.wait_synced(Deadline::never()).is_ok());
        effect.read();
    });
    if !before {
        small.publish_whole();
    }
    waiter.join().unwrap();
    small.processor.close();
}

#[test]
fn a_handler_is_synced_when_it_has_returned_from_the_first_state() {
    prove::model("processor: wait_synced, joined after the first state", Some(2), || syncs(true));
    prove::model("processor: wait_synced, joined before the first state", Some(1), || syncs(false));
    let behind = "processor: the marker stands behind the first state";
    prove::rejects(behind, "Causality violation", Some(2), || syncs(true));
    prove::rejects("processor: the marker of the snapshot joined on is passed", "deadlock", Some(2), || syncs(true));
    prove::rejects("processor: the marker of a publication is passed", "deadlock", Some(2), || syncs(false));
}

static IDLE: Reached = Reached::new();

/// Who sees that a handler was told of the first publication finds what the handler did, be that its first state or not.
fn idles(before: bool) {
    let mut small = Small::new(&Clock::real());
    if before {
        small.publish();
    }
    let effect = Arc::new(Watched::default());
    let did = effect.clone();
    let listener = add(&small.processor, move |_| did.write());
    let l = listener.clone();
    let looks = start(move || {
        if l.is_idle(1) {
            IDLE.count();
            effect.read();
        }
        l
    });
    if !before {
        small.publish();
    }
    let l = looks.join().unwrap();
    small.processor.close();
    drop((l, listener));
}

#[test]
fn who_sees_a_listener_idle_sees_what_its_callbacks_did() {
    prove::model("processor: is_idle against the first state", Some(2), || idles(true));
    prove::model("processor: is_idle against a publication", Some(2), || idles(false));
    if prove::intact() {
        assert!(IDLE.get() > 0, "nobody was ever seen idle");
    }
    let race = "Causality violation";
    prove::rejects("processor: what was told is looked at", race, Some(2), || idles(true));
    prove::rejects("processor: the first state is told", race, Some(2), || idles(true));
    prove::rejects("processor: a publication is told", race, Some(2), || idles(false));
}

/// A handler is added while the processor ends.
fn ends() {
    let clock = Clock::real();
    let small = Small::new(&clock);
    let first = add(&small.processor, |_| ());
    let processor = small.processor.clone();
    let adder = start(move || try_add(&processor, |_| ()));
    small.processor.close();
    let ended = clock.threads();
    assert!(ended.is_empty(), "the end leaves nobody behind: {ended:?}");
    drop(adder.join().unwrap());
    assert!(clock.threads().is_empty(), "and nobody comes after it");
    drop(first);
}

/// A handler is added, and one that has left is let go of, while the processor ends.
fn ends_while_one_is_let_go_of() {
    let clock = Clock::real();
    let small = Small::new(&clock);
    let first = add(&small.processor, |_| ());
    small.processor.remove(&first);
    let processor = small.processor.clone();
    let adder = start(move || try_add(&processor, |_| ()));
    small.processor.close();
    let ended = clock.threads();
    assert!(ended.is_empty(), "the end leaves nobody behind: {ended:?}");
    drop(adder.join().unwrap());
    drop(first);
}

#[test]
fn the_end_waits_for_those_that_somebody_else_lets_go_of() {
    prove::model("processor: add against the end, one has left", Some(3), ends_while_one_is_let_go_of);
    let stays = "processor: who starts stays until it has let go of others";
    prove::rejects(stays, "nobody behind", Some(3), || ends_while_one_is_let_go_of());
}

#[test]
fn the_end_leaves_nobody_behind_and_nobody_comes_after_it() {
    prove::model("processor: add against the end", Some(2), ends);
    prove::rejects("processor: a newcomer finds the list closed", "deadlock|nobody comes after", Some(2), || ends());
    prove::rejects("processor: the end tells every listener", "deadlock", Some(2), || ends());
    prove::rejects("processor: the end waits for those who start", "nobody behind", Some(2), || ends());
}

/// Containment hides neither of these from a model: `sync/model.rs` says how.
#[test]
fn a_planted_race_inside_a_handler_fails_the_model() {
    prove::rejects("planted: a race inside a handler", "Causality violation", Some(2), || {
        let mut small = Small::new(&Clock::real());
        let shared = Arc::new(Watched::default());
        let inside = shared.clone();
        let _listener = add(&small.processor, move |_| inside.write());
        small.publish();
        shared.write();
        small.processor.close();
    });
}

#[test]
fn a_planted_assertion_inside_a_handler_fails_the_model() {
    prove::rejects("planted: an assertion inside a handler", "the handler is wrong", Some(2), || {
        let mut small = Small::new(&Clock::real());
        let _listener = add(&small.processor, |n| assert_eq!(n, 2, "the handler is wrong"));
        small.publish();
        small.processor.close();
    });
}
