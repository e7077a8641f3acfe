//! loom models of the version cell: a value that a reader has reached is not dropped under it, whatever comes in between,
//! and every value is dropped in the end. Beside each stand the places that it must not survive the loss of.

use super::cell::{Held, VersionCell};
use crate::sync::{
    Arc, Clock,
    prove::{self, Reached, Watched},
    spawn,
};

/// A value that tells loom when it is made, read and dropped.
struct Value {
    touched: Arc<Watched>,
    alive: Arc<()>,
}

impl Value {
    fn read(&self) {
        self.touched.read();
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.touched.write();
        debug_assert!(Arc::strong_count(&self.alive) > 1, "whoever made it keeps a count");
    }
}

fn make(alive: &Arc<()>) -> Held<Value> {
    let touched = Arc::new(Watched::default());
    touched.write();
    Held::new(Value { touched, alive: alive.clone() })
}

/// How a model ends that lets a reader touch what was dropped.
const FREED: &str = "Causality violation|killed by a signal";

/// How a reader reads.
#[derive(Clone, Copy)]
enum Read {
    /// For one call.
    Peek,
    /// With a handle of its own, which outlives the step.
    Load,
}

impl Read {
    fn from(self, cell: &VersionCell<Value>) {
        match self {
            Self::Peek => cell.peek(Value::read),
            Self::Load => cell.load().read(),
        }
    }
}

static KEPT: Reached = Reached::new();

/// One publisher, one reader that reads once.
fn world(read: Read, publications: usize) {
    world_of(read, 1, publications);
}

/// One publisher, one reader that reads some times.
fn world_of(read: Read, times: usize, publications: usize) {
    let alive = Arc::new(());
    let cell = Arc::new(VersionCell::new(make(&alive)));
    let reader = {
        let cell = cell.clone();
        spawn(&Clock::real(), "reader", move || (0..times).for_each(|_| read.from(&cell))).unwrap()
    };
    for _ in 0..publications {
        let before = cell.publish(make(&alive));
        before.read();
        drop(before);
        if cell.retired() > 0 {
            KEPT.count();
        }
    }
    reader.join().unwrap();
    drop(cell);
    assert_eq!(Arc::strong_count(&alive), 1, "every value is dropped once");
}

#[test]
fn a_value_is_not_dropped_while_it_is_lent() {
    prove::model("cell: publish against peek", Some(3), || world(Read::Peek, 1));
    if prove::intact() {
        assert!(KEPT.get() > 0, "no value was ever kept for its reader");
    }
    for place in ["cell: the reader's fence", "cell: the writer's fence", "cell: the slot is cleared"] {
        prove::rejects(place, FREED, Some(3), || world(Read::Peek, 1));
    }
}

#[test]
fn a_value_is_not_dropped_while_somebody_holds_it() {
    prove::model("cell: publish against load", Some(3), || world(Read::Load, 1));
    prove::rejects("cell: a handle is given up", FREED, Some(3), || world(Read::Load, 1));
    prove::rejects("cell: the last handle fences", FREED, Some(3), || world(Read::Load, 1));
}

/// As above, but the replaced value has its last handle on a third thread. (That the publisher acquires what it finds in
/// the slots is needed here, but loom cannot tell: see `sync/loom.rs` on fences.)
fn handed_on() {
    let alive = Arc::new(());
    let cell = Arc::new(VersionCell::new(make(&alive)));
    let reader = {
        let cell = cell.clone();
        spawn(&Clock::real(), "reader", move || Read::Peek.from(&cell)).unwrap()
    };
    let before = cell.publish(make(&alive));
    let keeper = spawn(&Clock::real(), "keeper", move || drop(before)).unwrap();
    keeper.join().unwrap();
    reader.join().unwrap();
    drop(cell);
    assert_eq!(Arc::strong_count(&alive), 1, "every value is dropped once");
}

#[test]
fn a_value_that_was_lent_may_be_dropped_by_anybody() {
    prove::model("cell: publish against peek, dropped elsewhere", Some(3), handed_on);
    prove::rejects("cell: the slot is cleared", FREED, Some(3), || handed_on());
}

#[test]
fn what_was_kept_is_dropped_by_a_later_publication() {
    prove::model("cell: two publications against peek", Some(3), || world(Read::Peek, 2));
    prove::rejects("cell: the reader's fence", FREED, Some(3), || world(Read::Peek, 2));
}

/// The publisher may find the slot filled with the second value, and must be ordered after the reader's use of the first.
#[test]
fn a_reader_that_reads_again_is_done_with_what_it_read_before() {
    prove::model("cell: publish against two peeks", Some(3), || world_of(Read::Peek, 2, 1));
    prove::rejects("cell: the slot is filled", FREED, Some(3), || world_of(Read::Peek, 2, 1));
}
