//! T1: what one trip of a key through the workqueue costs.

use crate::{Row, Target};
use informer::{flow::ObjectKey, workqueue::WorkQueue};
use std::{hint::black_box, time::Instant};

pub const ROWS: &[Row] = &[Row {
    id: "T1",
    what: "queue: key built, added, taken, done; 1 thread, 1,000 keys",
    unit: "ns",
    target: Target::AtMost(0.9),
    before: 115.0,
    measure: cycle,
}];

fn cycle() -> f64 {
    const KEYS: usize = 1000;
    const ROUNDS: usize = 2000;
    let queue = WorkQueue::<ObjectKey>::builder().build();
    let names: Vec<String> = (0..KEYS).map(|i| format!("pod-{i}")).collect();
    let round = || {
        for name in &names {
            queue.add(ObjectKey::new("default", name).expect("a key"));
            black_box(queue.get());
        }
    };
    (0..100).for_each(|_| round());
    let start = Instant::now();
    (0..ROUNDS).for_each(|_| round());
    start.elapsed().as_nanos() as f64 / (KEYS * ROUNDS) as f64
}
