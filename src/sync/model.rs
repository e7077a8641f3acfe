//! loom models of the facade: parking, the monitor, stop, and that containment hides nothing.
//!
//! Tiny worlds, one question each. Beside each stand the places that it must not survive the loss of.

use super::{
    Arc, Clock, Monitor, Stop,
    atomic::{AtomicBool, AtomicUsize, Ordering},
    call_out::{self, Site},
    park,
    prove::{self, Watched},
    spawn, unparker,
};

mod clock;

/// One waiter looks at a flag and parks, one waker sets it and unparks: the waiter always gets on.
mod parking {
    use super::*;

    fn world() {
        let clock = Clock::real();
        let flag = Arc::new(AtomicBool::new(false));
        let waiter = unparker();
        let waker = {
            let flag = flag.clone();
            spawn(&clock, "waker", move || {
                flag.store(true, Ordering::Release);
                waiter.unpark();
            })
            .unwrap()
        };
        while !flag.load(Ordering::Acquire) {
            park(&clock, None);
        }
        waker.join().unwrap();
    }

    #[test]
    fn an_unpark_on_the_way_to_parking_is_not_lost() {
        prove::model("park: one waiter, one waker", None, world);
        prove::rejects("park: the token is remembered", "deadlock", None, || world());
        prove::rejects("park: a parked thread is notified", "deadlock", None, || world());
    }
}

/// Waiting for a condition against making it true.
mod monitor {
    use super::*;

    /// `n` waiters, one notifier.
    fn world(n: usize, all: bool) {
        let clock = Clock::real();
        let ready = Arc::new(Monitor::new(0_usize));
        let waiters: Vec<_> = (0..n)
            .map(|_| {
                let (ready, clock) = (ready.clone(), clock.clone());
                let wait = move || {
                    let (mut left, reached) = ready.wait_while(ready.lock(), &clock, None, |left| *left == 0);
                    assert!(reached);
                    *left -= 1;
                };
                wait
            })
            .collect();
        let mut waiters = waiters.into_iter();
        let own = waiters.next().unwrap();
        let others: Vec<_> = waiters.map(|wait| spawn(&clock, "waiter", wait).unwrap()).collect();
        let notifier = {
            let ready = ready.clone();
            spawn(&clock, "notifier", move || {
                *ready.lock() = n;
                if all {
                    ready.notify_all();
                } else {
                    ready.notify_one();
                }
            })
            .unwrap()
        };
        own();
        for other in others {
            other.join().unwrap();
        }
        notifier.join().unwrap();
        assert_eq!(*ready.lock(), 0);
    }

    #[test]
    fn a_waiter_between_its_look_and_its_sleep_hears_of_the_change() {
        prove::model("monitor: one waiter, notify_one", None, || world(1, false));
        prove::rejects("monitor: registered before the lock is left", "deadlock", Some(3), || world(1, false));
        prove::rejects("park: the token is remembered", "deadlock", Some(3), || world(1, false));
    }

    #[test]
    fn every_waiter_hears_of_the_change() {
        prove::model("monitor: two waiters, notify_all", Some(3), || world(2, true));
        prove::rejects("monitor: notify_all takes every waiter", "deadlock", Some(2), || world(2, true));
    }
}

/// Stop against those who register with it, take back, wait, and look.
mod stopping {
    use super::*;
    use crate::sync::Deadline;

    /// Counts its calls.
    fn counter() -> (Arc<AtomicUsize>, impl FnOnce() + Send + 'static) {
        let calls = Arc::new(AtomicUsize::new(0));
        let counts = calls.clone();
        let callback = move || {
            counts.fetch_add(1, Ordering::Relaxed);
        };
        (calls, callback)
    }

    fn stopper(stop: &Stop) -> super::super::JoinHandle<()> {
        let stop = stop.clone();
        spawn(&Clock::real(), "stopper", move || stop.stop()).unwrap()
    }

    /// One registers while another stops: the callback runs once, whoever comes first.
    fn registers() {
        let stop = Stop::new();
        let stopper = stopper(&stop);
        let (calls, callback) = counter();
        let guard = stop.on_stop(callback);
        stopper.join().unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 1, "the callback runs exactly once");
        drop(guard);
    }

    #[test]
    fn a_callback_registered_while_stop_arrives_runs_exactly_once() {
        prove::model("stop: on_stop against stop", None, registers);
        prove::rejects("stop: a late callback runs at once", "exactly once", Some(3), || registers());
    }

    /// Two stop: a callback runs once.
    fn twice() {
        let stop = Stop::new();
        let (calls, callback) = counter();
        let guard = if prove::keep("world: a callback is registered") { Some(stop.on_stop(callback)) } else { None };
        let stopper = stopper(&stop);
        stop.stop();
        stopper.join().unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 1, "the callback runs exactly once");
        drop(guard);
    }

    #[test]
    fn two_who_stop_run_a_callback_exactly_once() {
        prove::model("stop: stop against stop", None, twice);
        prove::rejects("world: a callback is registered", "exactly once", None, || twice());
    }

    static TAKEN_BACK: prove::Reached = prove::Reached::new();
    static RAN: prove::Reached = prove::Reached::new();

    /// One takes its callback back while two others register and stop.
    fn takes_back() {
        let stop = Stop::new();
        let (calls, callback) = counter();
        let guard = stop.on_stop(callback);
        let (others, callback) = counter();
        let other = stop.on_stop(callback);
        let stopper = stopper(&stop);
        drop(guard);
        let early = calls.load(Ordering::Relaxed);
        stopper.join().unwrap();
        assert_eq!(others.load(Ordering::Relaxed), 1, "taking one callback back takes no other");
        match (early, calls.load(Ordering::Relaxed)) {
            (0, 0) => TAKEN_BACK.count(),
            (_, 1) => RAN.count(),
            more => panic!("a callback ran twice: {more:?}"),
        }
        drop(other);
    }

    #[test]
    fn a_guard_dropped_while_stop_arrives_takes_back_its_own_callback_or_none() {
        prove::model("stop: dropped guard against stop", None, takes_back);
        if prove::intact() {
            assert!(TAKEN_BACK.get() > 0 && RAN.get() > 0, "taken back {TAKEN_BACK} times, ran {RAN} times");
        }
        prove::rejects("stop: a guard takes back its own callback", "takes no other", Some(3), || takes_back());
    }

    /// One waits while another stops.
    fn waits() {
        let stop = Stop::new();
        let stopper = stopper(&stop);
        assert!(stop.wait(Deadline::never()));
        stopper.join().unwrap();
    }

    #[test]
    fn whoever_waits_for_stop_hears_of_it() {
        prove::model("stop: wait against stop", None, waits);
        prove::rejects("stop: waiters are notified", "deadlock", Some(3), || waits());
        prove::rejects("stop: the flag is set under the lock", "deadlock", Some(3), || waits());
    }

    /// What was done before stop is visible to whoever sees the flag.
    fn publishes() {
        let stop = Stop::new();
        let before = Arc::new(Watched::default());
        let (inner, done) = (stop.clone(), before.clone());
        let stopper = spawn(&Clock::real(), "stopper", move || {
            done.write();
            inner.stop();
        })
        .unwrap();
        if stop.is_stopped() {
            before.read();
        }
        stopper.join().unwrap();
    }

    #[test]
    fn what_was_done_before_stop_is_visible_to_whoever_sees_it() {
        prove::model("stop: is_stopped against stop", None, publishes);
        prove::rejects("stop: the flag is set", "Causality violation", Some(3), || publishes());
        prove::rejects("stop: the flag is looked at", "Causality violation", Some(3), || publishes());
    }
}

/// Containment hides neither a failed assertion nor a race that loom reports inside user code.
mod containment {
    use super::*;

    /// Two handlers, each contained; when `planted`, they touch the same cell without order.
    fn handlers(planted: bool) {
        let clock = Clock::real();
        let cell = Arc::new(Watched::default());
        let touch = |cell: Arc<Watched>| move || call_out::contain(Site::Handler, || cell.write());
        let other = spawn(&clock, "handler", touch(cell.clone())).unwrap();
        if planted {
            touch(cell)();
            other.join().unwrap();
        } else {
            other.join().unwrap();
            touch(cell)();
        }
    }

    #[test]
    fn a_planted_race_inside_a_handler_fails_the_model() {
        prove::model("call_out: two handlers in order", None, || handlers(false));
        prove::rejects("planted: a race inside a handler", "Causality violation", None, || handlers(true));
    }

    #[test]
    fn a_planted_assertion_inside_a_handler_fails_the_model() {
        prove::rejects("planted: a failed assertion inside a handler", "the handler is wrong", None, || {
            let handler = || call_out::contain(Site::Handler, || panic!("the handler is wrong"));
            spawn(&Clock::real(), "handler", handler).unwrap().join().unwrap();
        });
    }

    #[test]
    fn a_planted_assertion_on_a_thread_that_nobody_asks_fails_the_model() {
        prove::rejects("planted: a failed assertion on a thread", "the thread is wrong", None, || {
            let thread = spawn(&Clock::real(), "thread", || panic!("the thread is wrong")).unwrap();
            let _unasked = thread.join();
        });
    }

    /// One handler that panics.
    fn panics(declared: &'static [&'static str]) {
        prove::declare(declared);
        let clock = Clock::real();
        let handler = || call_out::contain(Site::Handler, || panic!("as planned"));
        spawn(&clock, "handler", handler).unwrap().join().unwrap();
        call_out::assert_contained(&clock, declared);
    }

    /// A declared panic is contained, and on record, as in any other build.
    #[test]
    fn a_declared_panic_stays_contained() {
        prove::model("call_out: a declared panic", None, || panics(&["as planned"]));
        prove::rejects("planted: a panic that nobody declared", "as planned", None, || panics(&[]));
    }
}
