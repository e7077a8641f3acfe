//! The linearizability checker: is there an order of the calls, in keeping with who was done before whom began, in which
//! the plain sequential model gives the same answers?
//!
//! # How
//! Each call is stamped before it begins and after it has answered; the stamps come from an atomic of the facade, so the
//! checker of schedules may put anybody in between. [`explains`] then searches for an order (Wing and Gong): the next
//! call may be any that began before every other remaining one had answered, and whose answer is the model's. What has
//! been tried (which calls are placed, and where the model stands then) is remembered and not tried again.
//!
//! # What an answer is worth
//! A history without an order is a counterexample, whatever the room promises in words. That all have one is evidence for
//! the histories that were run. The stamps order threads among themselves, so races are not for this checker to find.

use super::super::atomic::{AtomicUsize, Ordering};
use std::{
    collections::HashSet,
    fmt::Debug,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
};

/// More calls than this do not fit into the set of those placed; a good history has fewer than twenty.
const MOST: usize = 32;

/// What a room does, one call after another.
pub trait Sequential: Clone + Eq + Hash + Debug + 'static {
    /// What is called.
    type Op: Clone + Debug + 'static;
    /// What comes back.
    type Answer: Clone + PartialEq + Debug + 'static;

    /// Does `op`, called by `thread`; `None` when the call would wait in this state, which it leaves as it is.
    fn step(&mut self, thread: usize, op: &Self::Op) -> Option<Self::Answer>;
}

/// One call of a history.
#[derive(Clone, Debug)]
pub struct Call<O, A> {
    /// Who called.
    pub thread: usize,
    /// What was called.
    pub op: O,
    /// What came back.
    pub answer: A,
    /// The stamp before the call, and the one after.
    pub span: (usize, usize),
}

/// Calls as they happen. Clones write into the same history.
pub struct History<M: Sequential>(Arc<Inner<M::Op, M::Answer>>);

struct Inner<O, A> {
    stamps: AtomicUsize,
    // Not a lock of the facade: it is held for a moment by one thread of the model at a time, and is no step of it.
    calls: Mutex<Vec<Call<O, A>>>,
}

impl<M: Sequential> Default for History<M> {
    fn default() -> Self {
        Self(Arc::new(Inner { stamps: AtomicUsize::new(0), calls: Mutex::new(Vec::new()) }))
    }
}

impl<M: Sequential> Clone for History<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M: Sequential> History<M> {
    /// Calls `call`, which does `op`, and writes down when and with what answer.
    pub fn call(&self, thread: usize, op: M::Op, call: impl FnOnce(&M::Op) -> M::Answer) -> M::Answer {
        let begun = self.0.stamps.fetch_add(1, Ordering::AcqRel);
        let answer = call(&op);
        let ended = self.0.stamps.fetch_add(1, Ordering::AcqRel);
        let call = Call { thread, op, answer: answer.clone(), span: (begun, ended) };
        self.0.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
        answer
    }

    /// The calls so far, by when they began.
    pub fn calls(&self) -> Vec<Call<M::Op, M::Answer>> {
        let mut calls = self.0.calls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        calls.sort_by_key(|c| c.span);
        calls
    }

    /// Demands that the calls so far have an order, from `start` on.
    ///
    /// # Panics
    /// When they have none; the message shows them.
    pub fn judge(&self, start: M) {
        let calls = self.calls();
        if !explains(start, &calls) {
            let shown: String = calls.iter().map(show).collect();
            panic!("no order of these calls explains their answers:\n{shown}");
        }
    }
}

fn show<O: Debug, A: Debug>(c: &Call<O, A>) -> String {
    format!("  {:>3} to {:>3}  thread {}: {:?} -> {:?}\n", c.span.0, c.span.1, c.thread, c.op, c.answer)
}

/// Whether some order of `calls` explains their answers, beginning with `start`.
///
/// # Panics
/// When there are too many calls.
pub fn explains<M: Sequential>(start: M, calls: &[Call<M::Op, M::Answer>]) -> bool {
    assert!(calls.len() <= MOST, "{} calls are too many for one history", calls.len());
    place(start, calls, 0, &mut HashSet::new())
}

/// `placed` has a bit for each call that is placed already.
fn place<M: Sequential>(model: M, calls: &[Call<M::Op, M::Answer>], placed: u64, tried: &mut HashSet<(u64, M)>) -> bool {
    let left = || calls.iter().enumerate().filter(|(i, _)| placed >> i & 1 == 0);
    let Some(first_end) = left().map(|(_, c)| c.span.1).min() else { return true };
    if !tried.insert((placed, model.clone())) {
        return false;
    }
    left().filter(|(_, c)| c.span.0 < first_end).any(|(i, c)| {
        let mut next = model.clone();
        next.step(c.thread, &c.op).as_ref() == Some(&c.answer) && place(next, calls, placed | 1 << i, tried)
    })
}

/// Runs `world` in `count` executions, half of them under random schedules, half with few, placed changes of thread, and
/// judges the history of each. `world` gets the number of the execution, from which it draws what to call; it returns
/// when all its threads have ended. Prints what was covered. In a process that [`refutes`] started it does nothing.
///
/// # Panics
/// When a history has no order, or an execution fails otherwise.
#[cfg(informer_shuttle)]
pub fn histories<M: Sequential>(name: &str, count: usize, start: fn() -> M, world: fn(u64, &History<M>)) {
    if super::intact() {
        run(name, super::effort() * count, start, world);
    }
}

/// Runs the histories of [`histories`] with the place `mutant` broken, in a process of its own, and demands that one of
/// them has no order. To be called directly from a `#[test]` with a closure written there.
///
/// # Panics
/// When the mutant survives, or fails for another reason.
#[cfg(informer_shuttle)]
pub fn refutes<M: Sequential, W: Fn() -> fn(u64, &History<M>)>(mutant: &str, count: usize, start: fn() -> M, world: W) {
    super::in_child::<W>(mutant, "no order of these calls", || run(mutant, count, start, world()));
}

#[cfg(informer_shuttle)]
fn run<M: Sequential>(name: &str, count: usize, start: fn() -> M, world: fn(u64, &History<M>)) {
    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// How often a schedule of the second kind takes a thread off that could go on.
    const CHANGES: usize = 3;

    super::announce_failures();
    let begun = std::time::Instant::now();
    let (histories, calls, overlaps) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    super::ITERATION.with(|i| i.set(0));
    let (h, c, o) = (histories.clone(), calls.clone(), overlaps.clone());
    let execution = move || {
        let number = super::begin();
        let history = History::default();
        world(number, &history);
        history.judge(start());
        let all = history.calls();
        h.fetch_add(1, Relaxed);
        c.fetch_add(all.len() as u64, Relaxed);
        o.fetch_add(u64::from(all.iter().zip(all.iter().skip(1)).any(|(a, b)| b.span.0 < a.span.1)), Relaxed);
    };
    let config = super::quiet();
    shuttle::Runner::new(RandomScheduler::new_from_seed(1, count.div_ceil(2)), config.clone()).run(execution.clone());
    shuttle::Runner::new(PctScheduler::new_from_seed(1, CHANGES, count / 2), config).run(execution);
    super::ITERATION.with(|i| i.set(0));
    let [histories, calls, overlaps] = [histories, calls, overlaps].map(|n| n.load(Relaxed));
    let took = begun.elapsed().as_secs_f64();
    println!("lin {name}: {histories} histories, {calls} calls, calls overlap in {overlaps}, {took:.2} s");
    assert!(overlaps > histories / 4, "most histories are sequential: nothing is shown");
}
