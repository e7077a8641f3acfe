//! Progress of the version cell: readers against a frozen publisher, and the publisher against a frozen reader.

use super::cell::{Held, VersionCell};
use crate::sync::{
    Arc,
    prove::{Verdict, Worker, freeze, worker},
};

/// Makes the list of slots, which is there from the beginning on the machine.
fn touch(cell: &VersionCell<u32>) {
    drop(cell.load());
}

/// Worker 0 publishes twice, worker 1 reads in both ways, worker 2 once more.
fn world() -> [Worker; 3] {
    let cell = Arc::new(VersionCell::new(Held::new(0)));
    touch(&cell);
    let (publisher, reader, other) = (cell.clone(), cell.clone(), cell);
    let publishes = move || {
        for n in 1..=2 {
            drop(publisher.publish(Held::new(n)));
        }
    };
    let reads = move || {
        let first = reader.peek(|n| *n);
        let then = *reader.load();
        assert!(first <= then, "what is read never goes back");
    };
    [worker(publishes), worker(reads), worker(move || other.peek(|n| assert!(*n <= 2)))]
}

#[test]
fn a_read_does_not_wait_for_a_frozen_publisher() {
    let verdict = freeze("cell: reads, publisher frozen", 0, world);
    assert!(matches!(verdict, Verdict::Passes { .. }), "{verdict:?}");
}

#[test]
fn neither_a_publication_nor_a_read_waits_for_a_frozen_reader() {
    let verdict = freeze("cell: publications and reads, a reader frozen", 1, world);
    assert!(matches!(verdict, Verdict::Passes { .. }), "{verdict:?}");
}

/// Publishers do wait for each other.
fn two_publishers() -> [Worker; 2] {
    let cell = Arc::new(VersionCell::new(Held::new(0)));
    touch(&cell);
    [cell.clone(), cell].map(|cell| worker(move || drop(cell.publish(Held::new(1)))))
}

#[test]
fn only_a_second_publisher_would_wait() {
    let verdict = freeze("cell: publication, another one frozen", 0, two_publishers);
    assert!(matches!(verdict, Verdict::Blocked(_)), "{verdict:?}");
}
