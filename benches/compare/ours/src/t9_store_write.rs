//! T9, T10 and T21: what writes of the store cost, keys made inside. Written through the stand-alone indexer, which is the
//! tree of an informer's store.

use crate::{Beside, Row, Target};
use rivals::{
    OneLock, Shards, Standalone,
    questions::{self as ask, Held},
};

type Ours = Standalone<Held>;

pub const ROWS: &[Row] = &[
    Row {
        id: "T9.one",
        what: "update, 1 index, one at a time",
        unit: "ns",
        target: Target::AtMost(0.85),
        before: 1155.0,
        measure: || ask::update::<Ours>(1, 1),
    },
    Row {
        id: "T9.batch",
        what: "update, 1 index, 64 at a time (the peer has no such call)",
        unit: "ns",
        target: Target::AtMost(0.5),
        before: 1155.0,
        measure: || ask::update::<Ours>(1, 64),
    },
    Row {
        id: "T10.1",
        what: "replace of 100,000, 1 index",
        unit: "ms",
        target: Target::AtMost(0.2),
        before: 105.0,
        measure: || ask::replace::<Ours>(1),
    },
    Row {
        id: "T10.3",
        what: "replace of 100,000, 3 indices",
        unit: "ms",
        target: Target::AtMost(0.2),
        before: 253.0,
        measure: || ask::replace::<Ours>(3),
    },
    many("T21.1w0", "updates by 1 writer, no index", 579e3, || ask::updates_of_many::<Ours>(1, 0)),
    many("T21.1w1", "updates by 1 writer, 1 index", 453e3, || ask::updates_of_many::<Ours>(1, 1)),
    many("T21.2w0", "updates by 2 writers, no index", 569e3, || ask::updates_of_many::<Ours>(2, 0)),
    many("T21.2w1", "updates by 2 writers, 1 index", 424e3, || ask::updates_of_many::<Ours>(2, 1)),
    many("T21.4w0", "updates by 4 writers, no index", 621e3, || ask::updates_of_many::<Ours>(4, 0)),
    many("T21.4w1", "updates by 4 writers, 1 index", 490e3, || ask::updates_of_many::<Ours>(4, 1)),
    many("T21.16w0", "updates by 16 writers, no index", 536e3, || ask::updates_of_many::<Ours>(16, 0)),
    many("T21.16w1", "updates by 16 writers, 1 index", 378e3, || ask::updates_of_many::<Ours>(16, 1)),
];

/// Several writers of all objects. PEERS has no figure: `before` is from the first run of these rows.
const fn many(id: &'static str, what: &'static str, before: f64, measure: fn() -> f64) -> Row {
    Row { id, what, unit: "updates/s", target: Target::AtLeast(1.0), before, measure }
}

pub const BESIDE: &[Beside] = &[
    Beside("T9.one", "one lock", || ask::update::<OneLock<Held>>(1, 1)),
    Beside("T9.batch", "one lock", || ask::update::<OneLock<Held>>(1, 64)),
    Beside("T10.1", "one lock", || ask::replace::<OneLock<Held>>(1)),
    Beside("T10.3", "one lock", || ask::replace::<OneLock<Held>>(3)),
    Beside("T21.1w0", "64 locks", || ask::updates_of_many::<Shards<Held>>(1, 0)),
    Beside("T21.1w1", "64 locks", || ask::updates_of_many::<Shards<Held>>(1, 1)),
    Beside("T21.2w0", "64 locks", || ask::updates_of_many::<Shards<Held>>(2, 0)),
    Beside("T21.2w1", "64 locks", || ask::updates_of_many::<Shards<Held>>(2, 1)),
    Beside("T21.4w0", "64 locks", || ask::updates_of_many::<Shards<Held>>(4, 0)),
    Beside("T21.4w1", "64 locks", || ask::updates_of_many::<Shards<Held>>(4, 1)),
    Beside("T21.16w0", "64 locks", || ask::updates_of_many::<Shards<Held>>(16, 0)),
    Beside("T21.16w1", "64 locks", || ask::updates_of_many::<Shards<Held>>(16, 1)),
];
