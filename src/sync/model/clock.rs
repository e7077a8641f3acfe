//! A clock that is moved by hand has settled when nothing of its threads is under way; and a turn is passed on.

use crate::sync::{
    Arc, Clock, Gate, ManualClock, Stop, Turn,
    prove::{self, Watched},
    spawn,
};
use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A thread of the clock sleeps twice, and works after each.
fn sleeps() {
    let clock = ManualClock::new();
    let work = Arc::new(Watched::default());
    let (own, works) = (clock.clock(), work.clone());
    let sleeper = spawn(&clock, "sleeper", move || {
        let never = Stop::with_clock(&own);
        for n in 1..=2 {
            assert!(!never.wait(ms(1)));
            assert_eq!(own.now().since_start(), ms(n), "a timer is fired at its own instant");
            works.write();
        }
    })
    .unwrap();
    clock.advance(ms(2));
    work.read();
    sleeper.join().unwrap();
}

#[test]
fn moving_a_clock_returns_when_those_it_woke_have_worked_and_rest() {
    prove::model("clock: advance over two timers of one thread", None, sleeps);
    let too_early = "Causality violation|at its own instant";
    prove::rejects("park: whoever wakes a thread counts it as running", too_early, Some(3), || sleeps());
    prove::rejects("spawn: a thread counts before it begins", too_early, Some(3), || sleeps());
    prove::rejects("census: rest is told of", "deadlock", Some(3), || sleeps());
}

/// A thread that was woken by a timer wakes another one, and rests before that has run.
fn wakes_another() {
    let clock = ManualClock::new();
    let (gate, work) = (Gate::new(), Arc::new(Watched::default()));
    let (own, opens) = (clock.clock(), gate.clone());
    let first = spawn(&clock, "first", move || {
        assert!(!Stop::with_clock(&own).wait(ms(1)));
        opens.open();
    })
    .unwrap();
    let works = work.clone();
    let second = spawn(&clock, "second", move || {
        gate.wait();
        works.write();
    })
    .unwrap();
    clock.advance(ms(1));
    work.read();
    first.join().unwrap();
    second.join().unwrap();
}

#[test]
fn a_wake_that_is_on_its_way_is_no_rest() {
    prove::model("clock: advance, one wakes another", Some(2), wakes_another);
    prove::rejects("park: whoever wakes a thread counts it as running", "Causality violation", Some(2), || wakes_another());
}

/// A thread that is not the clock's enters a door with a deadline while the time is moved past it.
fn visits() {
    let clock = ManualClock::new();
    let own = clock.clock();
    let at = own.now().checked_add(ms(1)).unwrap();
    let visitor = spawn(&Clock::real(), "visitor", move || {
        assert!(!Stop::with_clock(&own).wait(crate::sync::Deadline::at(at)));
        assert!(own.now() >= at);
    })
    .unwrap();
    clock.advance(ms(1));
    visitor.join().unwrap();
}

#[test]
fn a_deadline_that_is_set_while_time_passes_it_has_passed() {
    prove::model("clock: advance against a visitor's deadline", Some(3), visits);
    prove::rejects("census: a timer is set under the lock that moves the time", "deadlock", Some(3), || visits());
}

/// Three writers, one after the other.
fn turns() {
    let turn = Arc::new(Turn::new((0, Watched::default())));
    let writes = |turn: &Turn<(i32, Watched)>| {
        let mut inside = turn.take();
        inside.1.write();
        inside.0 += 1;
    };
    let others = [(); 2].map(|()| {
        let turn = turn.clone();
        spawn(&Clock::real(), "writer", move || writes(&turn)).unwrap()
    });
    writes(&turn);
    others.into_iter().for_each(|w| w.join().unwrap());
    assert_eq!(turn.take().0, 3);
}

#[test]
fn a_turn_is_one_writers_at_a_time_and_wakes_the_next() {
    prove::model("turn: three writers", Some(2), turns);
    prove::rejects("turn: passing it on wakes the next", "deadlock", Some(2), || turns());
    prove::rejects("turn: who was woken says that it has looked", "deadlock", Some(2), || turns());
}

/// A thread that waits for its turn is at rest, and one that has it while it waits for something else as well.
fn waits_for_its_turn() {
    let clock = ManualClock::new();
    let (turn, gate) = (Arc::new(Turn::new(())), Gate::new());
    let writers = [(); 2].map(|()| {
        let (turn, gate) = (turn.clone(), gate.clone());
        spawn(&clock, "writer", move || {
            let _inside = turn.take();
            gate.wait();
        })
        .unwrap()
    });
    clock.settle();
    gate.open();
    writers.into_iter().for_each(|w| w.join().unwrap());
}

#[test]
fn waiting_for_a_turn_is_rest() {
    prove::model("turn: two writers of a clock that settles", Some(2), waits_for_its_turn);
    prove::rejects("turn: who waits for it parks", "deadlock", Some(2), || waits_for_its_turn());
}
