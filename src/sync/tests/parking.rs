//! No wake-up is lost; turns exclude each other.

use super::*;

#[test]
fn an_unpark_that_comes_early_is_remembered_and_two_merge() {
    let clock = ManualClock::new();
    unparker().unpark();
    unparker().unpark();
    assert_eq!(park(&clock, None), Parked::Woken);
    assert_eq!(park(&clock, Some(at(0))), Parked::Deadline);
}

#[test]
fn a_thread_that_finds_its_token_waiting_goes_on_running() {
    let mut clock = clock_with(50 * MS, MS);
    let (go, gone) = mpsc::channel::<()>();
    let c = clock.clock();
    let early = move || {
        unparker().unpark();
        assert_eq!(park(&c, Some(at(10))), Parked::Woken);
        gone.recv().unwrap();
    };
    let thread = spawn(&clock, "early", early).unwrap();
    assert_eq!(clock.try_advance(20 * MS).unwrap_err().busy, ["early"]);
    clock.patience = ManualClock::new().patience;
    go.send(()).unwrap();
    thread.join().unwrap();
}

#[test]
fn a_thread_whose_real_deadline_passed_runs_again() {
    let mut clock = clock_with(50 * MS, MS);
    let ((go, gone), (passed, told)) = (mpsc::channel::<()>(), mpsc::channel());
    let waiter = move || {
        let real = Clock::real();
        nap(&real, real.now().checked_add(MS).unwrap());
        passed.send(()).unwrap();
        gone.recv().unwrap();
    };
    let thread = spawn(&clock, "late", waiter).unwrap();
    told.recv().unwrap();
    assert_eq!(clock.try_advance(MS).unwrap_err().busy, ["late"]);
    clock.patience = ManualClock::new().patience;
    go.send(()).unwrap();
    thread.join().unwrap();
}

#[test]
fn a_wake_up_that_meets_a_waiter_on_its_way_to_park_is_not_lost() {
    const ROUNDS: u32 = 20_000;
    let (clock, m) = (Clock::real(), Arc::new(Monitor::new(false)));
    let taken = Arc::new(atomic::AtomicU32::new(0));
    let (inner, count, c) = (m.clone(), taken.clone(), clock.clone());
    let take = move || {
        for n in 1..=ROUNDS {
            let deadline = Deadline::from(LONG / 6).on(&c);
            let (mut full, reached) = inner.wait_while(inner.lock(), &c, deadline, |full| !*full);
            assert!(reached, "the cup is full and its taker was not woken");
            *full = false;
            drop(full);
            count.store(n, atomic::Ordering::Release);
        }
    };
    let taker = spawn(&clock, "taker", take).unwrap();
    for n in 0..ROUNDS {
        // The taker is now between its last look and its next park.
        while taken.load(atomic::Ordering::Acquire) != n && !taker.is_finished() {
            ::std::hint::spin_loop();
        }
        *m.lock() = true;
        m.notify_one();
    }
    taker.join().unwrap();
}

#[test]
fn a_waiter_that_gave_up_takes_no_wake_up_from_others() {
    let (clock, m) = (ManualClock::new(), Arc::new(Monitor::new(false)));
    let waits = [Some(at(10)), None].map(|deadline| {
        let (m, c) = (m.clone(), clock.clock());
        let thread = spawn(&clock, "waiter", move || m.wait_while(m.lock(), &c, deadline, |open| !*open).1).unwrap();
        clock.settle();
        thread
    });
    clock.advance(10 * MS);
    *m.lock() = true;
    m.notify_one();
    assert_eq!(waits.map(|w| w.join().unwrap()), [false, true]);
}

#[test]
fn no_wake_up_is_lost_among_many() {
    const EACH: u32 = 3000;
    let clock = Clock::real();
    let (items, room) = (Arc::new(Monitor::new(Vec::new())), Arc::new(Monitor::new(())));
    let producers = [0; 3].map(|_| {
        let (items, room, c) = (items.clone(), room.clone(), clock.clone());
        let produce = move || {
            for n in 0..EACH {
                items.lock().push(n);
                items.notify_one();
                if n % 7 == 0 {
                    // Stray tokens, as others may leave them behind.
                    room.notify_all();
                    drop(room.wait_while(room.lock(), &c, Some(c.now()), |()| true));
                }
            }
        };
        spawn(&clock, "producer", produce).unwrap()
    });
    let consumers = [0; 3].map(|_| {
        let (items, c) = (items.clone(), clock.clone());
        let consume = move || {
            for _ in 0..EACH {
                let deadline = Deadline::from(LONG).on(&c);
                let (mut all, reached) = items.wait_while(items.lock(), &c, deadline, |i: &mut Vec<u32>| i.is_empty());
                assert!(reached, "an item is there and its consumer was not woken");
                all.pop();
            }
        };
        spawn(&clock, "consumer", consume).unwrap()
    });
    join_all(producers);
    join_all(consumers);
    assert!(items.lock().is_empty());
}

#[test]
fn notify_one_wakes_who_has_waited_longest() {
    let (clock, log, m) = (ManualClock::new(), Log::default(), Arc::new(Monitor::new(0)));
    let threads = [1, 2, 3].map(|me| {
        let (log, m, c) = (log.clone(), m.clone(), clock.clock());
        let wait = move || {
            let (mut tickets, _) = m.wait_while(m.lock(), &c, None, |tickets| *tickets == 0);
            *tickets -= 1;
            drop(tickets);
            push(&log, me);
        };
        let thread = spawn(&clock, "waiter", wait).unwrap();
        clock.settle();
        thread
    });
    for n in 1..=3 {
        *m.lock() += 1;
        m.notify_one();
        clock.settle();
        assert_eq!(*log.lock(), (1..=n).collect::<Vec<_>>());
    }
    join_all(threads);
}

#[test]
fn a_condition_that_comes_with_the_deadline_counts_as_reached() {
    let (clock, m) = (ManualClock::new(), Arc::new(Monitor::new(false)));
    let (inner, c) = (m.clone(), clock.clock());
    let thread = spawn(&clock, "waiter", move || inner.wait_while(inner.lock(), &c, Some(at(10)), |done| !*done).1).unwrap();
    clock.settle();
    *m.lock() = true;
    clock.advance(10 * MS);
    assert!(thread.join().unwrap());
}

#[test]
fn turns_exclude_each_other_and_are_no_counted_locks() {
    let (clock, turn) = (Clock::real(), Arc::new(Turn::new(0)));
    let threads = [0; 4].map(|_| {
        let turn = turn.clone();
        let add = move || {
            for _ in 0..1000 {
                let mut n = turn.take();
                assert_eq!(locks_held(), 0);
                let before = *n;
                ::std::thread::yield_now();
                *n = before + 1;
            }
        };
        spawn(&clock, "writer", add).unwrap()
    });
    join_all(threads);
    assert_eq!(*turn.take(), 4000);
}

#[test]
fn waiting_for_a_turn_is_at_rest() {
    let clock = ManualClock::new();
    let (gate, turn) = (Gate::new(), Arc::new(Turn::new(())));
    let writers = [0; 2].map(|_| {
        let (gate, turn) = (gate.clone(), turn.clone());
        let write = move || {
            let _turn = turn.take();
            contain(Site::Index, || gate.wait());
        };
        spawn(&clock, "writer", write).unwrap()
    });
    clock.settle();
    assert_eq!(clock.threads().len(), 2);
    gate.open();
    join_all(writers);
}
