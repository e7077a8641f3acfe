//! loom models of waiting for a publication: no wake-up is lost, and the last publication counts although the end is close
//! behind. What is published is a plain number here: the protocol needs no order from the version cell.

use super::Waits;
use crate::sync::{
    Arc, Clock, Deadline, WaitError,
    atomic::{AtomicU64, Ordering::Relaxed},
    prove, spawn,
};

/// One publisher (this thread), some waiters for `wanted`, and perhaps the end.
fn world(waiters: usize, publications: u64, wanted: u64, ends: bool) {
    let clock = Clock::real();
    let waits = Arc::new(Waits::new("store", &clock, Box::new(|_, _| None)));
    let now = Arc::new(AtomicU64::new(0));
    let wait = |waits: Arc<Waits>, now: Arc<AtomicU64>| {
        move || {
            let look = || Some(now.load(Relaxed)).filter(|now| *now >= wanted).map(Ok);
            waits.wait(Deadline::never(), look, String::new)
        }
    };
    let waiting: Vec<_> = (0..waiters).map(|_| spawn(&clock, "waiter", wait(waits.clone(), now.clone())).unwrap()).collect();
    for n in 1..=publications {
        waits.publish(|| Some(now.store(n, Relaxed)));
    }
    if ends {
        waits.end();
    }
    let want = if publications >= wanted { Ok(publications) } else { Err(WaitError::Stopped) };
    for waiter in waiting {
        match (waiter.join().unwrap(), &want) {
            (Ok(seen), Ok(last)) => assert!(seen >= wanted && seen <= *last),
            (got, want) => assert_eq!(got, *want, "what was published last counts"),
        }
    }
}

#[test]
fn whoever_waits_is_told_of_what_is_published() {
    prove::model("wait: one waiter, one publication", None, || world(1, 1, 1, false));
    prove::rejects("wait: told after it is published", "deadlock", Some(3), || world(1, 1, 1, false));
    prove::rejects("wait: the publisher's fence", "deadlock", Some(3), || world(1, 1, 1, false));
    prove::rejects("wait: the waiter's fence", "deadlock", Some(3), || world(1, 1, 1, false));
}

#[test]
fn everybody_who_waits_is_told_again_until_it_is_enough() {
    prove::model("wait: one waiter, enough is the second publication", Some(3), || world(1, 2, 2, false));
    prove::model("wait: two waiters", Some(2), || world(2, 1, 1, false));
    prove::rejects("wait: told after it is published", "deadlock", Some(3), || world(1, 2, 2, false));
}

#[test]
fn the_end_releases_a_waiter_and_hides_no_publication() {
    prove::model("wait: the end behind a publication", Some(3), || world(1, 1, 1, true));
    prove::model("wait: the end instead of a publication", Some(3), || world(1, 1, 2, true));
    prove::rejects("wait: the end is read before the look", "what was published last counts", Some(3), || world(1, 1, 1, true));
}
