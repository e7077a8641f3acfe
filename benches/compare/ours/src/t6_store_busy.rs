//! T6 and T8: the store while it is busy: what an update costs beside somebody who lists, and a get beside a replace.
//! Written through the stand-alone indexer, which is the tree of an informer's store.

use crate::{Beside, Row, Target};
use rivals::{
    OneLock, Shards, Standalone,
    questions::{self as ask, Held},
};

pub const ROWS: &[Row] = &[
    Row {
        id: "T6.p99",
        what: "update beside a looping list of 100,000, p99",
        unit: "ns",
        target: Target::AtMost(0.0003),
        before: 15e6,
        measure: || ask::update_beside_list::<Standalone<Held>>(0.99),
    },
    Row {
        id: "T6.p999",
        what: "update beside a looping list of 100,000, p99.9",
        unit: "ns",
        target: Target::AtMost(0.0005),
        before: 24e6,
        measure: || ask::update_beside_list::<Standalone<Held>>(0.999),
    },
    Row {
        id: "T8",
        what: "get while 100,000 are replaced, 1 index, p99.99",
        unit: "ns",
        target: Target::AtMost(0.001),
        before: 83e6,
        measure: ask::get_beside_replace::<Standalone<Held>>,
    },
];

pub const BESIDE: &[Beside] = &[
    Beside("T6.p99", "one lock", || ask::update_beside_list::<OneLock<Held>>(0.99)),
    Beside("T6.p99", "64 locks", || ask::update_beside_list::<Shards<Held>>(0.99)),
    Beside("T6.p999", "one lock", || ask::update_beside_list::<OneLock<Held>>(0.999)),
    Beside("T6.p999", "64 locks", || ask::update_beside_list::<Shards<Held>>(0.999)),
    Beside("T8", "one lock", ask::get_beside_replace::<OneLock<Held>>),
    Beside("T8", "64 locks", ask::get_beside_replace::<Shards<Held>>),
];
