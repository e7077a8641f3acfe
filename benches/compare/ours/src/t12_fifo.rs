//! T12: events a second through the delta queue, from one thread to another, 10,000 keys. Objects and their keys are made
//! inside, and dropped by the consumer.

use crate::{Row, Target};
use informer::{
    flow::{Delta, DeltaSink, Meta, Object},
    queue::RealFifo,
    sync::Clock,
};
use std::{hint::black_box, thread, time::Instant};

pub const ROWS: &[Row] = &[
    Row {
        id: "T12.one",
        what: "delta queue, one event a call",
        unit: "events/s",
        target: Target::AtLeast(1.7),
        before: 4.2e6,
        measure: || events(1),
    },
    Row {
        id: "T12.burst",
        what: "delta queue, 100 events a call (the peer has no such call)",
        unit: "events/s",
        target: Target::AtLeast(2.2),
        before: 4.2e6,
        measure: || events(100),
    },
];

struct Pod {
    _node: String,
}

fn events(burst: usize) -> f64 {
    const KEYS: usize = 10_000;
    const EVENTS: usize = 1_000_000;
    let queue = RealFifo::<Pod>::new("compare", &Clock::real());
    let names: Vec<String> = (0..KEYS).map(|i| format!("pod-{i}")).collect();
    let versions: Vec<String> = (1..=KEYS).map(|i| i.to_string()).collect();
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut batch = Vec::with_capacity(burst);
            for i in 0..EVENTS {
                let meta = Meta { namespace: "default", name: &names[i % KEYS], version: &versions[i % KEYS], uid: "" };
                batch.push(Delta::Updated(Object::new(meta, Pod { _node: String::new() }).expect("a key")));
                if batch.len() == burst {
                    queue.apply(&mut batch).expect("it is open");
                }
            }
        });
        let mut seen = 0;
        while seen < EVENTS {
            let mut taken = queue.take(1000).expect("it is open");
            for delta in taken.drain() {
                black_box(&delta);
                seen += 1;
            }
            taken.commit();
        }
    });
    EVENTS as f64 / start.elapsed().as_secs_f64()
}
