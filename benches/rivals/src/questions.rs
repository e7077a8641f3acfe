//! The questions. Each makes its world, asks one structure, and answers with one figure; each is to be asked in a process
//! of its own, since what was allocated before changes the answer.

use crate::{
    Delete, Read, Store,
    world::{INDICES, OBJECTS, Pod, borrowed, drawn, generation, held, keys, names},
};
use informer::flow::ObjectKey;
use std::{
    hint::black_box,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// A shared value: what is stored again and again.
pub type Held = Arc<Pod>;

/// Values in the object itself: what a usual store has.
fn owned<S: Read<Pod>>(indices: usize) -> S {
    S::filled(indices, generation(0))
}

fn filled<S: Store<Held>>(indices: usize, with: &[Held]) -> S {
    S::filled(indices, with.iter().cloned())
}

fn get_all<S: Read<Pod>>(store: &S, keys: &[ObjectKey], order: &[usize]) {
    for &at in order {
        black_box(store.get(&keys[at]).expect("it is stored").version.len());
    }
}

/// ns for one object to be found by a key that carries its hash, in random order among `of`, its version looked at.
pub fn get<S: Read<Pod>>(of: usize) -> f64 {
    const GETS: usize = 2_000_000;
    let (store, keys) = (owned::<S>(1), keys());
    let step = OBJECTS / of;
    let order: Vec<_> = drawn(GETS, of, 1).into_iter().map(|at| at * step).collect();
    get_all(&store, &keys, &order[..of.min(GETS)]);
    nanoseconds(|| get_all(&store, &keys, &order)) / GETS as f64
}

/// The same for borrowed keys, hashed inside, in random order among all.
pub fn get_hashing<S: Read<Pod>>() -> f64 {
    const GETS: usize = 2_000_000;
    let (store, names, order) = (owned::<S>(1), names(), drawn(GETS, OBJECTS, 1));
    let ns = nanoseconds(|| {
        for &at in &order {
            black_box(store.find(borrowed(&names[at])).expect("it is stored").version.len());
        }
    });
    ns / GETS as f64
}

/// Gets a second of two threads together, in random order among all.
pub fn get_by_two<S: Read<Pod>>() -> f64 {
    const GETS: usize = 4_000_000;
    let (store, keys) = (owned::<S>(1), keys());
    let orders = [1, 2].map(|seed| drawn(GETS, OBJECTS, seed));
    let ready = Barrier::new(3);
    let start = thread::scope(|scope| {
        for order in &orders {
            scope.spawn(|| {
                ready.wait();
                get_all(&store, &keys, order);
            });
        }
        ready.wait();
        Instant::now()
    });
    2.0 * GETS as f64 / start.elapsed().as_secs_f64()
}

/// Gets a second of one reader beside a writer that updates at full speed.
pub fn get_beside_writer<S: Store<Held>>() -> f64 {
    let generations = [held(0), held(1)];
    let (store, keys) = (filled::<S>(1, &generations[0]), keys());
    let (reads, writes) = (drawn(1 << 18, OBJECTS, 1), drawn(1 << 18, OBJECTS, 2));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for (n, &at) in writes.iter().cycle().enumerate() {
                if stop.load(Relaxed) {
                    break;
                }
                store.update([generations[(n + 1) % 2][at].clone()].into_iter());
            }
        });
        thread::sleep(Duration::from_millis(20));
        let (mut done, start) = (0, Instant::now());
        'time: for chunk in reads.chunks(64).cycle() {
            for &at in chunk {
                black_box(store.get(&keys[at]).expect("it is stored"));
                done += 1;
                if start.elapsed() > Duration::from_secs(1) {
                    break 'time;
                }
            }
        }
        stop.store(true, Relaxed);
        f64::from(done) / start.elapsed().as_secs_f64()
    })
}

/// ns of an update, at this percentile, of a writer at full speed beside a thread that lists all again and again. One
/// index, three seconds.
pub fn update_beside_list<S: Store<Held>>(p: f64) -> f64 {
    let generations = [held(0), held(1)];
    let (store, order) = (filled::<S>(1, &generations[0]), drawn(1 << 20, OBJECTS, 1));
    let stop = AtomicBool::new(false);
    let mut took = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                black_box(store.list());
            }
        });
        thread::sleep(Duration::from_millis(20));
        let (mut took, start) = (Vec::with_capacity(1 << 23), Instant::now());
        while start.elapsed() < Duration::from_secs(3) {
            let n: usize = took.len();
            let value = generations[(n + 1) % 2][order[n % order.len()]].clone();
            took.push(nanoseconds(|| store.update([value].into_iter())));
        }
        stop.store(true, Relaxed);
        took
    });
    took.sort_unstable_by(f64::total_cmp);
    percentile(&took, p)
}

/// µs for every object to be looked at by reference.
pub fn iterate<S: Read<Pod>>() -> f64 {
    let store = owned::<S>(3);
    median(times(100, |_| {
        store.visit(|object| {
            black_box(object);
        })
    })) / 1e3
}

/// µs for a list of all objects.
pub fn collect<S: Read<Pod>>() -> f64 {
    let store = owned::<S>(3);
    median(times(100, |_| drop(black_box(store.list())))) / 1e3
}

/// µs for the 1,000 objects of one of 100 namespaces.
pub fn by_index<S: Read<Pod>>() -> f64 {
    let store = owned::<S>(3);
    let namespaces: Vec<_> = (0..100).map(|i| format!("namespace-{i:02}")).collect();
    median(times(500, |i| {
        let found = store.by_index(0, &namespaces[i % 100]);
        assert_eq!(found.len(), 1000);
        drop(black_box(found));
    })) / 1e3
}

/// ns of a get, one every 10 µs, at percentile 99.99, of those that began while a replace of all was under way. One index,
/// 100 replaces with pauses.
pub fn get_beside_replace<S: Store<Held>>() -> f64 {
    let generations = [held(0), held(1)];
    let (store, keys) = (filled::<S>(1, &generations[0]), keys());
    let order = drawn(1 << 20, OBJECTS, 1);
    let (under, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut took = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut took, mut next) = (Vec::new(), Instant::now());
            for &at in order.iter().cycle() {
                if stop.load(Relaxed) {
                    break;
                }
                while Instant::now() < next {}
                let within = under.load(Relaxed);
                let ns = nanoseconds(|| drop(black_box(store.get(&keys[at]).expect("it is stored"))));
                if within {
                    took.push(ns);
                }
                next = Instant::now() + Duration::from_micros(10);
            }
            took
        });
        for i in 0..100 {
            thread::sleep(Duration::from_millis(5));
            under.store(true, Relaxed);
            store.replace(generations[(i + 1) % 2].iter().cloned());
            under.store(false, Relaxed);
        }
        stop.store(true, Relaxed);
        reader.join().expect("it does not panic")
    });
    took.sort_unstable_by(f64::total_cmp);
    percentile(&took, 0.9999)
}

/// ns for one object to be replaced by its next generation, in random order, `batch` at once; key and object are made
/// inside, and what was there before is freed inside.
pub fn update<S: Store<Held>>(indices: usize, batch: usize) -> f64 {
    const UPDATES: usize = 400_000;
    let generations = [held(0), held(1)];
    let (store, order) = (filled::<S>(indices, &generations[0]), drawn(UPDATES, OBJECTS, 1));
    let with: Vec<_> = order.iter().enumerate().map(|(n, &at)| generations[(n + 1) % 2][at].clone()).collect();
    let ns = nanoseconds(|| {
        for values in with.chunks(batch) {
            store.update(values.iter().cloned());
        }
    });
    ns / UPDATES as f64
}

/// ms for all objects to be replaced by their next generation, keys and objects made inside.
pub fn replace<S: Store<Held>>(indices: usize) -> f64 {
    let generations = [held(0), held(1)];
    let store = filled::<S>(indices, &generations[0]);
    median(times(9, |i| store.replace(generations[(i + 1) % 2].iter().cloned()))) / 1e6
}

/// Updates a second of several writers together, each of objects drawn from all.
pub fn updates_of_many<S: Store<Held>>(writers: usize, indices: usize) -> f64 {
    let generations = [held(0), held(1)];
    let store = filled::<S>(indices, &generations[0]);
    let orders: Vec<_> = (1..=writers).map(|w| drawn(1 << 17, OBJECTS, w as u64)).collect();
    let (stop, done, ready) = (AtomicBool::new(false), AtomicU64::new(0), Barrier::new(writers + 1));
    let start = thread::scope(|scope| {
        for order in &orders {
            scope.spawn(|| {
                ready.wait();
                let mut n = 0;
                while !stop.load(Relaxed) {
                    let value = generations[(n + 1) % 2][order[n % order.len()]].clone();
                    store.update([value].into_iter());
                    n += 1;
                }
                done.fetch_add(n as u64, Relaxed);
            });
        }
        ready.wait();
        let start = Instant::now();
        thread::sleep(Duration::from_millis(1500));
        stop.store(true, Relaxed);
        start
    });
    done.into_inner() as f64 / start.elapsed().as_secs_f64()
}

/// What is counted of a store's memory.
pub struct Bytes {
    /// For each object, besides its value.
    pub all: f64,
    /// The same without the object and its key: the structure alone.
    pub structure: f64,
    /// The structure for each object that is left when 90 % were deleted.
    pub left: f64,
}

/// Bytes asked of the allocator, as `live` tells them.
pub fn bytes<S: Delete<Held>>(indices: usize, live: impl Fn() -> usize) -> Bytes {
    let (values, keys) = (held(0), keys());
    let value = size_of::<Held>() as f64;
    let before = live();
    let objects: Vec<_> = values.iter().cloned().map(crate::object).collect();
    let object = (live() - before) as f64 / OBJECTS as f64 - size_of_val(&objects[0]) as f64;
    drop(objects);
    let before = live();
    let store = S::filled(indices, values.iter().cloned());
    let all = (live() - before) as f64 / OBJECTS as f64;
    let gone: Vec<_> = keys.iter().enumerate().filter(|(i, _)| i % 10 != 0).map(|(_, key)| key.clone()).collect();
    let with_list = live();
    store.delete(&gone);
    let freed = (with_list - live()) as f64;
    let left = (all * OBJECTS as f64 - freed) / (OBJECTS as f64 / 10.0);
    assert_eq!(store.list().len(), OBJECTS / 10);
    Bytes { all: all - value, structure: all - object, left: left - object }
}

/// So many values in an index's name; for structures that ask by it.
pub fn index_name(index: usize) -> &'static str {
    INDICES[index].0
}

pub fn nanoseconds(f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_nanos() as f64
}

fn times(n: usize, mut f: impl FnMut(usize)) -> Vec<f64> {
    (0..n).map(|i| nanoseconds(|| f(i))).collect()
}

pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    percentile(&figures, 0.5)
}

fn percentile(sorted: &[f64], p: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * p) as usize]
}
