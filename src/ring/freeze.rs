//! Progress of the ring: one side stops for ever at each of its steps, and the other must finish.

use super::{Consumer, Producer, ring_of};
use crate::sync::{
    Arc, Clock, Mutex,
    prove::{Verdict, Worker, freeze, worker},
};

type Ends = (Producer<u32, 2>, Arc<Mutex<Consumer<u32, 2>>>);

/// Both ends of a ring. Each worker keeps the consumer, so that the ring stays open until both are done; the lock around
/// it is taken by one of them only.
fn ends() -> Ends {
    let (producer, consumer) = ring_of(&Clock::real());
    (producer, Arc::new(Mutex::new(consumer)))
}

/// Worker 0 pushes three items, worker 1 tries to pop five times.
fn both() -> [Worker; 2] {
    let (producer, consumer) = ends();
    let open = consumer.clone();
    let pushes = move || {
        let _open = open;
        for i in 0..3 {
            producer.push(i).unwrap();
        }
    };
    let pops = move || {
        let mut consumer = consumer.lock();
        let mut last = None;
        for _ in 0..5 {
            if let Some(Some(item)) = consumer.try_pop() {
                assert!(last < Some(item), "items come out in the order of pushing");
                last = Some(item);
            }
        }
    };
    [worker(pushes), worker(pops)]
}

#[test]
fn a_push_does_not_wait_for_a_frozen_consumer() {
    assert!(matches!(freeze("ring: push, consumer frozen", 1, both), Verdict::Passes { .. }));
}

#[test]
fn a_pop_does_not_wait_for_a_frozen_producer() {
    assert!(matches!(freeze("ring: pop, producer frozen", 0, both), Verdict::Passes { .. }));
}

/// Two threads push, which only one may: then they wait for each other, and not the consumer for them.
fn two_engines() -> [Worker; 2] {
    let ends = Arc::new(ends());
    [ends.clone(), ends].map(|ends| worker(move || ends.0.push(1).unwrap()))
}

#[test]
fn only_a_second_producer_would_wait() {
    assert!(matches!(freeze("ring: push, another push frozen", 0, two_engines), Verdict::Blocked { .. }));
}
