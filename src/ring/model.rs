//! loom models of the ring. Tiny worlds, one question each; beside each the places that it must not survive the loss of.

use super::{Consumer, Producer, ring_of};
use crate::sync::{
    Arc, Clock, JoinHandle,
    prove::{self, Watched},
    spawn,
};

/// An item that says whether it was dropped: its count goes back to the caller's own handle alone.
type Item = (u32, Arc<()>);

fn new<const N: usize>() -> (Producer<Item, N>, Consumer<Item, N>, Arc<()>) {
    let (producer, consumer) = ring_of(&Clock::real());
    (producer, consumer, Arc::new(()))
}

/// Starts a thread that has the producer and gives it back.
fn engine<const N: usize>(
    producer: Producer<Item, N>,
    work: impl FnOnce(&Producer<Item, N>) + Send + 'static,
) -> JoinHandle<Producer<Item, N>> {
    let engine = move || {
        work(&producer);
        producer
    };
    spawn(&Clock::real(), "engine", engine).unwrap()
}

/// `n` items through segments of `N` slots. The producer wakes after each push, or only at the end.
fn hand_over<const N: usize>(n: u32, wake_each: bool) {
    let (producer, mut consumer, mark) = new::<N>();
    let of = mark.clone();
    let engine = engine(producer, move |producer| {
        for i in 0..n {
            assert!(producer.push((i, of.clone())).is_ok());
            if wake_each || i + 1 == n {
                producer.wake();
            }
        }
    });
    for want in 0..n {
        let (got, _) = consumer.pop().expect("nobody closes the ring");
        assert_eq!(got, want, "items come out in the order of pushing");
    }
    let producer = engine.join().unwrap();
    assert_eq!(producer.len(), 1, "the item in hand counts");
    drop((producer, consumer));
    assert_eq!(Arc::strong_count(&mark), 1, "every item is dropped once");
}

#[test]
fn items_arrive_in_order_while_the_ring_grows() {
    prove::model("ring: 3 items, segments of 2, woken at the end", None, || hand_over::<2>(3, false));
    prove::rejects("ring: a slot is published", "Causality violation", Some(3), || hand_over::<2>(3, false));
    prove::rejects("ring: a slot is looked at", "Causality violation", Some(3), || hand_over::<2>(3, false));
    prove::rejects("ring: the link comes before the last slot", "the link is there", Some(3), || hand_over::<2>(3, false));
}

#[test]
fn a_consumer_on_its_way_to_sleep_is_woken() {
    prove::model("ring: 2 items, woken after each", None, || hand_over::<2>(2, true));
    prove::rejects("ring: sleeping is marked in the slot", "deadlock", Some(3), || hand_over::<2>(2, true));
    prove::rejects("ring: a wake-up goes through the lock", "deadlock", Some(3), || hand_over::<2>(2, true));
    prove::rejects("ring: a push that finds the mark owes", "deadlock", Some(3), || hand_over::<2>(2, true));
}

#[test]
fn a_recycled_segment_is_ready_before_it_is_used_again() {
    prove::model("ring: 3 items, segments of 1", Some(4), || hand_over::<1>(3, false));
    prove::rejects("ring: the spare is offered", "Causality violation", Some(3), || hand_over::<1>(3, false));
    prove::rejects("ring: the spare is taken", "Causality violation", Some(3), || hand_over::<1>(3, false));
}

/// Somebody closes the ring while the engine pushes and the consumer waits.
fn closes() {
    let (producer, mut consumer, mark) = new::<2>();
    let before = Arc::new(Watched::default());
    let (of, works) = (mark.clone(), before.clone());
    let engine = engine(producer, move |producer| {
        let _refused = producer.push((0, of.clone()));
        producer.wake();
        works.write();
        producer.close();
        assert!(producer.push((1, of.clone())).is_err(), "whoever closed it gets its items back");
    });
    let mut got = 0;
    while let Some((item, _)) = consumer.pop() {
        assert_eq!(item, got, "items come out in the order of pushing");
        got += 1;
    }
    before.read();
    assert!(consumer.pop().is_none(), "the end stays the end");
    drop(consumer);
    let producer = engine.join().unwrap();
    assert_eq!(producer.len(), 0, "nothing counts when the consumer is gone");
    drop(producer);
    assert_eq!(Arc::strong_count(&mark), 1, "every item is dropped once");
}

#[test]
fn closing_ends_a_pop_that_waits() {
    prove::model("ring: close against pop", Some(4), closes);
    prove::rejects("ring: closing wakes", "deadlock", Some(3), || closes());
    prove::rejects("ring: the end is set", "Causality violation", Some(3), || closes());
    prove::rejects("ring: the end is looked at", "Causality violation", Some(3), || closes());
}

/// The consumer is dropped while the engine pushes.
fn leaves() {
    let (producer, consumer, mark) = new::<1>();
    let of = mark.clone();
    let engine = engine(producer, move |producer| {
        for i in 0..3 {
            let _refused = producer.push((i, of.clone()));
        }
        producer.wake();
    });
    drop(consumer);
    drop(engine.join().unwrap());
    assert_eq!(Arc::strong_count(&mark), 1, "every item is dropped once");
}

#[test]
fn what_is_left_is_dropped_once_and_every_segment_is_freed() {
    prove::model("ring: dropped consumer against push", None, leaves);
    prove::rejects("ring: the chain frees what is left", "leaked", Some(3), || leaves());
}

/// A third party looks at the length meanwhile.
fn counts() {
    let (producer, mut consumer, mark) = new::<2>();
    let producer = Arc::new(producer);
    let pushes = producer.clone();
    let engine = spawn(&Clock::real(), "engine", move || {
        for i in 0..2 {
            assert!(pushes.push((i, mark.clone())).is_ok());
        }
        pushes.wake();
    });
    let listener = spawn(&Clock::real(), "listener", move || {
        for _ in 0..2 {
            assert!(consumer.pop().is_some());
        }
        consumer
    });
    assert!(producer.len() <= 2, "never more than were pushed");
    drop(listener.unwrap().join().unwrap());
    engine.unwrap().join().unwrap();
}

#[test]
fn nobody_finds_more_done_than_pushed() {
    prove::model("ring: len against push and pop", Some(3), counts);
    prove::rejects("ring: done is stored", "overflow", Some(2), || counts());
    prove::rejects("ring: done is loaded", "overflow", Some(2), || counts());
}
