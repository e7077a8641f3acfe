//! loom models of the work queue: a key is one worker's at a time, what was accepted is handed out, and everybody who
//! waits is woken. Tiny worlds, one question each; beside each the places that it must not survive the loss of.

use super::{
    Work, WorkQueue,
    ops::{Answer, Model, Op},
};
use crate::sync::{
    Arc, Clock, Deadline, JoinHandle, ManualClock,
    atomic::{AtomicUsize, Ordering},
    prove::{
        self, Watched,
        lin::{History, Sequential},
    },
    spawn,
};
use std::time::Duration;

fn queue(clock: &Clock) -> WorkQueue<u8> {
    WorkQueue::builder().clock(clock).build()
}

fn start(clock: &Clock, f: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    spawn(clock, "other", f).unwrap()
}

/// What the work on each key touches, and how often it was done.
#[derive(Clone, Default)]
struct Jobs(Arc<([Watched; 2], AtomicUsize)>);

impl Jobs {
    fn work_off(&self, queue: &WorkQueue<u8>) {
        while let Some(work) = queue.get() {
            self.0.0[usize::from(*work)].write();
            self.0.1.fetch_add(1, Ordering::Relaxed);
            Work::done(work);
        }
    }

    fn done(&self) -> usize {
        self.0.1.load(Ordering::Relaxed)
    }
}

/// One adds two keys and shuts down; one works them off.
fn hand_over() {
    let clock = Clock::real();
    let (queue, jobs) = (queue(&clock), Jobs::default());
    let (q, j) = (queue.clone(), jobs.clone());
    let worker = start(&clock, move || j.work_off(&q));
    assert!(queue.add(0) && queue.add(1));
    queue.shutdown();
    worker.join().unwrap();
    assert_eq!(jobs.done(), 2, "what was accepted is handed out");
}

#[test]
fn a_worker_that_waits_is_woken_by_an_add_and_by_the_shut_down() {
    prove::model("workqueue: two adds and a shutdown against a worker", Some(3), hand_over);
    prove::rejects("workqueue: closing releases who waits", "deadlock", Some(2), || hand_over());
}

/// One key is added to two workers that wait, and later another; nobody shuts down before both are done.
fn wakes_each() {
    let clock = Clock::real();
    let queue = queue(&clock);
    let workers = [(); 2].map(|()| {
        let q = queue.clone();
        start(&clock, move || Work::done(q.get().unwrap()))
    });
    assert!(queue.add(0) && queue.add(1));
    workers.into_iter().for_each(|w| w.join().unwrap());
}

#[test]
fn each_key_wakes_a_worker_of_its_own() {
    prove::model("workqueue: two adds against two workers", Some(2), wakes_each);
    prove::rejects("workqueue: a key that is ready wakes a worker", "deadlock", Some(2), || wakes_each());
}

/// One worker, which sleeps before each of two keys.
fn wakes_again() {
    let clock = Clock::real();
    let queue = queue(&clock);
    let q = queue.clone();
    let worker = start(&clock, move || (0..2).for_each(|_| Work::done(q.get().unwrap())));
    assert!(queue.add(0));
    let (queue, done) = (queue.clone(), queue);
    let adder = start(&clock, move || assert!(queue.add(1)));
    worker.join().unwrap();
    adder.join().unwrap();
    assert!(done.is_empty());
}

#[test]
fn a_worker_that_was_woken_once_is_woken_again() {
    prove::model("workqueue: two who add against one worker", Some(3), wakes_again);
    prove::rejects("workqueue: who is back is on the way no more", "deadlock", Some(3), || wakes_again());
}

/// A key is added while one worker of two has it.
fn added_while_held() {
    let clock = Clock::real();
    let (queue, jobs) = (queue(&clock), Jobs::default());
    queue.add(0);
    let first = queue.try_get().unwrap();
    let (q, j) = (queue.clone(), jobs.clone());
    let worker = start(&clock, move || j.work_off(&q));
    assert!(queue.add(0));
    queue.shutdown();
    jobs.0.0[0].write();
    Work::done(first);
    worker.join().unwrap();
    assert_eq!(jobs.done(), 1, "what was accepted is handed out");
}

#[test]
fn a_key_added_while_held_waits_for_the_end_of_its_work_and_is_handed_out_then() {
    prove::model("workqueue: a key added while held, shutdown, two workers", Some(3), added_while_held);
    let held = "workqueue: a held key waits for the end of its work";
    prove::rejects(held, "Causality violation|is in use", Some(3), || added_while_held());
    let queued = "workqueue: a key added while held is queued after its work";
    prove::rejects(queued, "what was accepted is handed out", Some(3), || added_while_held());
}

/// Two workers wait, after the shut-down, for the round that a third one's key is owed. Whoever does not get it must
/// learn that there is nothing more.
fn last_round() {
    let clock = Clock::real();
    let queue = queue(&clock);
    queue.add(0);
    let first = queue.try_get().unwrap();
    assert!(queue.add(0));
    queue.shutdown();
    let workers = [(); 2].map(|()| {
        let q = queue.clone();
        start(&clock, move || {
            while let Some(work) = q.get() {
                Work::done(work);
            }
        })
    });
    Work::done(first);
    workers.into_iter().for_each(|w| w.join().unwrap());
}

#[test]
fn whoever_does_not_get_the_last_round_learns_that_nothing_comes() {
    prove::model("workqueue: the last round, two workers that wait", Some(2), last_round);
    prove::rejects("workqueue: the last round releases who waits for it", "deadlock", Some(2), || last_round());
}

/// A drain against the worker that ends the last work.
fn drains() {
    let clock = Clock::real();
    let (queue, jobs) = (queue(&clock), Jobs::default());
    queue.add(0);
    let (q, j) = (queue.clone(), jobs.clone());
    let worker = start(&clock, move || j.work_off(&q));
    assert!(queue.drain(Deadline::never()).is_ok());
    assert_eq!(jobs.done(), 1, "a drain ends after the last work");
    jobs.0.0[0].read();
    worker.join().unwrap();
}

#[test]
fn a_drain_ends_after_the_last_work() {
    prove::model("workqueue: drain against a worker", Some(3), drains);
    prove::rejects("workqueue: the end of the last work releases a drain", "deadlock", Some(3), || drains());
}

/// A worker waits on a clock that is moved by hand; a delay is set and passes.
fn delays() {
    let clock = ManualClock::new();
    let (queue, jobs) = (queue(&clock), Jobs::default());
    let (q, j) = (queue.clone(), jobs.clone());
    let worker = start(&clock, move || j.work_off(&q));
    assert!(queue.add_after(0, Duration::from_millis(5)));
    clock.advance(Duration::from_millis(5));
    assert_eq!(jobs.done(), 1, "what is due is handed out when the clock has settled");
    queue.shutdown();
    worker.join().unwrap();
}

#[test]
fn a_delay_is_fired_by_a_worker_that_waits() {
    prove::model("workqueue: add_after against a worker, the clock moved", Some(2), delays);
    prove::rejects("workqueue: an earlier timer wakes the leader", "what is due", Some(2), || delays());
}

impl Sequential for Model {
    type Op = Op;
    type Answer = Answer;

    fn step(&mut self, thread: usize, op: &Op) -> Option<Answer> {
        Self::step(self, thread, op)
    }
}

/// The same operations as everywhere, on two threads, have an order.
fn have_an_order() {
    let clock = Arc::new(ManualClock::new());
    let (queue, history) = (queue(&clock), History::<Model>::default());
    queue.add(0);
    let parts = [vec![Op::Shutdown, Op::Len], vec![Op::Get, Op::Add(1), Op::Done(0), Op::Get, Op::Done(0)]];
    let mut threads = Vec::new();
    for (thread, part) in parts.into_iter().enumerate() {
        let (history, queue, moved) = (history.clone(), queue.clone(), clock.clone());
        threads.push(start(&Clock::real(), move || {
            let mut held = Vec::new();
            for op in part {
                history.call(thread, op, |op| super::ops::apply(&moved, &queue, &mut held, op));
            }
        }));
    }
    threads.into_iter().for_each(|t| t.join().unwrap());
    let mut start = Model::default();
    start.step(0, &Op::Add(0));
    history.judge(start);
}

#[test]
fn calls_that_overlap_have_an_order() {
    prove::model("workqueue: shutdown against get, add, done, get and done", Some(2), have_an_order);
    prove::rejects("workqueue: a shutdown reports in its own step", "no order of these calls", Some(2), || have_an_order());
}
