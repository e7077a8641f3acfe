//! Subjects with known answers, which keep the freeze checker honest.

use super::{
    Arc, Clock, Deadline, Gate, Monitor, Stop, Wake, Woken,
    atomic::{AtomicBool, AtomicUsize, Ordering},
    backend::RawMutex,
    park,
    prove::{Verdict, Worker, World, arrives, freeze, freeze_two, pause, stand_still, stuck, worker},
};

/// Three workers that do the same to the same thing.
fn three<T: Send + Sync + 'static>(thing: T, work: fn(&T)) -> [Worker; 3] {
    let thing = Arc::new(thing);
    [0, 1, 2].map(|_| {
        let thing = thing.clone();
        worker(move || work(&thing))
    })
}

#[test]
fn a_lock_blocks_when_its_holder_is_frozen() {
    let world = || three(RawMutex::new(0), |m| *m.lock() += 1);
    let verdict = freeze("known: a mutex", 0, world);
    assert!(matches!(verdict, Verdict::Blocked(_)), "{verdict:?}");
}

#[test]
fn a_spin_lock_makes_the_others_spin() {
    let world = || {
        three(AtomicBool::new(false), |held| {
            while held.swap(true, Ordering::Acquire) {
                pause();
            }
            held.store(false, Ordering::Release);
        })
    };
    let verdict = freeze("known: a spin lock", 0, world);
    assert!(matches!(verdict, Verdict::Spins(_)), "{verdict:?}");
}

#[test]
fn a_compare_and_swap_loop_passes() {
    let world = || {
        three(AtomicUsize::new(0), |n| {
            let mut seen = n.load(Ordering::Relaxed);
            while let Err(now) = n.compare_exchange(seen, seen + 1, Ordering::AcqRel, Ordering::Relaxed) {
                seen = now;
            }
        })
    };
    let verdict = freeze("known: a compare-and-swap loop", 0, world);
    assert!(matches!(verdict, Verdict::Passes { points: 2.., .. }), "{verdict:?}");
}

/// A sequence lock: readers try again while a write is half done.
#[test]
fn readers_of_a_sequence_lock_spin_on_a_frozen_writer_and_not_the_other_way_round() {
    fn world() -> [Worker; 2] {
        let words = Arc::new([const { AtomicUsize::new(0) }; 2]);
        let written = words.clone();
        let writes = move || {
            let [sequence, value] = &*written;
            sequence.fetch_add(1, Ordering::AcqRel);
            value.store(7, Ordering::Relaxed);
            sequence.fetch_add(1, Ordering::AcqRel);
        };
        let reads = move || {
            let [sequence, value] = &*words;
            loop {
                let before = sequence.load(Ordering::Acquire);
                value.load(Ordering::Relaxed);
                if before % 2 == 0 && sequence.load(Ordering::Acquire) == before {
                    return;
                }
                pause();
            }
        };
        [worker(writes), worker(reads)]
    }
    let verdict = freeze("known: a sequence lock, writer frozen", 0, world);
    assert!(matches!(verdict, Verdict::Spins(_)), "{verdict:?}");
    let verdict = freeze("known: a sequence lock, reader frozen", 1, world);
    assert!(matches!(verdict, Verdict::Passes { .. }), "{verdict:?}");
}

#[test]
fn of_three_in_a_compare_and_swap_loop_one_gets_on_while_two_are_frozen() {
    let world = || {
        three(AtomicUsize::new(0), |n| {
            let mut seen = n.load(Ordering::Relaxed);
            while let Err(now) = n.compare_exchange(seen, seen + 1, Ordering::AcqRel, Ordering::Relaxed) {
                seen = now;
            }
        })
    };
    let verdict = freeze_two("known: a compare-and-swap loop, two frozen", [0, 1], world);
    assert!(matches!(verdict, Verdict::Passes { points: 4.., .. }), "{verdict:?}");
}

/// A lock that one of the frozen holds, while the other has it behind it already.
#[test]
fn of_three_with_a_lock_none_gets_on_when_one_of_the_frozen_holds_it() {
    let verdict = freeze_two("known: a mutex, two frozen", [0, 1], || three(RawMutex::new(0), |m| *m.lock() += 1));
    assert!(matches!(verdict, Verdict::Blocked(_)), "{verdict:?}");
}

/// A callback that takes what is handed to it and does not return from the first; two things are handed over. With
/// `room` for so many that are not taken yet, whoever hands over waits.
fn hand_off(room: usize) -> World {
    let clock = Clock::real();
    let (queue, done) = (Arc::new(Monitor::new((0_usize, false))), Gate::new());
    let (taken, callback_done) = (queue.clone(), done.clone());
    let callback = move || {
        let mut first = true;
        loop {
            let ready = |q: &mut (usize, bool)| q.0 == 0 && !q.1;
            let (mut q, _) = taken.wait_while(taken.lock(), &clock, None, ready);
            if q.0 == 0 {
                break;
            }
            q.0 -= 1;
            drop(q);
            taken.notify_all();
            if std::mem::take(&mut first) {
                stand_still();
            }
        }
        callback_done.open();
    };
    let hands_over = move || {
        let clock = Clock::real();
        for _ in 0..3 {
            let (mut q, _) = queue.wait_while(queue.lock(), &clock, None, |q| q.0 == room);
            q.0 += 1;
            drop(q);
            queue.notify_all();
        }
        queue.lock().1 = true;
        queue.notify_all();
    };
    World::new().finishes(hands_over).waits(callback).waits(move || done.wait())
}

#[test]
fn who_hands_over_without_a_limit_does_not_wait_for_a_callback_that_does_not_return() {
    let verdict = stuck("known: a hand-off without a limit", || hand_off(usize::MAX));
    assert!(matches!(verdict, Verdict::Passes { points: 100.., .. }), "{verdict:?}");
}

#[test]
fn who_hands_over_with_a_limit_waits_for_a_callback_that_does_not_return() {
    let verdict = stuck("known: a hand-off with room for one", || hand_off(1));
    assert!(matches!(verdict, Verdict::Blocked(_)), "{verdict:?}");
}

#[test]
fn who_returns_although_it_had_to_wait_is_found() {
    let world = || {
        let entered = Gate::new();
        let enters = entered.clone();
        let callback = move || {
            enters.open();
            stand_still();
        };
        World::new().finishes(move || entered.wait()).waits(callback).waits(|| ())
    };
    let verdict = stuck("known: one that does not wait", world);
    assert!(matches!(verdict, Verdict::Returns), "{verdict:?}");
}

#[test]
fn a_stop_reaches_a_waiter_wherever_it_arrives() {
    arrives("known: stop arrives at a waiter", 1, 1, || {
        let stop = Stop::new();
        let (stops, clock) = (stop.clone(), Clock::real());
        let wake = Wake::new(&stop, &clock);
        let waits = move || assert_eq!(wake.wait(Deadline::never()), Woken::Stopped);
        [worker(move || stops.stop()), worker(waits)]
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_stop_that_wakes_nobody_is_found() {
    arrives("known: stop arrives and wakes nobody", 1, 1, || {
        let flag = Arc::new(AtomicBool::new(false));
        let sets = flag.clone();
        let waits = move || {
            while !flag.load(Ordering::Acquire) {
                park(&Clock::real(), None);
            }
        };
        [worker(move || sets.store(true, Ordering::Release)), worker(waits)]
    });
}
