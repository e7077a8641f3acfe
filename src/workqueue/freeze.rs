//! Progress of the work queue: nobody waits for a worker that reconciles for ever but who asked for its end.

use super::{TryGetError, Work, WorkQueue};
use crate::sync::{
    Clock, Deadline, Gate,
    prove::{Verdict, Worker, World, arrives, freeze, stand_still, stuck, worker},
};

fn queue() -> WorkQueue<u8> {
    WorkQueue::builder().clock(&Clock::real()).build()
}

/// Works until there is nothing more.
fn works_off(queue: &WorkQueue<u8>) {
    while let Some(work) = queue.get() {
        Work::done(work);
    }
}

/// A worker stands still with key 1. One adds that key again, and another; one works on the other; one drains.
fn reconciling() -> World {
    let (queue, entered, added) = (queue(), Gate::new(), Gate::new());
    queue.add(1);
    let (q, enters) = (queue.clone(), entered.clone());
    let reconciles = move || {
        let work = q.get().unwrap();
        enters.open();
        stand_still();
        Work::done(work);
        works_off(&q);
    };
    let (q, adds) = (queue.clone(), added.clone());
    let adds = move || {
        entered.wait();
        assert!(q.add(1) && q.add(2) && q.add(1));
        adds.open();
    };
    let (q, e) = (queue.clone(), added.clone());
    let works = move || {
        e.wait();
        let work = q.get().unwrap();
        assert_eq!(*work, 2, "nobody else gets the key that is held");
        Work::done(work);
    };
    let drains = move || {
        added.wait();
        assert!(queue.drain(Deadline::never()).is_ok());
        assert_eq!(queue.try_get().unwrap_err(), TryGetError::ShutDown);
    };
    World::new().finishes(adds).finishes(works).waits(reconciles).waits(drains)
}

#[test]
fn who_adds_and_who_works_does_not_wait_for_a_worker_that_reconciles_for_ever() {
    let verdict = stuck("workqueue: add and get, worker frozen in reconcile", reconciling);
    assert!(matches!(verdict, Verdict::Passes { .. }), "{verdict:?}");
}

/// A worker stands still with its key while the queue is shut down; another one ends. When the key was added meanwhile
/// it is owed another round, and the other worker waits for that.
fn shutting_down(owed: bool) -> World {
    let (queue, entered) = (queue(), Gate::new());
    queue.add(1);
    let (q, enters) = (queue.clone(), entered.clone());
    let reconciles = move || {
        let work = q.get().unwrap();
        enters.open();
        stand_still();
        Work::done(work);
        works_off(&q);
    };
    let (q, e) = (queue.clone(), entered.clone());
    let shuts_down = move || {
        e.wait();
        assert!(!owed || q.add(1));
        assert_eq!(q.shutdown().held, 1);
        assert!(!q.add(2) && q.is_shut_down());
    };
    let other = move || {
        entered.wait();
        works_off(&queue);
    };
    let world = World::new().finishes(shuts_down).waits(reconciles);
    if owed { world.waits(other) } else { world.finishes(other) }
}

#[test]
fn a_shut_down_does_not_wait_for_a_worker_that_reconciles_for_ever() {
    let verdict = stuck("workqueue: shutdown, worker frozen in reconcile", || shutting_down(false));
    assert!(matches!(verdict, Verdict::Passes { .. }), "{verdict:?}");
}

#[test]
fn only_a_key_that_is_owed_another_round_keeps_the_others_waiting() {
    let verdict = stuck("workqueue: shutdown, a frozen worker's key owed", || shutting_down(true));
    assert!(matches!(verdict, Verdict::Passes { .. }), "{verdict:?}");
}

#[test]
fn only_inside_its_short_lock_would_a_worker_keep_who_adds_waiting() {
    let world = || -> [Worker; 2] {
        let queue = queue();
        queue.add(1);
        let q = queue.clone();
        [worker(move || _ = queue.add(2)), worker(move || drop(q.try_get()))]
    };
    let verdict = freeze("workqueue: add, worker frozen anywhere", 1, world);
    assert!(matches!(verdict, Verdict::Blocked(_)), "{verdict:?}");
}

/// The shut-down arrives at each step of one worker of two that work off three keys.
#[test]
fn a_shut_down_that_arrives_at_any_step_ends_every_worker_after_the_last_key() {
    arrives("workqueue: shutdown arrives at a worker", 1, 1, || {
        let queue = queue();
        for k in 0..2 {
            queue.add(k);
        }
        let (down, first, second) = (queue.clone(), queue.clone(), queue);
        let works = move || {
            if let Some(work) = first.get() {
                first.add(*work);
                Work::done(work);
            }
            works_off(&first);
        };
        [worker(move || _ = down.shutdown()), worker(works), worker(move || works_off(&second))]
    });
}
