//! The river for ThreadSanitizer: real threads on the real clock, every door that several threads share.
//!
//! ThreadSanitizer sees what is compiled with it: this program, the crate and its dependencies, but not the standard
//! library. So nothing here synchronises by a part of `std` that has code of its own (channels, scopes, locks): threads
//! begin with `spawn`, end with `join`, and meet by atomics. No test harness either, for the same reason.

use informer::{
    flow::{Delta, DeltaSink, Event, Object, ObjectKey},
    informer::{Engine, SharedInformer},
    memory::{Close, Pod, Server},
    queue::RealFifo,
    reflector::Backoff,
    sync::{Clock, Gate, Stop, Synced},
    workqueue::{ItemExponential, Work, WorkQueue},
};
use std::{
    cell::UnsafeCell,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

const OBJECTS: usize = 12;
const ROUNDS: usize = 120;
const LIMIT: Duration = Duration::from_secs(60);

fn main() {
    // What is made at its first use is made here, on one thread: std's `Once` is not instrumented.
    let first = Object::with_key(ObjectKey::new("ns", "first").unwrap(), "1", "", 0_u8);
    assert_eq!(Object::version(&first), "1");
    for engine in [Engine::Merged, Engine::Decoupled] {
        river(engine);
    }
    delta_queue();
    work_queue();
    println!("the river ran to its end");
}

/// The relaxed counters of this program order nothing, so that they hide no race of the crate.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LIMIT, "{what}: not after {LIMIT:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn join_all(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

fn key(n: usize) -> (&'static str, String) {
    ("ns", format!("p{}", n % OBJECTS))
}

/// Writers, relists, an informer with handlers of every sort, readers, and workers of a queue.
fn river(engine: Engine) {
    let clock = Clock::real();
    let server = Server::new(&clock);
    for n in 0..OBJECTS {
        server.create(Pod::new("ns", key(n).1).on_node("n0")).unwrap();
    }
    let backoff = Backoff { base: Duration::from_millis(1), cap: Duration::from_millis(2), jitter: 0.0, ..Backoff::default() };
    let pods = SharedInformer::builder(server.source::<Pod>())
        .engine(engine)
        .index("node", |pod: &Pod, emit: &mut dyn FnMut(String)| emit(pod.node.clone()))
        .relist_spread(Duration::ZERO)
        .backoff(backoff)
        .build()
        .unwrap();
    let queue = WorkQueue::<ObjectKey>::builder().name("river").build();

    let keys = queue.clone();
    let feeds = pods
        .on(move |event: &Event<Pod>| {
            keys.add(event.key().clone());
        })
        .unwrap();
    let (gate, seen) = (Gate::new(), Arc::new(AtomicU64::new(0)));
    let (held, count) = (gate.clone(), seen.clone());
    // Stuck until the end, so that its ring grows while the engine fills it, and shrinks again.
    let slow = pods
        .on(move |event: &Event<Pod>| {
            held.wait();
            count.fetch_add(event.object().map_or(0, |pod| pod.generation), Relaxed);
        })
        .unwrap();

    let stop = Stop::new();
    let running = pods.spawn(&stop).unwrap();
    feeds.wait_synced(LIMIT.into()).unwrap();

    let over = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    let mut others = Vec::new();
    for which in 0..2 {
        let server = server.clone();
        writers.push(thread::spawn(move || {
            for round in 0..ROUNDS {
                let (namespace, name) = key(which + 2 * round);
                let id = (namespace, name.as_str());
                // Whatever fails here failed because the other writer was faster.
                match round % 7 {
                    3 => drop(server.delete::<Pod>(id)),
                    5 => drop(server.create(Pod::new(namespace, name.as_str()))),
                    _ => drop(server.edit::<Pod>(id, |pod| {
                        pod.generation += 1;
                        pod.node = format!("n{}", round % 3);
                    })),
                }
                if round % 50 == 49 {
                    server.restart(Close::Cut);
                }
                thread::yield_now();
            }
        }));
        let (pods, over) = (pods.clone(), over.clone());
        others.push(thread::spawn(move || {
            let (store, lister) = (pods.store(), pods.lister());
            let mut round = 0;
            while !over.load(Relaxed) {
                round += 1;
                let (namespace, name) = key(round);
                let snapshot = store.snapshot();
                let all: usize = snapshot.objects().map(|o| o.name.len() + Object::version(o).len()).sum();
                let later = store.get(&(namespace, name.as_str())).map_or(0, |o| o.generation);
                let on_node = store.by_index("node", "n1").unwrap().len() as u64;
                assert!(all > 0 || snapshot.is_empty());
                assert!(later + on_node < u64::MAX && lister.all().len() <= OBJECTS);
                if round % 16 == 0 {
                    // Joins and leaves while the others are told.
                    let mut told = Vec::new();
                    let late = pods.on(move |event: &Event<Pod>| told.push(event.key().clone())).unwrap();
                    late.wait_synced(LIMIT.into()).unwrap();
                    late.shutdown(LIMIT).unwrap();
                }
            }
        }));
        let queue = queue.clone();
        others.push(thread::spawn(move || {
            while let Some(work) = queue.get() {
                if work.name().len() == 2 && Work::failures(&work) == 0 {
                    Work::retry(work);
                } else {
                    Work::forget(&work);
                    Work::done(work);
                }
            }
        }));
    }
    join_all(writers);
    until("the store catches up", || pods.store().version() == server.version());
    over.store(true, Relaxed);
    gate.open();
    until("the slow handler catches up", || slow.backlog() == 0 && feeds.backlog() == 0);
    assert!(seen.load(Relaxed) > 0);
    let truth = server.all::<Pod>();
    let copy = pods.store().snapshot();
    assert_eq!(copy.len(), truth.objects.len());
    for object in &truth.objects {
        assert_eq!(Object::version(copy.object(object).unwrap()), Object::version(object));
    }
    queue.shutdown();
    queue.drain(LIMIT).unwrap();
    join_all(others);
    stop.stop();
    running.join().unwrap();
}

/// Two producers and two takers of one delta queue; every delta arrives once.
fn delta_queue() {
    let clock = Clock::real();
    let queue = Arc::new(RealFifo::<u64>::new("fifo", &clock));
    let (sum, taken) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let total = 2 * 4 * ROUNDS as u64;
    let mut threads = Vec::new();
    for which in 0..2_u64 {
        let queue = queue.clone();
        threads.push(thread::spawn(move || {
            for round in 0..ROUNDS as u64 {
                let object = |n: u64| {
                    let name = format!("{which}-{round}-{n}");
                    Delta::Added(Object::with_key(ObjectKey::new("ns", &name).unwrap(), "1", "", n))
                };
                queue.apply(&mut (0..4).map(object).collect()).unwrap();
            }
        }));
    }
    let takers = (0..2).map(|_| {
        let (queue, sum, taken) = (queue.clone(), sum.clone(), taken.clone());
        thread::spawn(move || {
            while let Ok(mut some) = queue.take(5) {
                for delta in some.drain() {
                    if let Delta::Added(object) = delta {
                        sum.fetch_add(*object, Relaxed);
                        taken.fetch_add(1, Relaxed);
                    }
                }
                some.commit();
            }
        })
    });
    let takers = takers.collect();
    join_all(threads);
    until("everything is taken", || taken.load(Relaxed) == total);
    queue.close();
    join_all(takers);
    assert_eq!(sum.load(Relaxed), total / 4 * 6);
}

/// A number without any synchronisation: whoever has its key may touch it.
struct Plain(UnsafeCell<u64>);

// SAFETY: only the worker that has the `Work` of its key touches it. That this suffices is what is being checked here.
unsafe impl Sync for Plain {}

/// Producers, workers and delays of one work queue. The hand-out of a key orders what its workers do.
fn work_queue() {
    let limiter = ItemExponential::new(Duration::from_micros(10), Duration::from_millis(1));
    let queue = WorkQueue::<u64>::builder().name("keys").limiter(limiter).build();
    let plain: Arc<Vec<Plain>> = Arc::new((0..8).map(|_| Plain(UnsafeCell::new(0))).collect());
    let works = Arc::new(AtomicU64::new(0));
    let workers = (0..3).map(|_| {
        let (queue, plain, works) = (queue.clone(), plain.clone(), works.clone());
        thread::spawn(move || {
            while let Some(work) = queue.get() {
                // SAFETY: see `Plain`.
                unsafe { *plain[*work as usize].0.get() += 1 };
                works.fetch_add(1, Relaxed);
                if *work < 3 && Work::failures(&work) < 2 {
                    Work::retry(work);
                } else {
                    Work::done(work);
                }
            }
        })
    });
    let workers = workers.collect();
    let producers = (0..2_u64).map(|which| {
        let queue = queue.clone();
        thread::spawn(move || {
            for round in 0..4 * ROUNDS as u64 {
                let key = (round + which) % 8;
                let accepted = match round % 5 {
                    0 => queue.add_after(key, Duration::from_micros(50)),
                    1 => queue.add_rate_limited(key),
                    _ => queue.add(key),
                };
                assert!(accepted);
                if round % 32 == 0 {
                    queue.forget(&key);
                    thread::yield_now();
                }
            }
        })
    });
    join_all(producers.collect());
    queue.shutdown();
    queue.drain(LIMIT).unwrap();
    join_all(workers);
    // SAFETY: every worker has ended.
    let sum: u64 = plain.iter().map(|n| unsafe { *n.0.get() }).sum();
    assert_eq!(sum, works.load(Relaxed));
}
