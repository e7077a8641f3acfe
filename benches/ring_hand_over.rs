//! What does it cost to hand something to a listener: through the ring, through one locked queue, through std's channel?
//!
//! `hand_over/alone`: one thread pushes 1,000 items and takes them out again; nothing waits, nothing is contended.
//! `hand_over/across`: one thread pushes 1,000 items, waking after every tenth, as an engine does after a batch; another
//! takes them out. The time is that until the last one is out. The consumer sleeps when it has caught up, so this has the
//! price of waking it in it, and varies with the machine's mood; compare the forms of one run.
//!
//! The ring is not public, so the bench has the room, and what that stands on, as files of its own.
#![allow(missing_docs, clippy::disallowed_types, clippy::disallowed_methods, reason = "a bench measures real time")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::{
    collections::VecDeque,
    hint::black_box,
    sync::{Arc, Barrier, Condvar, Mutex, mpsc},
    time::{Duration, Instant},
};

#[path = "../src/ring/mod.rs"]
#[allow(unused, reason = "the bench uses part of it")]
mod ring;
#[path = "../src/sync/mod.rs"]
#[allow(unused, reason = "the ring uses part of it")]
mod sync;

const ITEMS: u64 = 1000;
const BATCH: u64 = 10;
/// As in ordinary builds. (Cargo builds benches as tests, and the segments of tests are small.)
const SEGMENT: usize = 128;

/// The two ends of some way from one thread to another.
trait Way {
    type In: In;
    type Out: Out;
    fn new() -> (Self::In, Self::Out);
}

trait In: Send + 'static {
    fn push(&mut self, item: u64);
    fn wake(&mut self);
}

trait Out: Send + 'static {
    fn pop(&mut self) -> u64;
}

struct Ring;

impl Way for Ring {
    type In = ring::Producer<u64, SEGMENT>;
    type Out = ring::Consumer<u64, SEGMENT>;
    fn new() -> (Self::In, Self::Out) {
        ring::ring_of(&sync::Clock::real())
    }
}

impl In for ring::Producer<u64, SEGMENT> {
    fn push(&mut self, item: u64) {
        Self::push(self, item).unwrap();
    }
    fn wake(&mut self) {
        Self::wake(self);
    }
}

impl Out for ring::Consumer<u64, SEGMENT> {
    fn pop(&mut self) -> u64 {
        Self::pop(self).unwrap()
    }
}

struct Locked;

#[derive(Clone, Default)]
struct Queue(Arc<(Mutex<VecDeque<u64>>, Condvar)>);

impl Way for Locked {
    type In = Queue;
    type Out = Queue;
    fn new() -> (Queue, Queue) {
        let queue = Queue::default();
        (queue.clone(), queue)
    }
}

impl In for Queue {
    fn push(&mut self, item: u64) {
        self.0.0.lock().unwrap().push_back(item);
    }
    fn wake(&mut self) {
        self.0.1.notify_one();
    }
}

impl Out for Queue {
    fn pop(&mut self) -> u64 {
        let queue = self.0.0.lock().unwrap();
        self.0.1.wait_while(queue, |q| q.is_empty()).unwrap().pop_front().unwrap()
    }
}

struct Channel;

impl Way for Channel {
    type In = mpsc::Sender<u64>;
    type Out = mpsc::Receiver<u64>;
    fn new() -> (Self::In, Self::Out) {
        mpsc::channel()
    }
}

impl In for mpsc::Sender<u64> {
    fn push(&mut self, item: u64) {
        self.send(item).unwrap();
    }
    fn wake(&mut self) {}
}

impl Out for mpsc::Receiver<u64> {
    fn pop(&mut self) -> u64 {
        self.recv().unwrap()
    }
}

fn alone<W: Way>(c: &mut criterion::BenchmarkGroup<'_, criterion::measurement::WallTime>, name: &str) {
    let (mut end, mut other) = W::new();
    c.bench_function(BenchmarkId::new("alone", name), |b| {
        b.iter(|| {
            (0..ITEMS).for_each(|n| end.push(n));
            end.wake();
            (0..ITEMS).for_each(|_| _ = black_box(other.pop()));
        });
    });
}

fn across<W: Way>(c: &mut criterion::BenchmarkGroup<'_, criterion::measurement::WallTime>, name: &str) {
    c.bench_function(BenchmarkId::new("across", name), |b| b.iter_custom(|rounds| crossed::<W>(rounds)));
}

/// `rounds` times all items from one thread to another.
fn crossed<W: Way>(rounds: u64) -> Duration {
    let (mut end, mut other) = W::new();
    let ready = Arc::new(Barrier::new(2));
    let of_consumer = ready.clone();
    let consumer = std::thread::spawn(move || {
        of_consumer.wait();
        for _ in 0..rounds * ITEMS {
            black_box(other.pop());
        }
        other
    });
    ready.wait();
    let start = Instant::now();
    for n in 0..rounds * ITEMS {
        end.push(n);
        if n % BATCH == BATCH - 1 {
            end.wake();
        }
    }
    let other = consumer.join().unwrap();
    let took = start.elapsed();
    drop(other);
    took
}

fn hand_over(c: &mut Criterion) {
    let mut group = c.benchmark_group("hand_over");
    group.throughput(Throughput::Elements(ITEMS));
    alone::<Ring>(&mut group, "ring");
    alone::<Locked>(&mut group, "locked");
    alone::<Channel>(&mut group, "std_channel");
    across::<Ring>(&mut group, "ring");
    across::<Locked>(&mut group, "locked");
    across::<Channel>(&mut group, "std_channel");
    group.finish();
}

criterion_group!(benches, hand_over);
criterion_main!(benches);
