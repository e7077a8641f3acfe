//! Subjects with known answers, which keep the linearizability checker honest.

use super::{
    Arc, Monitor, Mutex,
    prove::{
        keep,
        lin::{Call, History, Sequential, explains, histories, refutes},
    },
};

/// Counts, and says what it was before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Counter(u32);

#[derive(Clone, Copy, Debug)]
enum Op {
    Next,
    /// Waits until it has come to so much.
    AtLeast(u32),
}

impl Sequential for Counter {
    type Op = Op;
    type Answer = u32;

    fn step(&mut self, _: usize, op: &Op) -> Option<u32> {
        match *op {
            Op::Next => {
                self.0 += 1;
                Some(self.0 - 1)
            }
            Op::AtLeast(n) => (self.0 >= n).then_some(self.0),
        }
    }
}

fn call(thread: usize, op: Op, answer: u32, span: (usize, usize)) -> Call<Op, u32> {
    Call { thread, op, answer, span }
}

#[test]
fn calls_that_overlap_may_stand_in_either_order_and_others_only_in_their_own() {
    let next = Op::Next;
    let overlap = [call(0, next, 1, (0, 3)), call(1, next, 0, (1, 2))];
    assert!(explains(Counter(0), &overlap));
    let apart = [call(0, next, 1, (0, 1)), call(1, next, 0, (2, 3))];
    assert!(!explains(Counter(0), &apart));
    let twice = [call(0, next, 0, (0, 3)), call(1, next, 0, (1, 2))];
    assert!(!explains(Counter(0), &twice), "no order gives both the same number");
    assert!(explains(Counter(0), &[]));
    // The middle one may stand before or after, the outer two not.
    let chain = [call(0, next, 0, (0, 1)), call(1, next, 2, (0, 5)), call(0, next, 1, (4, 6))];
    assert!(explains(Counter(0), &chain));
    let chain = [call(0, next, 1, (0, 1)), call(1, next, 0, (2, 5)), call(0, next, 2, (4, 6))];
    assert!(!explains(Counter(0), &chain));
}

#[test]
fn a_call_that_waits_stands_where_it_need_not_wait() {
    let early = [call(0, Op::AtLeast(1), 1, (0, 3)), call(1, Op::Next, 0, (1, 2))];
    assert!(explains(Counter(0), &early));
    let too_early = [call(0, Op::AtLeast(1), 1, (0, 1)), call(1, Op::Next, 0, (2, 3))];
    assert!(!explains(Counter(0), &too_early), "it answered before anybody could have let it");
}

/// Three threads count to two each.
fn counts(_: u64, history: &History<Counter>) {
    let number = Arc::new(Mutex::new(0));
    let next = move |number: &Mutex<u32>| {
        if !keep("known: a counter counts in one step") {
            let seen = *number.lock();
            *number.lock() = seen + 1;
            return seen;
        }
        let mut n = number.lock();
        *n += 1;
        *n - 1
    };
    let threads = [0, 1, 2].map(|thread| {
        let (history, number) = (history.clone(), number.clone());
        shuttle::thread::spawn(move || {
            for _ in 0..2 {
                history.call(thread, Op::Next, |_| next(&number));
            }
        })
    });
    threads.into_iter().for_each(|t| t.join().unwrap());
}

#[test]
fn a_counter_under_a_lock_has_an_order_and_one_under_two_locks_has_none() {
    histories("known: a counter", 2_000, Counter::default, counts);
    refutes("known: a counter counts in one step", 2_000, Counter::default, || counts);
}

/// One waits for the second count, which another makes.
fn waits(_: u64, history: &History<Counter>) {
    let number = Arc::new(Monitor::new(0));
    let (counted, to) = (number.clone(), history.clone());
    let waiter = shuttle::thread::spawn(move || {
        let at_least = if keep("known: a wait ends when its time has come") { 2 } else { 1 };
        to.call(0, Op::AtLeast(2), |_| {
            let clock = super::Clock::real();
            *counted.wait_while(counted.lock(), &clock, None, |n| *n < at_least).0
        });
    });
    for _ in 0..2 {
        history.call(1, Op::Next, |_| {
            let mut n = number.lock();
            *n += 1;
            let before = *n - 1;
            drop(n);
            number.notify_all();
            before
        });
    }
    waiter.join().unwrap();
}

#[test]
fn a_wait_that_ends_too_early_is_found() {
    histories("known: a wait", 2_000, Counter::default, waits);
    refutes("known: a wait ends when its time has come", 2_000, Counter::default, || waits);
}
