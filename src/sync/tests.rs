//! The facade's promises: the clock settles, no wake-up is lost, signals arrive once, user code is contained.

use super::{
    call_out::{Site, assert_contained, call, contain, inside, key_cmp, take_record},
    census::Patience,
    lock::locks_held,
    park::Parked,
    *,
};
use ::std::{
    panic::{AssertUnwindSafe, catch_unwind, panic_any},
    sync::mpsc,
    time::Duration,
};

mod clock;
mod parking;
mod signals;
mod threads;
mod user_code;

const MS: Duration = Duration::from_millis(1);
/// Far more real time than any of these tests needs.
const LONG: Duration = Duration::from_secs(60);

type Log<T> = Arc<Mutex<Vec<T>>>;

fn push<T>(log: &Log<T>, what: T) {
    log.lock().push(what);
}

fn at(ms: u32) -> Instant {
    Instant::from_start(MS * ms)
}

/// A manual clock with other limits of real time.
fn clock_with(limit: Duration, grace: Duration) -> ManualClock {
    let mut clock = ManualClock::new();
    clock.patience = Patience { limit, grace };
    clock
}

/// Parks until `deadline` passes, whatever else wakes the thread.
fn nap(clock: &Clock, deadline: Instant) {
    while park(clock, Some(deadline)) != Parked::Deadline {}
}

/// Starts a thread that naps until `ms` and then does `f`.
fn at_ms(clock: &Clock, name: &str, ms: u32, f: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let c = clock.clone();
    spawn(clock, name, move || {
        nap(&c, at(ms));
        f();
    })
    .unwrap()
}

fn join_all<const N: usize>(threads: [JoinHandle<()>; N]) {
    for t in threads {
        t.join().unwrap();
    }
}

/// Starts a foreign thread, which no census knows.
fn foreign<T: Send + 'static>(name: &str, f: impl FnOnce() -> T + Send + 'static) -> ::std::thread::JoinHandle<T> {
    ::std::thread::Builder::new().name(name.to_owned()).spawn(f).unwrap()
}

/// What `f` panics with.
fn panic_of(f: impl FnOnce()) -> String {
    call_out::message_of(catch_unwind(AssertUnwindSafe(f)).expect_err("it did not panic"))
}
