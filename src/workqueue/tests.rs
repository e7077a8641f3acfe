//! The promises of the queue, on a clock that is moved by hand.

use super::{
    Bucket, ItemExponential, Limiter, MaxOf, TryGetError, Work, WorkQueue, default_controller,
    ops::{Model, Op, Real, program},
    timer_heap::TimerHeap,
};
use crate::sync::{
    Arc, Clock, Gate, JoinHandle, ManualClock, Mutex, WaitError,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    call_out::assert_contained,
    spawn,
};
use proptest::prelude::*;
use std::{
    collections::BTreeSet,
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn queue(clock: &Clock) -> WorkQueue<u32> {
    WorkQueue::builder().name("q").clock(clock).limiter(ItemExponential::new(ms(5), ms(1000))).build()
}

fn start<T: Send + 'static>(clock: &Clock, name: &str, f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    spawn(clock, name, f).unwrap()
}

/// What workers did: which key, when.
type Log = Arc<Mutex<Vec<(u32, Duration)>>>;

/// `n` workers that take keys until there are no more, and write down what they got.
fn workers(clock: &Clock, q: &WorkQueue<u32>, n: usize) -> (Log, Vec<JoinHandle<()>>) {
    let log = Log::default();
    let threads = (0..n).map(|i| {
        let (q, log, clock_of_log) = (q.clone(), log.clone(), clock.clone());
        start(clock, &format!("worker-{i}"), move || {
            while let Some(work) = q.get() {
                log.lock().push((*work, clock_of_log.now().since_start()));
            }
        })
    });
    let threads = threads.collect();
    (log, threads)
}

fn join(threads: Vec<JoinHandle<()>>) {
    threads.into_iter().for_each(|t| t.join().unwrap());
}

// ---- against the model ---------------------------------------------------------------------------------------------

proptest! {
    #[test]
    fn does_what_the_model_does(
        ops in prop::collection::vec(any::<u8>(), 0..250),
        end in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let (mut model, mut real) = (Model::default(), Real::new());
        let [ops, end] = [ops, end].map(|bytes| program(&bytes));
        for op in ops.iter().chain([&Op::Shutdown]).chain(&end).chain([&Op::Shutdown]) {
            prop_assert_eq!(model.apply(op), real.apply(op), "{:?}", op);
        }
        real.work_off();
        prop_assert_eq!(real.queue.known_keys(), 0);
    }

    #[test]
    fn timers_come_by_deadline_then_by_adding(ops in prop::collection::vec((0..8u32, 0..3u8), 0..60)) {
        let (mut heap, mut plain) = (TimerHeap::new(), Vec::new());
        for (n, (at, what)) in ops.into_iter().enumerate() {
            match what {
                0 => {
                    let expected = plain.iter().map(|&(at, n, _)| (at, n)).min().filter(|d| d.0 <= at);
                    plain.retain(|&(a, m, _)| Some((a, m)) != expected);
                    prop_assert_eq!(heap.pop_due(at), expected.map(|d| d.1));
                }
                1 if !plain.is_empty() => {
                    let (_, m, timer) = plain.remove(at as usize % plain.len());
                    prop_assert_eq!(heap.disarm(timer), Some(m));
                    prop_assert_eq!(heap.disarm(timer), None);
                }
                _ => plain.push((at, n, heap.arm(at, n))),
            }
            prop_assert_eq!(heap.next(), plain.iter().map(|d| d.0).min());
        }
        plain.sort_unstable_by_key(|&(at, n, _)| (at, n));
        prop_assert_eq!(heap.take_all().collect::<Vec<_>>(), plain.iter().map(|d| d.1).collect::<Vec<_>>());
    }
}

// ---- P6: exclusive, nothing lost, nothing asleep ---------------------------------------------------------------------

#[test]
fn p6_readd_while_held_is_handed_out_once_after_done() {
    let clock = ManualClock::new();
    let q = queue(&clock);
    assert!(q.add(1));
    let work = q.get().unwrap();
    assert!(q.add(1) && q.add(1));
    assert_eq!((q.len(), q.try_get().unwrap_err()), (0, TryGetError::Empty));
    Work::done(work);
    assert_eq!(q.len(), 1);
    assert_eq!(*q.try_get().unwrap(), 1);
    assert_eq!(q.known_keys(), 0);
}

#[test]
fn p6_no_key_is_held_twice_and_no_add_is_lost_with_many_threads() {
    const KEYS: usize = 7;
    let clock = ManualClock::new();
    let q = WorkQueue::<usize>::builder().clock(&clock).build();
    // Per key: a number that each adder raises before it adds, what the last run of the key saw, and who is in it.
    let cells: Arc<Vec<[AtomicUsize; 3]>> = Arc::new((0..KEYS).map(|_| Default::default()).collect());
    let threads: Vec<_> = (0..4)
        .map(|i| {
            let (q, cells) = (q.clone(), cells.clone());
            start(&clock, &format!("worker-{i}"), move || {
                while let Some(work) = q.get() {
                    let [added, seen, inside] = &cells[*work];
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "held twice");
                    seen.store(added.load(SeqCst), SeqCst);
                    inside.fetch_sub(1, SeqCst);
                }
            })
        })
        .collect();
    let adders: Vec<_> = (0..3)
        .map(|i| {
            let (q, cells) = (q.clone(), cells.clone());
            start(&clock, &format!("adder-{i}"), move || {
                for n in 0..2000 {
                    let key = (n * (i + 1)) % KEYS;
                    cells[key][0].fetch_add(1, SeqCst);
                    assert!(q.add(key));
                }
            })
        })
        .collect();
    join(adders);
    clock.settle();
    for [added, seen, _] in cells.iter() {
        assert_eq!(added.load(SeqCst), seen.load(SeqCst), "an add was not followed by a run that began after it");
    }
    q.shutdown();
    join(threads);
}

#[test]
fn no_wake_up_is_lost_with_several_adders_and_parked_workers() {
    for round in 0..20 {
        let clock = ManualClock::new();
        let q = queue(&clock);
        let (log, threads) = workers(&clock, &q, 4);
        clock.settle();
        let adders: Vec<_> = (0..3)
            .map(|i| {
                let q = q.clone();
                start(&clock, &format!("adder-{i}"), move || (0..50).for_each(|n| assert!(q.add(i * 50 + n))))
            })
            .collect();
        join(adders);
        clock.settle();
        // The queue is not touched before this: a look would wake whoever was forgotten.
        let keys: BTreeSet<u32> = log.lock().iter().map(|l| l.0).collect();
        assert_eq!((keys.len(), log.lock().len()), (150, 150), "round {round}");
        q.shutdown();
        join(threads);
        assert!(clock.threads().is_empty());
    }
}

#[test]
fn as_many_workers_wake_as_keys_are_due() {
    let clock = ManualClock::new();
    let q = queue(&clock);
    let gate = Gate::new();
    let inside = Arc::new(AtomicUsize::new(0));
    let threads = (0..4).map(|i| {
        let (q, gate, inside) = (q.clone(), gate.clone(), inside.clone());
        start(&clock, &format!("worker-{i}"), move || {
            while let Some(_work) = q.get() {
                inside.fetch_add(1, SeqCst);
                gate.wait();
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    clock.settle();
    for key in 0..3 {
        q.add_after(key, ms(10));
    }
    clock.advance(ms(10));
    assert_eq!(inside.load(SeqCst), 3, "three keys were due at one instant and four workers were parked");
    gate.open();
    clock.settle();
    q.shutdown();
    join(threads);
}

#[test]
fn each_delay_fires_at_its_own_instant_whoever_leads() {
    let clock = ManualClock::new();
    let q = queue(&clock);
    // The first to park leads, and leaves at 5 ms without a key; another worker must take the deadlines over.
    let leaver = {
        let q = q.clone();
        start(&clock, "leaver", move || q.get_deadline(ms(5)).map(|w| *w))
    };
    clock.settle();
    let (log, threads) = workers(&clock, &q, 3);
    clock.settle();
    for (key, at) in [(1, 40), (2, 20), (3, 30), (4, 10), (5, 20)] {
        assert!(q.add_after(key, ms(at)));
    }
    clock.advance(ms(100));
    assert_eq!(leaver.join().unwrap(), Err(TryGetError::Empty));
    let mut got = log.lock().clone();
    got.sort_by_key(|l| (l.1, l.0));
    assert_eq!(got, [(4, ms(10)), (2, ms(20)), (5, ms(20)), (3, ms(30)), (1, ms(40))]);
    q.shutdown();
    join(threads);
}

#[test]
fn an_earlier_delay_wakes_the_leader_earlier() {
    let clock = ManualClock::new();
    let q = queue(&clock);
    let (log, threads) = workers(&clock, &q, 1);
    q.add_after(1, ms(50));
    clock.advance(ms(1));
    q.add_after(1, ms(20));
    q.add_after(1, ms(90));
    clock.advance(ms(200));
    assert_eq!(*log.lock(), [(1, ms(21))]);
    q.shutdown();
    join(threads);
}

#[test]
fn get_deadline_keeps_its_deadline() {
    let clock = ManualClock::new();
    let q = queue(&clock);
    let waiter = {
        let (q, c) = (q.clone(), clock.clock());
        start(&clock, "waiter", move || (q.get_deadline(ms(30)).map(|w| *w), c.now().since_start()))
    };
    clock.advance(ms(29));
    assert!(!waiter.is_finished());
    clock.advance(ms(5));
    assert_eq!(waiter.join().unwrap(), (Err(TryGetError::Empty), ms(30)));
    q.add(7);
    assert_eq!(*q.get_deadline(Duration::ZERO).unwrap(), 7);
}

#[test]
fn a_delay_too_large_never_ends_and_breaks_nothing() {
    let clock = ManualClock::new();
    let q = queue(&clock);
    let (log, threads) = workers(&clock, &q, 2);
    assert!(q.add_after(1, Duration::MAX) && q.add_after(2, ms(10)));
    clock.advance(Duration::from_secs(1 << 30));
    assert_eq!(*log.lock(), [(2, ms(10))]);
    assert_eq!(q.shutdown().delays_dropped, 1);
    join(threads);
}

#[test]
fn nothing_of_a_key_is_kept_after_its_work() {
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Key(Arc<u8>);
    let q = WorkQueue::builder().build();
    let key = Arc::new(1);
    q.add(Key(key.clone()));
    q.add(Key(key.clone()));
    drop(q.get());
    assert_eq!(Arc::strong_count(&key), 1);
    q.add(Key(key.clone()));
    q.add_after(Key(key.clone()), ms(60_000));
    drop(q);
    assert_eq!(Arc::strong_count(&key), 1, "the queue's end");
}

#[test]
fn a_burst_gives_its_room_back_and_the_queue_goes_on() {
    let q = queue(&Clock::real());
    for round in 0..3 {
        assert_eq!(q.add_all(0..10_000), 10_000);
        for key in 0..10_000 {
            assert_eq!(*q.try_get().unwrap(), key, "round {round}");
        }
        assert_eq!(q.known_keys(), 0);
    }
}

// ---- shut down and drain -----------------------------------------------------------------------------------------

#[test]
fn shutdown_wakes_every_parked_worker_and_is_idempotent() {
    let clock = ManualClock::new();
    let q = queue(&clock);
    let (_, threads) = workers(&clock, &q, 5);
    clock.settle();
    q.shutdown();
    join(threads);
    assert!(!q.add(1) && !q.add_after(2, ms(1)));
    assert_eq!(q.shutdown().refused, 2);
    assert!(q.get().is_none() && q.is_shut_down());
}

/// client-go answers "shut down" while a held key is still owed a round; a lone worker that believes it loses the key.
#[test]
fn p6_none_comes_only_when_no_accepted_key_can_come_any_more() {
    let clock = ManualClock::new();
    let q = queue(&clock);
    q.add(1);
    let work = q.get().unwrap();
    assert!(q.add(1));
    q.shutdown();
    let (log, threads) = workers(&clock, &q, 3);
    clock.settle();
    assert_eq!(threads.iter().filter(|t| t.is_finished()).count(), 0, "the key is owed another round");
    assert!(q.get().is_none(), "this thread holds that key itself and must not wait for it");
    drop(work);
    join(threads);
    assert_eq!(log.lock().len(), 1);
}

#[test]
fn drain_waits_for_queued_held_and_dirty_keys_and_counts_what_it_drops() {
    let clock = ManualClock::new();
    let q = queue(&clock);
    let gate = Gate::new();
    let worker = {
        let (q, gate) = (q.clone(), gate.clone());
        start(&clock, "worker", move || {
            let mut got = Vec::new();
            while let Some(work) = q.get() {
                gate.wait();
                got.push(*work);
                if *work == 2 {
                    assert!(!Work::requeue_after(work, ms(1)), "refused while draining");
                }
            }
            got
        })
    };
    q.add(1);
    clock.settle();
    q.add_all([2, 3, 1]);
    q.add_after(4, ms(1));
    q.add_after(1, ms(1));
    let drainers: Vec<_> = (0..2)
        .map(|i| {
            let q = q.clone();
            start(&clock, &format!("drainer-{i}"), move || q.drain(ms(1000)))
        })
        .collect();
    clock.settle();
    assert!(!q.add(9));
    assert!(drainers.iter().all(|d| !d.is_finished()));
    gate.open();
    for drainer in drainers {
        let report = drainer.join().unwrap().unwrap();
        assert_eq!((report.finished, report.delays_dropped, report.refused), (4, 2, 2));
    }
    assert_eq!(worker.join().unwrap(), [1, 2, 3, 1]);
}

#[test]
fn drain_names_what_is_missing_at_its_deadline() {
    let clock = ManualClock::new();
    let q = queue(&clock);
    q.add_all([1, 2, 3]);
    let leak = |name: &str| {
        let q = q.clone();
        start(&clock, name, move || q.get()).join().unwrap()
    };
    let ended = leak("careless");
    let gate = Gate::new();
    let holder = {
        let (q, gate) = (q.clone(), gate.clone());
        start(&clock, "holder", move || {
            let _work = q.get();
            gate.wait();
        })
    };
    clock.settle();
    let drainer = {
        let q = q.clone();
        start(&clock, "drainer", move || q.drain(ms(10)))
    };
    clock.advance(ms(10));
    let WaitError::Timeout { missing, .. } = drainer.join().unwrap().unwrap_err() else { panic!("not a time-out") };
    assert_eq!(missing, ["q: 1 queued", "q: a key taken by thread that has ended", "q: a key taken by thread holder"]);
    gate.open();
    holder.join().unwrap();
    drop(ended);
}

#[test]
fn drain_refuses_where_it_would_wait_for_its_own_caller() {
    let clock = ManualClock::new();
    let q = queue(&clock);
    q.add(1);
    let work = q.get();
    assert_eq!(q.drain(ms(1)).unwrap_err(), WaitError::WouldDeadlock);
    assert!(!q.is_shut_down(), "nothing has changed");
    // Moved to another thread the work still counts as this thread's.
    let other = start(&clock, "other", {
        let q = q.clone();
        move || {
            let outcome = q.drain(ms(1)).unwrap_err();
            drop(work);
            outcome
        }
    });
    clock.advance(ms(1));
    assert!(matches!(other.join().unwrap(), WaitError::Timeout { .. }));
    assert_eq!(q.drain(ms(1)).unwrap().finished, 0);
}

#[test]
fn shutdown_cancels_a_running_drain_but_not_a_later_one() {
    let clock = ManualClock::new();
    let q = queue(&clock);
    q.add(1);
    let work = q.get().unwrap();
    let drain = |name| {
        let q = q.clone();
        start(&clock, name, move || q.drain(ms(1000)))
    };
    let first = drain("first");
    clock.settle();
    q.shutdown();
    assert_eq!(first.join().unwrap().unwrap_err(), WaitError::Cancelled);
    let second = drain("second");
    clock.settle();
    assert!(!second.is_finished());
    drop(work);
    assert_eq!(second.join().unwrap().unwrap().finished, 1);
}

// ---- P9, P10: keys and limiters that panic or call back ----------------------------------------------------------

#[derive(Default)]
struct Fuses {
    hash: AtomicBool,
    eq: AtomicBool,
    clone: AtomicBool,
    drop: AtomicBool,
    /// Looked at from within `Hash`, `Clone` and `Drop`: hangs or trips an assertion when the queue's lock is held.
    calls: Mutex<Option<WorkQueue<Touchy>>>,
}

/// A key whose code blows up when its fuse is lit, once.
struct Touchy(u8, Arc<Fuses>);

impl Touchy {
    fn touch(&self, fuse: &AtomicBool, what: &str) {
        let q = self.1.calls.lock().clone();
        if let Some(q) = q {
            q.len();
        }
        assert!(!fuse.swap(false, SeqCst), "{what} blew up");
    }
}

impl Hash for Touchy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.touch(&self.1.hash, "Hash");
        // All collide, so that each look-up compares.
        state.write_u8(1);
    }
}

impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        assert!(!self.1.eq.swap(false, SeqCst), "Eq blew up");
        self.0 == other.0
    }
}

impl Eq for Touchy {}

impl Clone for Touchy {
    fn clone(&self) -> Self {
        self.touch(&self.1.clone, "Clone");
        Self(self.0, self.1.clone())
    }
}

impl Drop for Touchy {
    fn drop(&mut self) {
        let fuses = self.1.clone();
        self.touch(&fuses.drop, "Drop");
    }
}

#[test]
fn p9_a_panicking_key_is_refused_and_hurts_nobody_else() {
    let clock = ManualClock::new();
    let fuses = Arc::new(Fuses::default());
    let key = |n| Touchy(n, fuses.clone());
    let q = WorkQueue::builder().clock(&clock).build();
    assert!(q.add(key(1)) && q.add(key(2)) && q.add_after(key(3), ms(5)));
    for fuse in [&fuses.hash, &fuses.clone, &fuses.eq] {
        fuse.store(true, SeqCst);
        assert!(!q.add(key(9)));
    }
    fuses.drop.store(true, SeqCst);
    assert!(q.add(key(1)), "coalesced; only the spare key's drop panicked");
    assert_contained(&clock, &["Hash blew up", "Clone blew up", "Eq blew up", "Drop blew up"]);
    clock.advance(ms(5));

    let first = q.try_get().unwrap();
    assert!(q.add(key(1)));
    fuses.drop.store(true, SeqCst);
    Work::done(first);
    assert_contained(&clock, &["Drop blew up"]);
    let mut got = Vec::new();
    while let Ok(work) = q.try_get() {
        got.push(work.0);
    }
    assert_eq!((got, q.known_keys()), (vec![2, 3, 1], 0));
    assert_eq!(q.shutdown().key_panics, 5);
}

#[test]
fn p9_a_worker_that_unwinds_gives_its_key_back() {
    let q = WorkQueue::builder().build();
    let fuses = Arc::new(Fuses::default());
    assert!(q.add(Touchy(1, fuses.clone())));
    let died = catch_unwind(AssertUnwindSafe(|| {
        let work = q.get().unwrap();
        q.add(Touchy(1, fuses.clone()));
        fuses.drop.store(true, SeqCst);
        assert_eq!(work.0, 2, "the worker dies");
    }));
    assert!(died.is_err());
    assert_contained(q.clock(), &["Drop blew up"]);
    assert_eq!(q.get().unwrap().0, 1);
    assert_eq!(q.known_keys(), 0);
}

#[test]
fn p9_keys_that_panic_in_drop_when_the_queue_ends_are_contained() {
    let fuses = Arc::new(Fuses::default());
    let q = WorkQueue::builder().build();
    let clock = q.clock().clone();
    q.add_all((0..5).map(|n| Touchy(n, fuses.clone())));
    fuses.drop.store(true, SeqCst);
    drop(q);
    assert_eq!(Arc::strong_count(&fuses), 1);
    assert_contained(&clock, &["Drop blew up"]);
}

#[test]
fn p9_a_panicking_limiter_costs_a_wait_not_the_key() {
    struct Broken;
    impl Limiter<u32> for Broken {
        fn when(&self, _: &u32) -> Duration {
            panic!("when is broken")
        }
        fn forget(&self, _: &u32) {
            panic!("forget is broken")
        }
        fn requeues(&self, _: &u32) -> u32 {
            panic!("requeues is broken")
        }
    }
    let clock = ManualClock::new();
    let q = WorkQueue::builder().clock(&clock).limiter(Broken).build();
    assert!(q.add_rate_limited(1));
    q.forget(&1);
    assert_eq!(q.requeues(&1), 0);
    clock.advance(ms(999));
    assert_eq!(q.len(), 0);
    clock.advance(ms(1));
    assert!(Work::retry(q.try_get().unwrap()));
    clock.advance(ms(1000));
    assert_eq!(q.len(), 1);
    assert_contained(&clock, &["when is broken", "when is broken", "forget is broken", "requeues is broken"]);
}

#[test]
fn p9_a_key_that_panics_in_a_limiter_leaves_its_table_whole() {
    let clock = ManualClock::new();
    let fuses = Arc::new(Fuses::default());
    let (a, b) = (Touchy(1, fuses.clone()), Touchy(2, fuses.clone()));
    let limiter = default_controller(&clock);
    assert_eq!(limiter.when(&a), ms(5));
    for fuse in [&fuses.hash, &fuses.eq, &fuses.clone] {
        fuse.store(true, SeqCst);
        assert!(catch_unwind(AssertUnwindSafe(|| limiter.when(&b))).is_err());
    }
    assert_eq!((limiter.when(&a), limiter.when(&b)), (ms(10), ms(5)));
    fuses.drop.store(true, SeqCst);
    limiter.forget(&a);
    assert_eq!((limiter.requeues(&a), limiter.requeues(&b)), (0, 1));
    assert_contained(&clock, &["Drop blew up"]);
}

#[test]
fn p10_hash_clone_and_drop_of_keys_and_limiters_may_use_the_queue() {
    struct Calls(Arc<Fuses>);
    impl Limiter<Touchy> for Calls {
        fn when(&self, key: &Touchy) -> Duration {
            key.touch(&self.0.hash, "when");
            ms(5)
        }
        fn forget(&self, key: &Touchy) {
            key.touch(&self.0.hash, "forget");
        }
        fn requeues(&self, _: &Touchy) -> u32 {
            0
        }
    }
    let clock = ManualClock::new();
    let fuses = Arc::new(Fuses::default());
    let q = WorkQueue::builder().clock(&clock).limiter(Calls(fuses.clone())).build();
    *fuses.calls.lock() = Some(q.clone());
    let key = || Touchy(1, fuses.clone());
    assert!(q.add(key()) && q.add(key()) && q.add_after(key(), ms(1)) && q.add_rate_limited(key()));
    let work = q.get().unwrap();
    Work::forget(&work);
    assert!(Work::retry(work));
    clock.advance(ms(5));
    drop(q.get());
    q.add_after(key(), ms(1));
    q.shutdown();
    assert_eq!(q.known_keys(), 0);
    fuses.calls.lock().take();
}

#[test]
#[cfg(debug_assertions)]
fn p10_eq_that_calls_back_is_found_out() {
    #[derive(Clone)]
    struct Nosy(Arc<Mutex<Option<WorkQueue<Nosy>>>>);
    impl Hash for Nosy {
        fn hash<H: Hasher>(&self, _: &mut H) {}
    }
    impl PartialEq for Nosy {
        fn eq(&self, other: &Self) -> bool {
            // What a call into the queue begins with.
            other.0.lock().is_some()
        }
    }
    impl Eq for Nosy {}
    let q = WorkQueue::builder().build();
    let key = Nosy(Arc::default());
    assert!(q.add(key.clone()));
    assert!(!q.add(key));
    assert_contained(q.clock(), &["must not call back"]);
    assert_eq!(q.len(), 1);
}

// ---- limiters ----------------------------------------------------------------------------------------------------

proptest! {
    /// B-132: delays never fall and never pass the cap, however many failures there are.
    #[test]
    fn b132_exponential_waits_double_up_to_the_cap(base in 0..10_000_000u64, max in 0..1_000_000_000_000u64, calls in 1..300u32) {
        let (base, max) = (Duration::from_nanos(base), Duration::from_nanos(max));
        let limiter = ItemExponential::new(base, max);
        let mut before = Duration::ZERO;
        for n in 0..calls {
            let exact = base.as_nanos().saturating_mul(1 << n.min(120));
            let wait = limiter.when(&1);
            prop_assert_eq!(wait.as_nanos(), exact.min(max.as_nanos()));
            prop_assert!(wait >= before);
            before = wait;
        }
        prop_assert_eq!(limiter.requeues(&1), calls);
        prop_assert_eq!(limiter.requeues(&2), 0);
        limiter.forget(&1);
        limiter.forget(&3);
        prop_assert_eq!((limiter.requeues(&1), limiter.when(&1)), (0, base.min(max)));
    }
}

#[test]
fn a_key_that_waits_for_its_token_takes_no_second_one() {
    let clock = ManualClock::new();
    let bucket = Bucket::new(10.0, 1, &clock);
    let waits: Vec<_> = [1, 2, 2, 2, 3, 2].map(|key| bucket.when(&key)).into();
    assert_eq!(waits, [0, 100, 100, 100, 200, 100].map(ms));
    clock.advance(ms(100));
    assert_eq!((bucket.when(&2), bucket.when(&3)), (ms(200), ms(100)), "2 had its token and takes the next one");
    clock.advance(ms(10_000));
    assert_eq!([1, 2].map(|key| bucket.when(&key)), [0, 100].map(ms), "full again, and no fuller than that");
}

#[test]
fn a_bucket_forgets_the_keys_whose_wait_is_over() {
    let clock = ManualClock::new();
    let bucket = Bucket::new(1000.0, 1, &clock);
    for key in 0..10_000 {
        bucket.when(&key);
        clock.advance(Duration::from_micros(900));
    }
    assert!(bucket.waiting_keys() < 3000, "{} of 10,000 keys kept", bucket.waiting_keys());
}

#[test]
fn buckets_without_tokens_and_without_limits() {
    let clock = ManualClock::new();
    for qps in [0.0, -1.0, f64::NAN] {
        let bucket = Bucket::new(qps, 1, &clock);
        assert_eq!([1, 2, 3].map(|key| bucket.when(&key)), [Duration::ZERO, Duration::MAX, Duration::MAX]);
    }
    assert_eq!(Bucket::new(10.0, 0, &clock).when(&1), Duration::MAX);
    let free = Bucket::new(f64::INFINITY, 0, &clock);
    assert!((0..100).all(|key| free.when(&key).is_zero()));
}

#[test]
fn max_of_asks_every_limiter() {
    let limiter = |base, max| Box::new(ItemExponential::new(ms(base), ms(max))) as Box<dyn Limiter<u8>>;
    let both = MaxOf::new([limiter(5, 6), limiter(1, 1000)]);
    assert_eq!([0; 5].map(|_| both.when(&1)), [5, 6, 6, 8, 16].map(ms));
    assert_eq!(both.requeues(&1), 5);
    both.forget(&1);
    assert_eq!((both.requeues(&1), both.when(&1)), (0, ms(5)));
    assert_eq!(MaxOf::new([]).when(&1), Duration::ZERO);
}
