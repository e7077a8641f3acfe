//! Progress of the queue: who puts and who looks does not wait for a consumer that processes for ever.

use super::{
    RealFifo,
    ops::{Answer, Op, Real, Sort},
};
use crate::sync::{
    Arc, Clock, Gate, Synced,
    prove::{Verdict, Worker, World, arrives, freeze, stand_still, stuck, worker},
};

type Queue = Arc<RealFifo<u32>>;

fn put(queue: &Queue, n: u32) {
    assert_eq!(Real::new(queue).apply(&Op::Put(vec![(n, Sort::Whole)])), Answer::Accepted);
}

/// One consumer stands still in the middle of processing what it took first; another waits for its turn.
fn processing() -> World {
    let queue = Arc::new(RealFifo::new("q", &Clock::real()));
    let entered = Gate::new();
    put(&queue, 0);
    let (q, enters) = (queue.clone(), entered.clone());
    let consumes = move || {
        let taken = q.take(1).unwrap();
        enters.open();
        stand_still();
        taken.commit();
    };
    let (q, e) = (queue.clone(), entered.clone());
    let next = move || {
        e.wait();
        q.take(1).unwrap().commit();
    };
    let (q, e) = (queue.clone(), entered.clone());
    let puts = move || {
        e.wait();
        put(&q, 1);
        put(&q, 2);
    };
    let (q, e) = (queue.clone(), entered);
    let looks = move || {
        e.wait();
        assert!(q.len() <= 2 && !q.has_synced() && !q.is_closed());
        assert!(matches!(q.try_take(1), Ok(None)), "one at a time");
    };
    let after = move || assert!(queue.has_synced() && queue.len() == 1);
    World::new().finishes(puts).finishes(looks).waits(consumes).waits(next).after(after)
}

#[test]
fn who_puts_does_not_wait_for_a_consumer_that_processes_for_ever() {
    let verdict = stuck("queue: put, consumer frozen in processing", processing);
    assert!(matches!(verdict, Verdict::Passes { .. }), "{verdict:?}");
}

/// As above, and the queue is closed meanwhile.
fn closing() -> World {
    let queue = Arc::new(RealFifo::new("q", &Clock::real()));
    let entered = Gate::new();
    put(&queue, 0);
    put(&queue, 1);
    let (q, enters) = (queue.clone(), entered.clone());
    let consumes = move || {
        let taken = q.take(1).unwrap();
        enters.open();
        stand_still();
        taken.commit();
    };
    let (q, e) = (queue.clone(), entered.clone());
    let next = move || {
        e.wait();
        assert!(q.take(1).is_err());
    };
    let closes = move || {
        entered.wait();
        assert_eq!(queue.close(), 1);
    };
    World::new().finishes(closes).finishes(next).waits(consumes)
}

#[test]
fn closing_and_those_it_wakes_do_not_wait_for_a_consumer_that_processes_for_ever() {
    let verdict = stuck("queue: close, consumer frozen in processing", closing);
    assert!(matches!(verdict, Verdict::Passes { .. }), "{verdict:?}");
}

/// Between the steps of the lock it is a short lock: nobody calls it more.
#[test]
fn only_inside_its_short_lock_would_a_consumer_keep_a_producer_waiting() {
    let world = || -> [Worker; 2] {
        let queue = Arc::new(RealFifo::new("q", &Clock::real()));
        let q = queue.clone();
        [worker(move || put(&queue, 1)), worker(move || drop(q.try_take(1)))]
    };
    let verdict = freeze("queue: put, consumer frozen anywhere", 1, world);
    assert!(matches!(verdict, Verdict::Blocked(_)), "{verdict:?}");
}

/// The close arrives at each step of a consumer that takes, processes, commits and takes again.
#[test]
fn a_close_that_arrives_at_any_step_ends_every_wait() {
    arrives("queue: close arrives at a consumer", 1, 1, || {
        let queue = Arc::new(RealFifo::new("q", &Clock::real()));
        put(&queue, 0);
        let (closed, taken) = (queue.clone(), queue.clone());
        let closes = move || _ = closed.close();
        let takes = move || {
            while let Ok(taken) = taken.take(1) {
                taken.commit();
            }
        };
        let waits = move || {
            let synced = queue.wait_synced(crate::sync::Deadline::never());
            assert_eq!(synced.is_ok(), queue.has_synced());
        };
        [worker(closes), worker(takes), worker(waits)]
    });
}
