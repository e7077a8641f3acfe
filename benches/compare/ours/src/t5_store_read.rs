//! T5 and T7: what a read of the store costs. 100,000 objects of an informer, read through its public doors; the one-lock
//! form and the nearest crates are asked the same by the same code, in benches/rivals.

use crate::{Beside, Row, Target};
use rivals::{OneLock, Ours, Papaya, questions as ask, world::Pod};

pub const ROWS: &[Row] = &[
    Row {
        id: "T5.carried",
        what: "get, 100,000 cold keys that carry their hash",
        unit: "ns",
        target: Target::AtMost(0.65),
        before: 206.0,
        measure: || ask::get::<Ours<Pod>>(100_000),
    },
    Row {
        id: "T5.inside",
        what: "get, 100,000 cold keys, hashed inside",
        unit: "ns",
        target: Target::AtMost(1.1),
        before: 206.0,
        measure: ask::get_hashing::<Ours<Pod>>,
    },
    Row {
        id: "T5.two",
        what: "get, 100,000 cold keys that carry their hash, 2 threads",
        unit: "gets/s",
        target: Target::AtLeast(2.5),
        before: 10.2e6,
        measure: ask::get_by_two::<Ours<Pod>>,
    },
    Row {
        id: "T7.iterate",
        what: "list of 100,000: all by reference (the peer has no such call)",
        unit: "us",
        target: Target::AtMost(0.3),
        before: 736.0,
        measure: ask::iterate::<Ours<Pod>>,
    },
    Row {
        id: "T7.collect",
        what: "list of 100,000: all objects",
        unit: "us",
        target: Target::AtMost(1.7),
        before: 736.0,
        measure: ask::collect::<Ours<Pod>>,
    },
    Row {
        id: "T7.index",
        what: "1,000 of 100,000 by an index",
        unit: "us",
        target: Target::AtMost(0.2),
        before: 192.0,
        measure: ask::by_index::<Ours<Pod>>,
    },
];

pub const BESIDE: &[Beside] = &[
    Beside("T5.carried", "one lock", || ask::get::<OneLock<Pod>>(100_000)),
    Beside("T5.carried", "papaya", || ask::get::<Papaya<Pod>>(100_000)),
    Beside("T5.inside", "one lock", ask::get_hashing::<OneLock<Pod>>),
    Beside("T5.inside", "papaya", ask::get_hashing::<Papaya<Pod>>),
    Beside("T5.two", "one lock", ask::get_by_two::<OneLock<Pod>>),
    Beside("T5.two", "papaya", ask::get_by_two::<Papaya<Pod>>),
    Beside("T7.iterate", "one lock", ask::iterate::<OneLock<Pod>>),
    Beside("T7.iterate", "papaya", ask::iterate::<Papaya<Pod>>),
    Beside("T7.collect", "one lock", ask::collect::<OneLock<Pod>>),
    Beside("T7.collect", "papaya", ask::collect::<Papaya<Pod>>),
    Beside("T7.index", "one lock", ask::by_index::<OneLock<Pod>>),
    Beside("T7.index", "papaya", ask::by_index::<Papaya<Pod>>),
];
