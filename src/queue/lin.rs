//! Calls from several threads have an order in which the plain model gives the same answers.

use super::{
    RealFifo,
    ops::{Answer, Model, Op, Real},
};
use crate::sync::{
    Arc, Clock,
    prove::lin::{History, Sequential, histories, refutes},
};

impl Sequential for Model {
    type Op = Op;
    type Answer = Answer;

    fn step(&mut self, thread: usize, op: &Op) -> Option<Answer> {
        Self::step(self, thread, op)
    }
}

/// Calls of one thread: those drawn from `rng`, then the end of what it has taken.
fn caller(queue: &Arc<RealFifo<u32>>, history: &History<Model>, thread: usize, ops: Vec<Op>) -> shuttle::thread::JoinHandle<()> {
    let (queue, history) = (queue.clone(), history.clone());
    shuttle::thread::spawn(move || {
        let mut real = Real::new(&queue);
        for op in ops.into_iter().chain([Op::Abandon]) {
            history.call(thread, op, |op| real.apply(op));
        }
    })
}

/// Three threads call whatever they like, five times each.
fn anything(number: u64, history: &History<Model>) {
    let mut rng = fastrand::Rng::with_seed(number);
    let queue = Arc::new(RealFifo::new("q", &Clock::real()));
    let mut next = 0;
    let threads = [0, 1, 2].map(|thread| {
        let ops = (0..5).map(|_| Op::draw(&mut || rng.u8(..), &mut next)).collect();
        caller(&queue, history, thread, ops)
    });
    threads.into_iter().for_each(|t| t.join().unwrap());
}

#[test]
fn whatever_several_threads_call_has_an_order() {
    histories("queue: three threads, any calls", 20_000, Model::default, anything);
    refutes("queue: one has something taken at a time", 20_000, Model::default, || anything);
    refutes("queue: synced is what was committed", 20_000, Model::default, || anything);
    refutes("queue: what is dropped makes nothing synced", 20_000, Model::default, || anything);
}

/// Two threads put batches, one takes; the first closes the queue in the end.
fn flow(number: u64, history: &History<Model>) {
    let mut rng = fastrand::Rng::with_seed(number);
    let queue = Arc::new(RealFifo::new("q", &Clock::real()));
    let mut next = 0;
    let mut put = |n: usize| -> Vec<Op> {
        let put = |op: &Op| matches!(op, Op::Put(_));
        std::iter::repeat_with(|| Op::draw(&mut || rng.u8(..), &mut next)).filter(put).take(n).collect()
    };
    let (mut first, second) = (put(3), put(3));
    first.push(Op::Close);
    let takes = (0..4).flat_map(|_| {
        let end = if rng.u8(..4) == 0 { Op::Abandon } else { Op::Commit };
        [Op::Wait(rng.u8(1..4)), end]
    });
    let takes = takes.collect();
    let threads = [first, second, takes].into_iter().enumerate().map(|(thread, ops)| caller(&queue, history, thread, ops));
    threads.collect::<Vec<_>>().into_iter().for_each(|t| t.join().unwrap());
}

#[test]
fn batches_of_two_threads_come_out_whole_and_in_an_order_to_one_who_waits() {
    histories("queue: two producers, one consumer that waits", 20_000, Model::default, flow);
    refutes("queue: a batch goes in at once", 20_000, Model::default, || flow);
}
