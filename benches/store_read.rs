//! What does it cost to read the store: an object by its key, everything, what an index has, and a version to keep?
//!
//! 100,000 objects of some 300 bytes, with an index of 100 values, read on one thread while nobody writes. Keys carry their
//! hash. `get/cold` walks all keys in an order that no cache likes, `get/hot` the same thousand.
#![allow(missing_docs, clippy::disallowed_types, clippy::disallowed_methods, reason = "a bench measures real time")]

mod store_world;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use informer::flow::ObjectKey;
use std::hint::black_box;
use store_world::{OBJECTS, Record, World};

fn store_read(c: &mut Criterion) {
    let world = World::new(1);
    let (store, keys) = (world.store(), world.shuffled_keys());
    let mut group = c.benchmark_group("store_read");
    for (name, keys) in [("cold", &keys[..]), ("hot", &keys[..1000])] {
        let mut next = keys.iter().cycle();
        group.bench_function(format!("get/{name}"), |b| b.iter(|| store.get(next.next().unwrap())));
        group.bench_function(format!("with/{name}"), |b| b.iter(|| store.with(next.next().unwrap(), |r: &Record| r.number)));
    }
    let mut next = keys.iter().cycle();
    group.bench_function("get/by_name", |b| {
        b.iter(|| {
            let key: &ObjectKey = next.next().unwrap();
            store.get(&(key.namespace(), key.name()))
        });
    });
    group.bench_function("snapshot", |b| b.iter(|| store.snapshot()));
    group.throughput(Throughput::Elements(OBJECTS as u64));
    group.bench_function("list/references", |b| b.iter(|| store.snapshot().objects().for_each(|o| _ = black_box(o))));
    group.bench_function("list/handles", |b| b.iter(|| store.snapshot().objects().cloned().collect::<Vec<_>>()));
    group.throughput(Throughput::Elements(OBJECTS as u64 / 100));
    let index = store.index::<u32>("rest").unwrap();
    group.bench_function("by_index", |b| b.iter(|| store.by_index(&index, &7).unwrap()));
    group.finish();
}

criterion_group!(benches, store_read);
criterion_main!(benches);
