//! Scenarios recorded on client-go, by the names they have in its specification. Where the queue differs on purpose the
//! test says how.
//!
//! One thread drives each; "parked" is a thread of its own.

use super::{
    Bucket, ItemExponential, Limiter, Work, WorkQueue, default_controller,
    ops::{
        Answer::{self, *},
        Op::{self, *},
        Real,
    },
};
use crate::sync::{Clock, JoinHandle, ManualClock, WaitError, spawn};
use std::time::Duration;

const A: u8 = 0;
const B: u8 = 1;
const C: u8 = 2;
const D: u8 = 3;
const YES: Answer = Accepted(true);
const NO: Answer = Accepted(false);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn story(real: &mut Real, steps: &[(Op, Answer)]) {
    for (n, (op, expected)) in steps.iter().enumerate() {
        assert_eq!(real.apply(op), *expected, "step {n}: {op:?}");
    }
}

fn parked<T: Send + 'static>(clock: &Clock, name: &str, f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    spawn(clock, name, f).unwrap()
}

fn queue(clock: &ManualClock) -> WorkQueue<u8> {
    WorkQueue::builder().name("scenario").clock(clock).build()
}

#[test]
fn s01_one_key_lifecycle() {
    let steps = [
        (Add(A), YES),
        (Add(A), YES),
        (Len, Number(1)),
        (Get, Taken(A)),
        (Add(A), YES),
        (Len, Number(0)),
        (Done(0), Nothing),
        (Len, Number(1)),
        (Get, Taken(A)),
        (Done(0), Nothing),
        (Add(A), YES),
        (Get, Taken(A)),
        (Done(0), Nothing),
        (Get, Empty),
    ];
    story(&mut Real::new(), &steps);
}

#[test]
fn s02_requeue_goes_to_the_tail_when_done() {
    let steps = [
        (Add(A), YES),
        (Get, Taken(A)),
        (Add(A), YES),
        (Add(A), YES),
        (Add(B), YES),
        (Len, Number(1)),
        (Done(0), Nothing),
        (Len, Number(2)),
        (Get, Taken(B)),
        (Get, Taken(A)),
    ];
    story(&mut Real::new(), &steps);
}

/// S03 and S04 do something without holding the key, or do it twice. There are no words for that here: a `Work` is made by
/// the queue only, is not `Clone`, and is consumed. What is left of S04: the second holder is let in after the first only.
#[test]
fn s04_a_third_worker_waits_for_the_second() {
    let clock = ManualClock::new();
    let q = queue(&clock);
    q.add(A);
    let first = q.get().unwrap();
    q.add(A);
    drop(first);
    let second = q.get().unwrap();
    q.add(A);
    let third = parked(&clock, "w3", {
        let q = q.clone();
        move || q.get().map(|w| *w)
    });
    clock.settle();
    assert!(!third.is_finished());
    drop(second);
    assert_eq!(third.join().unwrap(), Some(A));
}

#[test]
fn s05_shutdown_keeps_the_queue_and_drops_adds() {
    let steps = [
        (Add(A), YES),
        (Add(B), YES),
        (Get, Taken(A)),
        (Add(A), YES),
        (Shutdown, Report(1, 1, 0, 0)),
        (Add(C), NO),
        (Len, Number(1)),
        (Get, Taken(B)),
        // Whoever asks here holds A itself; another thread would wait for it: `p6_none_comes_only_when…`.
        (Get, ShutDown),
        (Done(0), Nothing),
        (Len, Number(1)),
        (Get, Taken(A)),
        (Add(A), NO),
        (Done(0), Nothing),
        (Done(0), Nothing),
        (Get, ShutDown),
        (Shutdown, Report(0, 0, 0, 2)),
    ];
    story(&mut Real::new(), &steps);
}

/// Differs: a drain ends when the dirty key has had its second round, and no worker is sent home before.
#[test]
fn s06_drain_waits_for_a_dirty_key() {
    let clock = ManualClock::new();
    let q = queue(&clock);
    q.add(A);
    let work = q.get().unwrap();
    q.add(A);
    let drain = parked(&clock, "d", {
        let q = q.clone();
        move || q.drain(ms(1000))
    });
    let worker = parked(&clock, "w2", {
        let q = q.clone();
        move || std::iter::from_fn(|| q.get()).map(|w| *w).collect::<Vec<_>>()
    });
    clock.settle();
    assert!(!drain.is_finished() && !worker.is_finished());
    drop(work);
    assert_eq!(drain.join().unwrap().unwrap().finished, 2);
    assert_eq!(worker.join().unwrap(), [A]);
}

/// Differs: client-go returns at once and leaves the queue full.
#[test]
fn s07_drain_with_nothing_in_flight_waits_for_the_queue() {
    let clock = ManualClock::new();
    let q = queue(&clock);
    q.add_all([A, B]);
    let drain = parked(&clock, "d", {
        let q = q.clone();
        move || q.drain(ms(1000))
    });
    clock.settle();
    assert!(!drain.is_finished());
    drop((q.get(), q.get()));
    assert_eq!(drain.join().unwrap().unwrap().finished, 2);
    assert!(q.get().is_none());
}

/// Differs: client-go wakes one of the two.
#[test]
fn s08_both_drainers_return() {
    let clock = ManualClock::new();
    let q = queue(&clock);
    q.add(A);
    let work = q.get().unwrap();
    let drainers = ["d1", "d2"].map(|name| {
        let q = q.clone();
        parked(&clock, name, move || q.drain(ms(1000)))
    });
    clock.settle();
    drop(work);
    for drainer in drainers {
        assert_eq!(drainer.join().unwrap().unwrap().finished, 1);
    }
}

/// Differs: a drain that was given up says so.
#[test]
fn s09_s32_shutdown_releases_a_drain_and_a_later_drain_waits() {
    let clock = ManualClock::new();
    let q = queue(&clock);
    q.add(A);
    let work = q.get().unwrap();
    q.shutdown();
    let drain = |name| {
        let q = q.clone();
        parked(&clock, name, move || q.drain(ms(1000)))
    };
    let first = drain("d");
    clock.settle();
    q.shutdown();
    assert_eq!(first.join().unwrap(), Err(WaitError::Cancelled));
    let second = drain("d2");
    clock.settle();
    drop(work);
    assert!(second.join().unwrap().is_ok());
}

#[test]
fn s10_parked_getters() {
    let clock = ManualClock::new();
    let q = queue(&clock);
    let mut getters = ["w1", "w2", "w3"].map(|name| {
        let q = q.clone();
        parked(&clock, name, move || q.get())
    });
    clock.settle();
    let finished = |getters: &[JoinHandle<_>]| getters.iter().filter(|g| g.is_finished()).count();
    for (key, expected) in [(A, 1), (A, 1), (B, 2)] {
        q.add(key);
        clock.settle();
        assert_eq!(finished(&getters), expected);
    }
    q.shutdown();
    clock.settle();
    // Differs: A is held and dirty, and may still need the third.
    assert_eq!(finished(&getters), 2);
    getters.sort_by_key(|g| !g.is_finished());
    let mut rest = Vec::new();
    for getter in getters {
        rest.extend(getter.join().unwrap().map(|w| *w));
    }
    rest.sort_unstable();
    assert_eq!(rest, [A, A, B]);
}

#[test]
fn s11_the_earlier_delay_wins() {
    let steps = [
        (AddAfter(A, 50), YES),
        (AddAfter(A, 70), YES),
        (AddAfter(A, 30), YES),
        (Advance(29), Nothing),
        (Len, Number(0)),
        (Advance(1), Nothing),
        (Len, Number(1)),
        (Get, Taken(A)),
        (Done(0), Nothing),
        (Advance(100), Nothing),
        (Len, Number(0)),
    ];
    story(&mut Real::new(), &steps);
}

#[test]
fn s12_an_immediate_add_leaves_the_delay() {
    let steps = [
        (AddAfter(A, 50), YES),
        (AddAfter(A, 0), YES),
        (Len, Number(1)),
        (Get, Taken(A)),
        (Done(0), Nothing),
        (Advance(50), Nothing),
        (Len, Number(1)),
        (Get, Taken(A)),
        (AddAfter(A, 0), YES),
        (Done(0), Nothing),
        (Len, Number(1)),
    ];
    story(&mut Real::new(), &steps);
}

#[test]
fn s13_a_delay_fires_while_the_key_is_held() {
    let steps = [
        (Add(A), YES),
        (Get, Taken(A)),
        (AddAfter(A, 10), YES),
        (Advance(10), Nothing),
        (Len, Number(0)),
        (AddAfter(A, 10), YES),
        (Advance(10), Nothing),
        (Len, Number(0)),
        (Done(0), Nothing),
        (Len, Number(1)),
        (Get, Taken(A)),
        (Done(0), Nothing),
        (Len, Number(0)),
    ];
    story(&mut Real::new(), &steps);
}

/// Differs: in the order of adding; a binary heap gives client-go a, e, d, c, b.
#[test]
fn s14_equal_deadlines_come_in_the_order_of_adding() {
    let mut steps: Vec<_> = [A, B, C, D, 4].map(|k| (AddAfter(k, 10), YES)).into();
    steps.push((Advance(10), Nothing));
    steps.extend([A, B, C, D, 4].map(|k| (Get, Taken(k))));
    story(&mut Real::new(), &steps);
}

#[test]
fn s15_delays_are_dropped_at_shutdown() {
    let steps = [
        (AddAfter(A, 10), YES),
        (Add(B), YES),
        (Shutdown, Report(1, 0, 1, 0)),
        (AddAfter(C, 10), NO),
        (AddAfter(D, 0), NO),
        (Advance(20_000), Nothing),
        (Len, Number(1)),
        (Get, Taken(B)),
        (Get, ShutDown),
    ];
    story(&mut Real::new(), &steps);
}

#[test]
fn s16_drain_drops_delays_and_says_so() {
    let clock = ManualClock::new();
    let q = queue(&clock);
    q.add_after(A, ms(10));
    q.add(B);
    let work = q.get().unwrap();
    let drain = parked(&clock, "d", {
        let q = q.clone();
        move || q.drain(ms(1000))
    });
    clock.advance(ms(10));
    assert!(!drain.is_finished());
    drop(work);
    assert_eq!(drain.join().unwrap().unwrap().delays_dropped, 1);
    assert!(q.get().is_none());
}

#[test]
fn s17_exponential_sequence() {
    let limiter = ItemExponential::new(ms(5), Duration::from_secs(1000));
    for n in 0..18 {
        assert_eq!(limiter.when(&A), ms(5 << n));
    }
    for n in 18..2019 {
        assert_eq!(limiter.when(&A), Duration::from_secs(1000));
        assert_eq!(limiter.requeues(&A), n + 1);
    }
}

/// Differs: where a wait of 2⁶³ ns becomes negative in Go it stays at the cap here.
#[test]
fn s18_a_power_of_two_does_not_overflow() {
    let limiter = ItemExponential::new(Duration::from_nanos(1), Duration::from_nanos(i64::MAX as u64));
    let waits: Vec<_> = (0..70).map(|_| limiter.when(&A)).collect();
    assert!(waits.is_sorted() && waits[63..].iter().all(|w| *w == Duration::from_nanos(i64::MAX as u64)));
    let zero = ItemExponential::new(Duration::ZERO, ms(1));
    assert!((0..2000).all(|_| zero.when(&A).is_zero()));
}

#[test]
fn s19_default_limiter() {
    let clock = ManualClock::new();
    let limiter = default_controller::<u8>(&clock);
    assert_eq!([A, B].map(|k| limiter.when(&k)), [ms(5); 2]);
    let c: Vec<_> = (0..97).map(|_| limiter.when(&C)).collect();
    assert_eq!(c[96], Duration::from_secs(1000));
    assert_eq!([10, 11, 12].map(|k| limiter.when(&k)), [5, 100, 200].map(ms));
    limiter.forget(&10);
    clock.advance(ms(1000));
    assert_eq!(limiter.when(&10), ms(5));
    assert_eq!(limiter.requeues(&C), 97);
}

/// Differs: the third and fourth time the key waits for its token already, and takes no further one.
#[test]
fn s19c_a_bucket_runs_into_debt_only_for_keys_that_do_not_wait() {
    let clock = ManualClock::new();
    let bucket = Bucket::new(10.0, 1, &clock);
    assert_eq!([A; 4].map(|k| bucket.when(&k)), [0, 100, 100, 100].map(ms));
    clock.advance(ms(250));
    assert_eq!(bucket.when(&A), ms(0));
}

/// Differs at the end: a rate-limited add after the shut-down is refused and not counted as a failure.
#[test]
fn s20_rate_limited_adds() {
    let steps = [
        (AddRateLimited(A), YES),
        (AddRateLimited(A), YES),
        (Requeues(A), Number(2)),
        (Advance(1), Nothing),
        (Len, Number(1)),
        (Get, Taken(A)),
        (Done(0), Nothing),
        (Advance(5), Nothing),
        (Len, Number(0)),
        (Shutdown, Report(0, 0, 0, 0)),
        (AddRateLimited(A), NO),
        (Requeues(A), Number(2)),
        (Forget(A), Nothing),
        (Requeues(A), Number(0)),
    ];
    story(&mut Real::with_limiter(1, 1000), &steps);
}

#[test]
fn s30_drain_waits_for_all_that_is_held() {
    let clock = ManualClock::new();
    let q = queue(&clock);
    q.add_all([A, B]);
    let (first, second) = (q.get(), q.get());
    let getter = parked(&clock, "w3", {
        let q = q.clone();
        move || q.get().is_none()
    });
    clock.settle();
    let drain = parked(&clock, "d", {
        let q = q.clone();
        move || q.drain(ms(1000))
    });
    assert!(getter.join().unwrap());
    drop(first);
    clock.settle();
    assert!(!drain.is_finished());
    drop(second);
    assert!(drain.join().unwrap().is_ok());
}

#[test]
fn s37_the_retry_loop_of_a_controller() {
    let clock = ManualClock::new();
    let q = WorkQueue::builder().clock(&clock).limiter(ItemExponential::new(ms(5), ms(1000))).build();
    q.add(A);
    assert!(Work::retry(q.get().unwrap()));
    let getter = parked(&clock, "w", {
        let q = q.clone();
        move || q.get().unwrap()
    });
    clock.advance(Duration::from_micros(4999));
    assert!(!getter.is_finished());
    clock.advance(Duration::from_micros(1));
    let work = getter.join().unwrap();
    q.add_rate_limited(A);
    q.add(A);
    Work::done(work);
    let work = q.try_get().unwrap();
    assert_eq!(Work::failures(&work), 2);
    Work::forget(&work);
    drop(work);
    assert_eq!(q.len(), 0);
    clock.advance(ms(10));
    assert_eq!(q.len(), 1, "forgetting leaves the delay running");
    assert_eq!(q.requeues(&A), 0);
}

#[test]
fn s38_a_long_delay_needs_no_heartbeat() {
    let clock = ManualClock::new();
    let q = queue(&clock);
    q.add_after(A, Duration::from_secs(25));
    let getter = parked(&clock, "w", {
        let q = q.clone();
        move || q.get().map(|w| *w)
    });
    clock.advance(Duration::from_micros(24_999_999));
    assert!(!getter.is_finished());
    clock.advance(Duration::from_micros(1));
    assert_eq!(getter.join().unwrap(), Some(A));
}
