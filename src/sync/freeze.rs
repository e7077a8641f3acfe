//! Subjects with known answers, which keep the freeze checker honest.

use super::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
    backend::RawMutex,
    prove::{Verdict, Worker, freeze, pause, worker},
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
