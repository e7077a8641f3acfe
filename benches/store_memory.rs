//! What does a store ask of the allocator: after how many updates, with how many versions held, and after most of it was
//! deleted? And what does an update cost while, and after, versions are held?
//!
//! `cargo bench --bench store_memory [-- flat one-key random idle curve shrink drop]`; without a name, all of them. 100,000
//! objects of about 1.2 kB in an [`Indexer`], one index unless it is said otherwise (for `idle`: an informer's store).
//! Updates come one at a time, so each is a version; making the object is not part of its time, freeing the old one is.
//! Bytes are those asked for, without the allocator's own.
#![allow(missing_docs, clippy::disallowed_types, clippy::disallowed_methods, reason = "a bench measures real time")]

mod store_world;

use informer::store::Indexer;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::{
    alloc::System,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use store_world::{OBJECTS, World};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn live() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

struct Pod {
    namespace: String,
    node: String,
    app: String,
    _payload: [u8; 1024],
}

impl Pod {
    fn new(i: usize) -> Self {
        let (namespace, node) = (format!("namespace-{:02}", i % 100), format!("node-{:05}.example", i * 7919 % 5000));
        Self { namespace, node, app: format!("app-{}", i % 500), _payload: [i as u8; 1024] }
    }
}

type Named = (&'static str, fn(&Pod) -> &str);

/// 100 namespaces, 5,000 nodes, 500 apps.
const INDICES: [Named; 3] = [("namespace", |pod| &pod.namespace), ("node", |pod| &pod.node), ("app", |pod| &pod.app)];

type Store = Indexer<Arc<str>, Arc<Pod>>;

fn empty(indices: usize) -> Store {
    let store = Store::new();
    for (name, value) in &INDICES[..indices] {
        store.add_index(*name, |_, pod: &Arc<Pod>, emit| emit(value(pod).to_owned())).unwrap();
    }
    store
}

fn names() -> Vec<Arc<str>> {
    (0..OBJECTS).map(|i| format!("namespace-{:02}/pod-{i:06}", i % 100).into()).collect()
}

struct Subject {
    store: Store,
    names: Vec<Arc<str>>,
    random: fastrand::Rng,
    /// Of the updates since it was taken, in nanoseconds.
    times: Vec<u32>,
    peak: usize,
}

impl Subject {
    fn new() -> Self {
        let (store, names) = (empty(1), names());
        assert!(store.replace(names.iter().cloned().zip((0..OBJECTS).map(|i| Arc::new(Pod::new(i))))).unwrap().is_empty());
        let mut subject = Self { store, names, random: fastrand::Rng::with_seed(1), times: Vec::new(), peak: 0 };
        subject.settle();
        subject
    }

    fn settle(&mut self) {
        while self.store.reclaim(1000) {}
    }

    fn put(&mut self, i: usize) {
        let (name, pod) = (self.names[i].clone(), Arc::new(Pod::new(i)));
        let start = Instant::now();
        drop(self.store.put(name, pod));
        self.times.push(u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX));
        self.peak = self.peak.max(live());
    }

    fn update(&mut self, n: usize) {
        self.times.reserve_exact(n);
        self.peak = live();
        for _ in 0..n {
            let i = self.random.usize(..OBJECTS);
            self.put(i);
        }
    }

    /// Without the room for times.
    fn live(&self) -> usize {
        live() - self.times.capacity() * size_of::<u32>()
    }

    /// The highest since `update` began.
    fn peak(&self) -> usize {
        self.peak - self.times.capacity() * size_of::<u32>()
    }

    fn percentiles(&mut self) -> String {
        let mut times = std::mem::take(&mut self.times);
        times.sort_unstable();
        let at = |share: f64| f64::from(times[((times.len() as f64 * share) as usize).min(times.len() - 1)]) / 1000.0;
        format!(
            "update p50 {:.2} p99 {:.2} p99.9 {:.1} p99.99 {:.1} max {:.1} us",
            at(0.5),
            at(0.99),
            at(0.999),
            at(0.9999),
            at(1.0)
        )
    }
}

fn signed(now: usize, before: usize) -> String {
    let by = now as i64 - before as i64;
    format!("{by:+} bytes ({:+.3} % of {before})", by as f64 / before as f64 * 100.0)
}

fn flat() {
    let mut s = Subject::new();
    s.update(100_000);
    let before = s.live();
    s.percentiles();
    for millions in [1, 9] {
        s.update(millions * 1_000_000);
        let (peak, end) = (signed(s.peak(), before), signed(s.live(), before));
        println!("flat: {millions} M random updates more: peak {peak}, end {end}; {}", s.percentiles());
    }
}

fn one_key() {
    let mut s = Subject::new();
    let before = s.live();
    let held = s.store.snapshot();
    s.times.reserve_exact(1_000_000);
    (0..1_000_000).for_each(|_| s.put(17));
    s.settle();
    println!("one key: a version held over 1 M updates of it pins {}, {:?}", signed(s.live(), before), s.store.gauge());
    drop(held);
    s.settle();
    println!("one key: after its drop {}; {}", signed(s.live(), before), s.percentiles());
}

fn random() {
    let base = live();
    let mut s = Subject::new();
    s.update(100_000);
    s.percentiles();
    let before = s.live();
    let held = s.store.snapshot();
    s.update(1_000_000);
    let (peak, end) = (s.peak() - before, s.live() - before);
    let own = before - base;
    println!(
        "random: a version held over 1 M random updates pins {end} bytes, {peak} at most, {:.3} and {:.3} of its own {own}; {:?}; {}",
        end as f64 / own as f64,
        peak as f64 / own as f64,
        s.store.gauge(),
        s.percentiles()
    );
    let start = Instant::now();
    drop(held);
    let took = start.elapsed();
    s.update(1_000_000);
    println!("random: after its drop ({took:?}), 1 M updates: {}, {}", signed(s.live(), before), s.percentiles());
}

/// Nobody writes, nobody asks: the informer frees it by itself.
fn idle() {
    let w = World::new(1);
    let rest = |w: &World| {
        let mut last = live();
        // Until nothing was freed for a while.
        for _ in 0..200 {
            std::thread::sleep(Duration::from_millis(5));
            let now = live();
            if now == last {
                break;
            }
            last = now;
        }
        let _ = w;
        live()
    };
    w.change(OBJECTS as u64);
    let before = rest(&w);
    let held = w.store().snapshot();
    w.change(OBJECTS as u64 * 10);
    let pinned = rest(&w);
    println!("idle: a version held over 1 M updates, which replaced every object 10 times, pins {}", signed(pinned, before));
    let start = Instant::now();
    drop(held);
    let dropped = start.elapsed();
    let share = (pinned - before) / 100;
    while live() > before + share && start.elapsed() < Duration::from_secs(20) {
        std::thread::yield_now();
    }
    let took = start.elapsed();
    println!("idle: its drop took {dropped:?}; 99 % of that was free {took:?} later, and then {}", signed(rest(&w), before));
}

fn curve() {
    for held in [0, 1, 10, 100, 1000] {
        let mut s = Subject::new();
        s.update(100_000);
        let before = s.live();
        let mut snapshots = Vec::with_capacity(held);
        // A thousand updates from one to the next, then as many as each of them can notice.
        for _ in 0..held {
            snapshots.push(s.store.snapshot());
            s.update(1000);
        }
        s.percentiles();
        let with = s.live() - before;
        s.update(300_000);
        let later = s.live() - before;
        println!(
            "curve: {held} versions held, 1,000 updates apart: {with} bytes, {later} after 300,000 updates more; {}",
            s.percentiles()
        );
        let start = Instant::now();
        drop(snapshots);
        let took = start.elapsed();
        s.update(300_000);
        println!("curve: after they all were dropped ({took:?}): {}, {}", signed(s.live(), before), s.percentiles());
    }
}

/// The values and their names are kept elsewhere, so what is counted is the store's.
fn shrink() {
    let names = names();
    let pods: Vec<Arc<Pod>> = (0..OBJECTS).map(|i| Arc::new(Pod::new(i))).collect();
    for indices in [0, 1, 3] {
        let fill = || {
            let store = empty(indices);
            assert!(store.replace(names.iter().cloned().zip(pods.iter().cloned())).unwrap().is_empty());
            while store.reclaim(1000) {}
            store
        };
        // The rest is objects: key, hash and counts.
        let structure = |store: Store, base: usize| {
            let (with, n) = (live() - base, store.len());
            let objects: Vec<_> = store.snapshot().iter().cloned().collect();
            // By a thread that keeps no nodes for later.
            thread::spawn(|| drop(store)).join().unwrap();
            let rest = live() - base - n * size_of_val(&objects[0]);
            ((with - rest) as f64 / n as f64, with as f64 / n as f64)
        };
        // Nor does this one from here on.
        assert!(!empty(0).reclaim(1000));
        let base = live();
        let (full, all) = structure(fill(), base);
        let store = fill();
        let mut order: Vec<usize> = (0..OBJECTS).collect();
        fastrand::Rng::with_seed(2).shuffle(&mut order);
        for i in &order[OBJECTS / 10..] {
            store.delete(&*names[*i]).unwrap();
        }
        while store.reclaim(1000) {}
        drop(order);
        let (left, all_left) = structure(store, base);
        println!(
            "shrink: {indices} indices: {full:.1} bytes per object ({all:.1} with key and counts); after 90 % were deleted \
             {left:.1} ({all_left:.1}): {:.2}x",
            left / full
        );
    }
}

/// Nobody is left to free it in steps.
fn last_handle() {
    let s = Subject::new();
    let start = Instant::now();
    drop(s.store);
    println!("drop: the last handle of a store took {:?}, and every object's end with it", start.elapsed());
}

fn main() {
    let parts: [(&str, fn()); 7] = [
        ("flat", flat),
        ("one-key", one_key),
        ("random", random),
        ("idle", idle),
        ("curve", curve),
        ("shrink", shrink),
        ("drop", last_handle),
    ];
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    for (name, part) in parts {
        if asked.is_empty() || asked.iter().any(|a| a == name) {
            part();
        }
    }
}
