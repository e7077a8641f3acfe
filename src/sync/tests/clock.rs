//! The manual clock fires timers in order, settles, and says why when it cannot.

use super::*;

#[test]
fn timers_fire_in_order_each_at_its_own_instant() {
    let (clock, log) = (ManualClock::new(), Log::default());
    let threads = [30, 10, 20].map(|ms| {
        let (log, c) = (log.clone(), clock.clock());
        at_ms(&clock, "sleeper", ms, move || push(&log, (ms, c.now())))
    });
    clock.advance(25 * MS);
    assert_eq!(*log.lock(), [(10, at(10)), (20, at(20))]);
    assert_eq!(clock.now(), at(25));
    clock.advance(5 * MS);
    assert_eq!(log.lock().last(), Some(&(30, at(30))));
    join_all(threads);
}

#[test]
fn timers_of_one_instant_fire_in_the_order_of_setting_and_settle_in_between() {
    let (clock, log) = (ManualClock::new(), Log::default());
    let echo = Arc::new(Monitor::new(0));
    let listener = {
        let (echo, log, c) = (echo.clone(), log.clone(), clock.clock());
        let listen = move || {
            for n in 1..=3 {
                drop(echo.wait_while(echo.lock(), &c, None, |e| *e < n));
                push(&log, "echo");
            }
        };
        spawn(&clock, "listener", listen).unwrap()
    };
    let threads = ["a", "b", "c"].map(|name| {
        let (echo, log) = (echo.clone(), log.clone());
        let thread = at_ms(&clock, name, 10, move || {
            push(&log, name);
            *echo.lock() += 1;
            echo.notify_all();
        });
        clock.settle();
        thread
    });
    clock.advance(10 * MS);
    assert_eq!(*log.lock(), ["a", "echo", "b", "echo", "c", "echo"]);
    join_all(threads);
    listener.join().unwrap();
}

#[test]
fn a_timer_set_on_the_way_is_fired_by_the_same_advance() {
    let (clock, log) = (ManualClock::new(), Log::default());
    let thread = {
        let (log, c) = (log.clone(), clock.clock());
        let tick = move || {
            for n in 1..=10 {
                nap(&c, at(10 * n));
                push(&log, c.now());
            }
        };
        spawn(&clock, "ticker", tick).unwrap()
    };
    clock.advance(95 * MS);
    assert_eq!(*log.lock(), (1..=9).map(|n| at(10 * n)).collect::<Vec<_>>());
    clock.advance(5 * MS);
    thread.join().unwrap();
}

#[test]
fn settling_follows_threads_that_wake_each_other() {
    const HOPS: usize = 2000;
    let clock = ManualClock::new();
    let ball = Arc::new(Monitor::new(usize::MAX));
    let players = [0, 1, 2, 3].map(|me| {
        let (ball, c) = (ball.clone(), clock.clock());
        let play = move || {
            loop {
                let mine = |ball: &mut usize| *ball == usize::MAX || (*ball < HOPS && *ball % 4 != me);
                let (mut at, _) = ball.wait_while(ball.lock(), &c, None, mine);
                if *at == HOPS {
                    return;
                }
                *at += 1;
                drop(at);
                ball.notify_all();
            }
        };
        spawn(&clock, "player", play).unwrap()
    });
    clock.settle();
    *ball.lock() = 0;
    ball.notify_all();
    clock.settle();
    assert_eq!(*ball.lock(), HOPS);
    assert_eq!(clock.threads(), Vec::<String>::new());
    join_all(players);
}

#[test]
fn a_foreign_thread_counts_while_it_is_inside_a_door() {
    let mut clock = clock_with(50 * MS, MS);
    let (inside, entered) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let (c, looks) = (clock.clock(), Arc::new(atomic::AtomicU32::new(0)));
    let seen = looks.clone();
    let visitor = foreign("visitor", move || {
        let door = Monitor::new(());
        let keep_waiting = |_: &mut ()| {
            if looks.fetch_add(1, atomic::Ordering::SeqCst) == 0 {
                inside.send(()).unwrap();
                gone.recv().unwrap();
            }
            true
        };
        door.wait_while(door.lock(), &c, Some(at(10)), keep_waiting).1
    });
    entered.recv().unwrap();
    assert_eq!(clock.try_advance(MS).unwrap_err().busy, ["visitor"]);
    assert_eq!(clock.threads(), Vec::<String>::new(), "the visitor is not one of ours");
    go.send(()).unwrap();
    clock.patience = ManualClock::new().patience;
    clock.advance(10 * MS);
    // It was woken by its timer, and looked again, before `advance` returned.
    assert_eq!(seen.load(atomic::Ordering::SeqCst), 2);
    assert!(!visitor.join().unwrap());
}

#[test]
fn a_callback_at_a_gate_is_at_rest() {
    // With such a grace the clock can settle only because it sees the thread park.
    let clock = clock_with(LONG, 2 * LONG);
    let (gate, passed) = (Gate::new(), Log::default());
    let thread = {
        let (gate, passed) = (gate.clone(), passed.clone());
        let handler = move || {
            gate.wait();
            push(&passed, ());
        };
        spawn(&clock, "handler", || contain(Site::Handler, handler)).unwrap()
    };
    clock.advance(MS);
    assert!(passed.lock().is_empty());
    gate.open();
    clock.settle();
    assert_eq!(passed.lock().len(), 1);
    thread.join().unwrap();
}

#[test]
fn a_callback_blocked_on_something_else_is_at_rest_after_the_grace() {
    let clock = clock_with(LONG, 20 * MS);
    let (go, gone) = mpsc::channel::<()>();
    let log = Log::default();
    let stuck = spawn(&clock, "handler", move || contain(Site::Handler, || gone.recv().unwrap())).unwrap();
    let others = [10, 20, 30].map(|ms| {
        let log = log.clone();
        at_ms(&clock, "sleeper", ms, move || push(&log, ms))
    });
    clock.advance(30 * MS);
    assert_eq!(*log.lock(), [10, 20, 30]);
    go.send(()).unwrap();
    stuck.join().unwrap();
    join_all(others);
}

#[test]
fn a_callback_that_was_stuck_is_waited_for_again_by_the_next_advance() {
    let clock = clock_with(LONG, 1000 * MS);
    let ((go, gone), log) = (mpsc::channel::<()>(), Log::default());
    let inner = log.clone();
    let handler = move || {
        gone.recv().unwrap();
        push(&inner, "done");
    };
    let stuck = spawn(&clock, "handler", || contain(Site::Handler, handler)).unwrap();
    clock.settle();
    go.send(()).unwrap();
    clock.settle();
    assert_eq!(*log.lock(), ["done"]);
    stuck.join().unwrap();
}

#[test]
fn the_grace_ends_with_the_limit() {
    let mut clock = clock_with(20 * MS, LONG);
    let (go, gone) = mpsc::channel::<()>();
    let (inside, is_inside) = mpsc::channel::<()>();
    let handler = move || {
        inside.send(()).unwrap();
        gone.recv().unwrap()
    };
    let stuck = spawn(&clock, "handler", move || contain(Site::Handler, handler)).unwrap();
    is_inside.recv().unwrap();
    assert_eq!(clock.try_advance(MS).unwrap_err().busy, ["handler (inside Handler)"]);
    clock.patience = ManualClock::new().patience;
    go.send(()).unwrap();
    stuck.join().unwrap();
}

#[test]
fn a_clock_that_cannot_settle_names_the_busy_and_stays_at_the_last_timer() {
    let clock = clock_with(50 * MS, MS);
    let (gate, (go, gone)) = (Gate::new(), mpsc::channel::<()>());
    let parked = {
        let gate = gate.clone();
        spawn(&clock, "parked", move || contain(Site::Reconcile, || gate.wait())).unwrap()
    };
    clock.settle();
    let busy = at_ms(&clock, "busy", 10, move || assert!(gone.recv().is_err()));
    let e = clock.try_advance(20 * MS).unwrap_err();
    assert_eq!((&e.busy[..], &e.resting[..]), (&["busy".to_owned()][..], &["parked (inside Reconcile)".to_owned()][..]));
    assert_eq!(clock.now(), at(10));
    assert!(panic_of(|| clock.settle()).contains("still busy: busy; at rest: parked (inside Reconcile)"));
    gate.open();
    drop(go);
    parked.join().unwrap();
    busy.join().unwrap();
}

#[test]
fn a_deadline_that_has_passed_is_not_waited_for() {
    let clock = ManualClock::new();
    clock.advance(10 * MS);
    assert_eq!(park(&clock, Some(at(10))), Parked::Deadline);
    assert_eq!(park(&Clock::real(), Some(at(0))), Parked::Deadline);
}

#[test]
fn deadlines_saturate_to_never_and_time_to_its_end() {
    let clock = ManualClock::new();
    for c in [clock.clock(), Clock::real()] {
        assert_eq!(Deadline::from(Duration::MAX).on(&c), None);
        assert_eq!(Deadline::from(Duration::from_secs(u64::MAX / 1_000_000_000 + 1)).on(&c), None);
        assert_eq!(Deadline::never().on(&c), None);
    }
    assert_eq!(Deadline::from(5 * MS).on(&clock), Some(at(5)));
    assert_eq!(Deadline::at(at(7)).on(&clock), Some(at(7)));
    clock.advance(Duration::MAX);
    assert_eq!(Deadline::from(Duration::from_nanos(1)).on(&clock), None);
    assert_eq!(at(1).since(clock.now()), Duration::ZERO);
}

#[test]
fn a_real_deadline_passes() {
    let (clock, m) = (Clock::real(), Monitor::new(()));
    let deadline = Deadline::from(MS).on(&clock);
    assert!(!m.wait_while(m.lock(), &clock, deadline, |()| true).1);
    assert!(clock.now() >= deadline.unwrap());
}
