//! Calls from several threads have an order in which the sequential model gives the same answers.
//!
//! Left out is what is more than one step by contract: what asks a limiter first (the answer of a limiter may be older
//! than the add), and moving the clock (a delay begins when its call does).

use super::{
    ItemExponential, WorkQueue,
    ops::{self, Answer, BASE_MS, MAX_MS, Model, Op},
};
use crate::sync::{
    Arc, ManualClock,
    prove::lin::{History, Sequential, histories, refutes},
};
use std::time::Duration;

impl Sequential for Model {
    type Op = Op;
    type Answer = Answer;

    fn step(&mut self, thread: usize, op: &Op) -> Option<Answer> {
        Self::step(self, thread, op)
    }
}

/// Draws an operation that is one step.
fn draw(rng: &mut fastrand::Rng) -> Op {
    loop {
        match Op::draw(&mut || rng.u8(..)) {
            Op::AddRateLimited(_) | Op::Retry(_) | Op::Forget(_) | Op::Requeues(_) | Op::Advance(_) => {}
            Op::Add(k) => return Op::Add(k % 2),
            op => return op,
        }
    }
}

/// Each thread does its part, and then is done with what it holds.
fn run(history: &History<Model>, parts: [Vec<Op>; 3]) {
    let clock = Arc::new(ManualClock::new());
    let ms = Duration::from_millis;
    let limiter = ItemExponential::new(ms(BASE_MS), ms(MAX_MS));
    let queue: WorkQueue<u8> = WorkQueue::builder().clock(&clock).limiter(limiter).build();
    let mut threads = Vec::new();
    for (thread, part) in parts.into_iter().enumerate() {
        let (history, clock, queue) = (history.clone(), clock.clone(), queue.clone());
        threads.push(shuttle::thread::spawn(move || {
            let mut held = Vec::new();
            for op in part {
                history.call(thread, op, |op| ops::apply(&clock, &queue, &mut held, op));
            }
            while !held.is_empty() {
                history.call(thread, Op::Done(0), |op| ops::apply(&clock, &queue, &mut held, op));
            }
        }));
    }
    threads.into_iter().for_each(|t| t.join().unwrap());
}

/// Three threads call whatever they like, four times each.
fn anything(number: u64, history: &History<Model>) {
    let mut rng = fastrand::Rng::with_seed(number);
    run(history, [(); 3].map(|()| (0..4).map(|_| draw(&mut rng)).collect()));
}

#[test]
fn whatever_several_threads_call_has_an_order() {
    histories("workqueue: three threads, any calls", 20_000, Model::default, anything);
    refutes("workqueue: a key added while held is queued after its work", 20_000, Model::default, || anything);
}

/// One adds and shuts down, one works and adds again, one works and waits for more.
fn flow(number: u64, history: &History<Model>) {
    let mut rng = fastrand::Rng::with_seed(number);
    let mut key = || rng.u8(..2);
    let adds = vec![Op::Add(key()), Op::Add(key()), Op::Add(key()), Op::Shutdown];
    let again = vec![Op::Get, Op::Add(key()), Op::Done(0), Op::Get, Op::Add(key()), Op::Done(0)];
    let waits = vec![Op::Wait, Op::Done(0), Op::Wait, Op::Done(0), Op::Wait, Op::Done(0)];
    run(history, [adds, again, waits]);
}

#[test]
fn a_worker_that_waits_gets_what_the_model_gives_it() {
    histories("workqueue: adds, works and waits", 20_000, Model::default, flow);
    refutes("workqueue: a shutdown reports in its own step", 20_000, Model::default, || flow);
}
