//! The ring against a plain queue, and its end.

use super::{
    SEGMENT,
    ops::{check, program},
    ring,
};
use crate::sync::{Arc, ManualClock, Mutex, spawn};
use proptest::prelude::*;

proptest! {
    #[test]
    fn items_come_out_in_order_and_count_until_the_consumer_comes_back(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let ops = program(&bytes);
        check::<1>(&ops);
        check::<2>(&ops);
        check::<3>(&ops);
    }
}

#[test]
fn memory_of_a_burst_is_given_back_once_it_is_consumed() {
    let clock = ManualClock::new();
    let (producer, mut consumer) = ring(&clock);
    for round in 0..3 {
        for i in 0..1000 {
            producer.push(i).unwrap();
        }
        assert!(consumer.capacity() >= 1000, "round {round}");
        for i in 0..1000 {
            assert_eq!(consumer.pop(), Some(i));
        }
        for i in 0..3 {
            producer.push(i).unwrap();
            consumer.pop();
        }
        assert!(consumer.capacity() <= 3 * SEGMENT, "{} in round {round}", consumer.capacity());
    }
}

#[test]
fn a_sleeping_consumer_is_woken_by_wake_and_by_close_and_gets_nothing_after_close() {
    let clock = ManualClock::new();
    let (producer, mut consumer) = ring(&clock);
    let got = Arc::new(Mutex::new(Vec::new()));
    let into = got.clone();
    let thread = spawn(&clock, "consumer", move || {
        while let Some(x) = consumer.pop() {
            into.lock().push(x);
        }
    })
    .unwrap();
    clock.settle();
    producer.push(1).unwrap();
    clock.settle();
    assert!(got.lock().is_empty(), "a push alone wakes nobody");
    producer.wake();
    clock.settle();
    assert_eq!(*got.lock(), [1]);
    producer.push(2).unwrap();
    producer.close();
    thread.join().unwrap();
    assert_eq!(*got.lock(), [1], "what was left at the end is not handed out");
    assert_eq!(producer.push(3), Err(3));
    assert_eq!(producer.len(), 0);
}
