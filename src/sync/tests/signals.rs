//! Stop, wakes and gates: each signal arrives once, in its rank, outside every lock.

use super::*;

#[test]
fn stop_runs_each_callback_once_and_none_that_was_taken_back() {
    let (stop, log) = (Stop::new(), Log::default());
    let register = |what: &'static str| {
        let log = log.clone();
        stop.on_stop(move || push(&log, what))
    };
    let (_first, taken_back, _bad) = (register("first"), register("taken back"), stop.on_stop(|| panic!("bad callback")));
    let _last = register("last");
    drop(taken_back);
    assert!(!stop.is_stopped());
    stop.stop();
    stop.clone().stop();
    assert!(stop.is_stopped());
    assert_eq!(*log.lock(), ["first", "last"]);
    let _late = register("at once");
    assert_eq!(*log.lock(), ["first", "last", "at once"]);
    assert_contained(&Clock::real(), &["bad callback"]);
}

#[test]
fn what_a_callback_captured_may_panic_while_dropped() {
    struct Bad(&'static str);
    impl Drop for Bad {
        fn drop(&mut self) {
            assert_eq!(locks_held(), 0);
            panic!("{}", self.0);
        }
    }
    let stop = Stop::new();
    let bad = Bad("taken back from stop");
    drop(stop.on_stop(move || drop(bad)));
    let (wake, bad) = (Wake::new(&stop, &Clock::real()), Bad("taken back from wake"));
    drop(wake.on_wake(move || {
        let _captured = &bad;
    }));
    assert_contained(&Clock::real(), &["taken back from stop", "taken back from wake"]);
}

#[test]
fn a_child_stops_with_its_parent_and_not_the_other_way_round() {
    let (parent, log) = (Stop::new(), Log::default());
    let (one, two) = (parent.child(), parent.child());
    let inner = log.clone();
    let _guard = two.on_stop(move || push(&inner, "two"));
    one.stop();
    assert!(!parent.is_stopped() && !two.is_stopped());
    parent.stop();
    assert!(two.is_stopped());
    assert_eq!(*log.lock(), ["two"]);
    assert!(parent.child().is_stopped(), "born under a parent that has stopped");
}

#[test]
fn stop_wakes_every_waiter_and_a_deadline_ends_a_wait() {
    let clock = ManualClock::new();
    let stop = Stop::with_clock(&clock);
    let waits = [Deadline::never(), Deadline::at(at(10)), Deadline::at(at(30))].map(|deadline| {
        let stop = stop.child();
        spawn(&clock, "waiter", move || stop.wait(deadline)).unwrap()
    });
    clock.advance(20 * MS);
    assert_eq!(clock.threads().len(), 2);
    stop.stop();
    assert_eq!(waits.map(|w| w.join().unwrap()), [true, false, true]);
}

#[test]
fn stop_goes_before_news_and_news_before_a_nudge() {
    let stop = Stop::new();
    let wake = Wake::new(&stop, &ManualClock::new());
    wake.nudge();
    wake.nudge();
    assert_eq!(wake.wait_until(Deadline::never(), || true), None);
    assert_eq!(wake.wait(Deadline::at(at(0))), Woken::Nudged, "remembered while there was news");
    assert_eq!(wake.wait(Deadline::at(at(0))), Woken::Deadline, "the two nudges had merged");
    wake.nudge();
    assert_eq!((wake.take(), wake.take()), (Some(Woken::Nudged), None));
    wake.nudge();
    stop.stop();
    assert_eq!(wake.wait_until(Deadline::never(), || true), Some(Woken::Stopped));
    assert_eq!(wake.take(), Some(Woken::Stopped));
}

#[test]
fn a_waiting_source_hears_of_news_nudge_deadline_and_stop() {
    let (clock, stop, news, log) = (ManualClock::new(), Stop::new(), Arc::new(Mutex::new(0)), Log::default());
    let wake = Wake::new(&stop, &clock);
    let source = {
        let (wake, news, log, c) = (wake.clone(), news.clone(), log.clone(), clock.clock());
        let run = move || {
            loop {
                let fresh = || {
                    assert_eq!(locks_held(), 0);
                    ::std::mem::take(&mut *news.lock()) > 0
                };
                let woken = wake.wait_until(Deadline::at(at(10)), fresh);
                push(&log, (woken, c.now()));
                if woken == Some(Woken::Deadline) {
                    break;
                }
            }
            wake.wait(Deadline::never())
        };
        spawn(&clock, "source", move || call(Site::Source, run).unwrap()).unwrap()
    };
    clock.advance(MS);
    *news.lock() = 1;
    clock.settle();
    assert!(log.lock().is_empty(), "nobody poked");
    wake.poke();
    clock.settle();
    wake.poke();
    clock.settle();
    assert_eq!(*log.lock(), [(None, at(1))], "a poke without news is no reason to return");
    wake.nudge();
    clock.advance(20 * MS);
    assert_eq!(log.lock()[1..], [(Some(Woken::Nudged), at(1)), (Some(Woken::Deadline), at(10))]);
    stop.stop();
    assert_eq!(source.join().unwrap(), Woken::Stopped);
}

#[test]
fn on_wake_is_called_for_stop_and_nudges_until_taken_back() {
    let (stop, log) = (Stop::new(), Log::default());
    let wake = Wake::new(&stop, &Clock::real());
    let register = |what: &'static str| {
        let log = log.clone();
        wake.on_wake(move || push(&log, what))
    };
    let (a, _b) = (register("a"), register("b"));
    let _bad = wake.on_wake(|| panic!("bad callback"));
    wake.poke();
    assert!(log.lock().is_empty());
    wake.nudge();
    drop(a);
    stop.stop();
    let _late = register("late");
    assert_eq!(*log.lock(), ["a", "b", "b", "late"]);
    assert_contained(&Clock::real(), &["bad callback", "bad callback"]);
}

#[test]
fn a_gate_holds_those_who_come_while_it_is_closed() {
    let (clock, gate) = (ManualClock::new(), Gate::new());
    let come = || {
        let gate = gate.clone();
        spawn(&clock, "comer", move || gate.wait()).unwrap()
    };
    let first = come();
    clock.settle();
    assert!(!first.is_finished());
    gate.open();
    first.join().unwrap();
    come().join().unwrap();
    gate.close();
    let last = come();
    clock.settle();
    assert!(!last.is_finished());
    gate.open();
    last.join().unwrap();
}

#[test]
fn a_guard_takes_its_callback_back_even_when_others_are_being_run() {
    let (stop, told) = (Stop::new(), Log::default());
    let second = Arc::new(Mutex::new(None));
    let (s, t) = (second.clone(), told.clone());
    let _first = stop.on_stop(move || {
        push(&t, "first");
        let gone = s.lock().take();
        drop(gone);
    });
    let t = told.clone();
    *second.lock() = Some(stop.on_stop(move || push(&t, "second")));
    let t = told.clone();
    let _third = stop.on_stop(move || push(&t, "third"));
    stop.stop();
    assert_eq!(*told.lock(), ["first", "third"]);

    let (wake, told) = (Wake::new(&Stop::new(), &Clock::real()), Log::default());
    let second = Arc::new(Mutex::new(None));
    let (s, t) = (second.clone(), told.clone());
    let _first = wake.on_wake(move || {
        push(&t, "first");
        let gone = s.lock().take();
        drop(gone);
    });
    let t = told.clone();
    *second.lock() = Some(wake.on_wake(move || push(&t, "second")));
    let t = told.clone();
    let _third = wake.on_wake(move || push(&t, "third"));
    wake.nudge();
    assert_eq!(*told.lock(), ["first", "third"]);
}
