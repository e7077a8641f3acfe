//! loom models of the queue: who waits is woken, one has something taken at a time, and synced is what was committed.
//! Tiny worlds, one question each; beside each the places that it must not survive the loss of.

use super::{
    Closed, RealFifo,
    ops::{Answer, Model, Op, Real, Sort},
};
use crate::sync::{
    Arc, Clock, Deadline, JoinHandle, Synced, WaitError,
    prove::{
        self, Reached, Watched,
        lin::{History, Sequential},
    },
    spawn,
};

type Queue = Arc<RealFifo<u32>>;

fn queue() -> Queue {
    Arc::new(RealFifo::new("q", &Clock::real()))
}

fn start<T: Send + 'static>(queue: &Queue, f: impl FnOnce(&Queue) -> T + Send + 'static) -> JoinHandle<T> {
    let queue = queue.clone();
    spawn(&Clock::real(), "other", move || f(&queue)).unwrap()
}

/// Puts one delta of this sort.
fn put(queue: &Queue, n: u32, sort: Sort) {
    assert_eq!(Real::new(queue).apply(&Op::Put(vec![(n, sort)])), Answer::Accepted);
}

/// Each of two producers puts one; the consumer takes until it has both.
fn hand_over() {
    let queue = queue();
    let producers = [1, 2].map(|n| start(&queue, move |q| put(q, n, Sort::Bookmark)));
    let mut got = 0;
    while got < 2 {
        let taken = queue.take(9).unwrap();
        got += taken.deltas().len();
        taken.commit();
    }
    producers.into_iter().for_each(|p| p.join().unwrap());
}

#[test]
fn a_consumer_that_waits_is_woken_by_what_is_put() {
    prove::model("queue: take against two who put", Some(3), hand_over);
    prove::rejects("queue: a batch wakes who waits for the first", "deadlock", Some(3), || hand_over());
    prove::rejects("queue: a batch is in before the wake", "deadlock", Some(3), || hand_over());
}

/// Two consumers take one each of two that are there; what they do with it is no business of the other.
fn two_consumers() {
    let (queue, work) = (queue(), Arc::new(Watched::default()));
    put(&queue, 1, Sort::Bookmark);
    put(&queue, 2, Sort::Bookmark);
    let consume = move |q: &Queue| {
        let taken = q.take(1).unwrap();
        work.write();
        taken.commit();
    };
    let other = start(&queue, consume.clone());
    consume(&queue);
    other.join().unwrap();
    assert!(queue.is_empty());
}

#[test]
fn one_has_something_taken_at_a_time_and_the_next_is_woken_at_its_end() {
    prove::model("queue: two who take", Some(3), two_consumers);
    prove::rejects("queue: one has something taken at a time", "Causality violation", Some(3), || two_consumers());
    prove::rejects("queue: the end of what was taken wakes", "deadlock", Some(3), || two_consumers());
}

/// One closes the queue while two wait, and one puts.
fn closes() {
    let queue = queue();
    let waits = |q: &Queue| match q.take(1) {
        Ok(taken) => taken.commit(),
        Err(Closed) => assert!(q.is_closed()),
    };
    let taker = start(&queue, waits);
    let syncs = start(&queue, |q| assert_eq!(q.wait_synced(Deadline::never()), Err(WaitError::Stopped)));
    let _taken_or_left = Real::new(&queue).apply(&Op::Put(vec![(1, Sort::Bookmark)]));
    queue.close();
    taker.join().unwrap();
    syncs.join().unwrap();
    assert!(matches!(queue.take(1), Err(Closed)), "nothing is handed out afterwards");
}

#[test]
fn closing_ends_every_wait() {
    prove::model("queue: close against take and wait_synced", Some(2), closes);
    prove::rejects("queue: closing wakes", "deadlock", Some(2), || closes());
}

/// The consumer applies a whole state and commits it; who waits for sync finds the effect. When `drops`, another state
/// came before it, whose processing failed.
fn syncs(drops: bool) {
    let (queue, store) = (queue(), Arc::new(Watched::default()));
    let effect = store.clone();
    put(&queue, 1, Sort::Whole);
    put(&queue, 2, Sort::Whole);
    let consumer = start(&queue, move |q| {
        if drops {
            drop(q.take(1).unwrap());
        }
        let taken = q.take(1).unwrap();
        store.write();
        taken.commit();
    });
    assert_eq!(queue.wait_synced(Deadline::never()), Ok(()));
    effect.read();
    consumer.join().unwrap();
}

#[test]
fn who_waits_for_sync_finds_the_effect_of_what_was_committed() {
    prove::model("queue: wait_synced against commit", None, || syncs(false));
    prove::rejects("queue: synced is what was committed", "Causality violation", Some(3), || syncs(false));
    prove::rejects("queue: the end of what was taken wakes", "deadlock", Some(3), || syncs(false));
}

#[test]
fn what_is_dropped_without_commit_makes_nothing_synced() {
    prove::model("queue: wait_synced against a drop, then a commit", Some(3), || syncs(true));
    prove::rejects("queue: what is dropped makes nothing synced", "Causality violation", Some(3), || syncs(true));
}

static SYNCED: Reached = Reached::new();
static NEVER: Reached = Reached::new();

/// The queue is closed while the state is out that makes it synced.
fn closes_while_out() {
    let queue = queue();
    put(&queue, 1, Sort::Whole);
    let consumer = start(&queue, |q| q.take(1).map(|taken| taken.commit()).is_ok());
    let closer = start(&queue, |q| _ = q.close());
    let told = queue.wait_synced(Deadline::never());
    let taken = consumer.join().unwrap();
    closer.join().unwrap();
    assert_eq!((told.is_ok(), queue.has_synced()), (taken, taken), "a wait answers what stays true");
    if taken { SYNCED.count() } else { NEVER.count() }
}

#[test]
fn a_wait_for_sync_at_the_close_answers_what_stays_true() {
    prove::model("queue: close against commit and wait_synced", Some(3), closes_while_out);
    if prove::intact() {
        assert!(SYNCED.get() > 0 && NEVER.get() > 0, "synced {SYNCED} times, never {NEVER} times");
    }
    prove::rejects("queue: what is out may make it synced", "what stays true", Some(3), || closes_while_out());
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
    let (queue, history) = (queue(), History::<Model>::default());
    let of = |n| (n, Sort::Bookmark);
    let ops = [vec![Op::Put(vec![of(1), of(2)]), Op::Close], vec![Op::Take(9), Op::Commit, Op::Wait(9), Op::Abandon]];
    let threads = ops.into_iter().enumerate().map(|(thread, ops)| {
        let history = history.clone();
        start(&queue, move |q| {
            let mut real = Real::new(q);
            for op in ops {
                history.call(thread, op, |op| real.apply(op));
            }
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|t| t.join().unwrap());
    history.judge(Model::default());
}

#[test]
fn calls_that_overlap_have_an_order() {
    prove::model("queue: put and close against two takes", Some(3), have_an_order);
    prove::rejects("queue: a batch goes in at once", "no order of these calls", Some(3), || have_an_order());
}
