//! Progress of the version cell and of the store over it: readers against a frozen publisher, and the publisher against a
//! frozen reader.

use super::{
    IndexSpec, Writer,
    cell::{Held, VersionCell},
};
use crate::{
    flow::{Delta, Object, ObjectKey, Opaque},
    sync::{
        Arc,
        prove::{Verdict, Worker, freeze, worker},
    },
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

fn object(n: u32) -> Object<Opaque> {
    Object::with_key(ObjectKey::new("", &format!("k{}", n % 3)).unwrap(), &n.to_string(), "", n).erase()
}

/// Worker 0 writes a store, worker 1 reads it in every way there is and keeps a version for a while.
fn store() -> [Worker; 2] {
    let by_rest = IndexSpec::new("rest", |n: &u32, emit: &mut dyn FnMut(String)| emit((n % 2).to_string()));
    let mut writer = Writer::new(vec![by_rest]).unwrap();
    writer.apply(&mut [Delta::Added(object(0)), Delta::Added(object(1))].into());
    let reader = writer.reader();
    drop(reader.snapshot());
    let reads = move || {
        let store = reader.typed::<u32>();
        let held = store.snapshot();
        assert!(store.get(&("", "k0")).is_some() && store.with(&("", "k1"), |n| *n).is_some());
        let now = store.snapshot();
        assert!(now.seq() >= held.seq() && now.iter().count() == now.len());
        let of = |rest: &str| now.by_index("rest", rest).unwrap().count();
        assert_eq!(of("0") + of("1"), now.len());
        drop((held, now));
    };
    let writes = move || {
        writer.apply(&mut [Delta::Updated(object(3))].into());
        writer.reclaim(usize::MAX);
    };
    [worker(writes), worker(reads)]
}

#[test]
fn no_read_of_the_store_waits_for_a_frozen_writer() {
    let verdict = freeze("store: reads, writer frozen", 0, store);
    assert!(matches!(verdict, Verdict::Passes { .. }), "{verdict:?}");
}

#[test]
fn no_write_waits_for_a_frozen_reader_that_holds_a_version() {
    let verdict = freeze("store: writes, a reader frozen", 1, store);
    assert!(matches!(verdict, Verdict::Passes { .. }), "{verdict:?}");
}
