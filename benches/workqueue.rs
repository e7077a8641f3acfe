//! What does one trip of a key through the queue cost: added, taken, done?
//!
//! `queue_cycle/alone`: one thread walks 1,000 keys again and again; nothing waits, nothing is contended.
//! `queue_cycle/contended/4_4`: four threads add 1,000 keys, four workers take them; the time is that from the first add
//! until every hand-out owed has been done, divided by the adds. Adds that coalesce make no trip, so this is the price of
//! an add with everything that comes after it, under contention on one lock.
//!
//! Keys are object keys that carry their hash, as handlers enqueue them. Cloning the key is inside the loop.
#![allow(missing_docs, clippy::disallowed_types, clippy::disallowed_methods, reason = "a bench measures real time")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use informer::{flow::ObjectKey, workqueue::WorkQueue};
use std::{
    hint::black_box,
    sync::Barrier,
    time::{Duration, Instant},
};

const KEYS: usize = 1000;
const THREADS: usize = 4;

fn keys() -> Vec<ObjectKey> {
    (0..KEYS).map(|i| ObjectKey::new(&format!("ns-{}", i % 20), &format!("pod-{i}")).unwrap()).collect()
}

/// Each key: added, taken, done.
fn cycle(queue: &WorkQueue<ObjectKey>, keys: &[ObjectKey]) {
    for key in keys {
        queue.add(key.clone());
        black_box(queue.get());
    }
}

/// `rounds` times all keys by each adder, until the queue is worked off.
fn contended(keys: &[ObjectKey], rounds: u64) -> Duration {
    let queue = WorkQueue::<ObjectKey>::builder().build();
    let ready = Barrier::new(2 * THREADS + 1);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                ready.wait();
                while let Some(work) = queue.get() {
                    black_box(&*work);
                }
            });
        }
        let adders: Vec<_> = (0..THREADS)
            .map(|i| {
                let (queue, ready) = (&queue, &ready);
                scope.spawn(move || {
                    ready.wait();
                    for _ in 0..rounds {
                        // Each begins elsewhere, so that they do not add the same key at the same time.
                        let (before, after) = keys.split_at(i * KEYS / THREADS);
                        for key in after.iter().chain(before) {
                            queue.add(key.clone());
                        }
                    }
                })
            })
            .collect();
        ready.wait();
        let start = Instant::now();
        for adder in adders {
            adder.join().unwrap();
        }
        queue.drain(Duration::from_secs(60)).unwrap();
        start.elapsed()
    })
}

fn queue_cycle(c: &mut Criterion) {
    let keys = keys();
    let mut group = c.benchmark_group("queue_cycle");
    group.throughput(Throughput::Elements(KEYS as u64));
    group.bench_function("alone", |b| {
        let queue = WorkQueue::builder().build();
        b.iter(|| cycle(&queue, &keys));
    });
    group.throughput(Throughput::Elements((THREADS * KEYS) as u64));
    group.bench_function(BenchmarkId::new("contended", "4_4"), |b| b.iter_custom(|rounds| contended(&keys, rounds)));
    group.finish();
}

criterion_group!(benches, queue_cycle);
criterion_main!(benches);
