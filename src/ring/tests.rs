//! The ring against a plain queue, and its end.

use super::{SEGMENT, ring};
use crate::sync::{Arc, ManualClock, Mutex, spawn};
use proptest::prelude::*;
use std::collections::VecDeque;

#[derive(Clone, Debug)]
enum Op {
    Push(u8),
    Pop,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    proptest::collection::vec(prop_oneof![any::<u8>().prop_map(Op::Push), Just(Op::Pop)], 0..200)
}

proptest! {
    #[test]
    fn items_come_out_in_order_and_count_until_the_consumer_comes_back(ops in ops()) {
        let clock = ManualClock::new();
        let (producer, mut consumer) = ring(&clock);
        let mut model = VecDeque::new();
        let mut in_hand = 0;
        for op in ops {
            match op {
                Op::Push(x) => {
                    producer.push(x).unwrap();
                    model.push_back(x);
                }
                Op::Pop => {
                    if let Some(want) = model.pop_front() {
                        prop_assert_eq!(consumer.pop(), Some(want));
                        in_hand = 1;
                    }
                }
            }
            prop_assert_eq!(producer.len(), model.len() + in_hand);
        }
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
