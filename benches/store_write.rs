//! What does a change of one object cost, from the source's word to the published version, and what do indices and a held
//! version add?
//!
//! 100,000 objects; the source changes them in an order that no cache likes, as fast as they are taken, so they come in
//! batches. Making the object and its key, and freeing the old one, are part of it. `values_move` means that each change
//! moves the object from one value of each index to another.
#![allow(missing_docs, clippy::disallowed_types, clippy::disallowed_methods, reason = "a bench measures real time")]

mod store_world;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::time::Instant;
use store_world::World;

const CHANGES: u64 = 10_000;

fn store_write(c: &mut Criterion) {
    let mut group = c.benchmark_group("store_write");
    group.throughput(Throughput::Elements(CHANGES)).sample_size(20);
    for indices in [0, 1, 3] {
        let world = World::new(indices);
        group.bench_function(format!("values_move/{indices}"), |b| b.iter(|| world.change(CHANGES)));
    }
    let world = World::new(1);
    group.bench_function("values_move/1/version_held", |b| {
        b.iter_custom(|rounds| {
            let _held = world.store().snapshot();
            let start = Instant::now();
            (0..rounds).for_each(|_| world.change(CHANGES));
            start.elapsed()
        });
    });
    group.finish();
}

criterion_group!(benches, store_write);
criterion_main!(benches);
