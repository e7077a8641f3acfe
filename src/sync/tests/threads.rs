//! Threads are named, counted and joined.

use super::*;

#[test]
fn a_thread_is_named_counted_and_gone_after_join() {
    let (clock, gate) = (ManualClock::new(), Gate::new());
    let inner = gate.clone();
    let body = move || {
        inner.wait();
        ::std::thread::current().name().map(str::to_owned)
    };
    let thread = spawn(&clock, "fifteen bytes..", body).unwrap();
    assert_eq!(clock.threads(), ["fifteen bytes.."]);
    assert!(!thread.is_current());
    gate.open();
    assert_eq!(thread.join().unwrap().as_deref(), Some("fifteen bytes.."));
    assert_eq!(clock.threads(), Vec::<String>::new());
}

#[test]
fn join_tells_the_message_of_a_panic() {
    for clock in [ManualClock::new().clock(), Clock::real()] {
        let thread = spawn(&clock, "unlucky", || panic!("died of {}", 7)).unwrap();
        assert_eq!(thread.join(), Err("died of 7".to_owned()));
        assert_eq!(clock.threads(), Vec::<String>::new());
    }
}

#[test]
fn a_name_the_system_would_not_take_is_refused() {
    let clock = Clock::real();
    assert!(panic_of(|| drop(spawn(&clock, "sixteen bytes...", || {}))).contains("would cut the thread name"));
    let refused = spawn(&clock, "a\0b", || {}).err().unwrap();
    assert_eq!(refused.kind(), ::std::io::ErrorKind::InvalidInput);
    assert_eq!(clock.threads(), Vec::<String>::new());
}

#[test]
fn a_thread_that_has_ended_may_still_wait_in_a_destructor_of_a_thread_local() {
    struct Waits(Option<(Stop, Log<bool>)>);
    impl Drop for Waits {
        fn drop(&mut self) {
            if let Some((stop, log)) = &self.0 {
                push(log, stop.wait(Deadline::at(at(10))));
            }
        }
    }
    thread_local! {
        static LAST: ::std::cell::RefCell<Waits> = const { ::std::cell::RefCell::new(Waits(None)) };
    }
    let (clock, log) = (ManualClock::new(), Log::default());
    let (stop, inner) = (Stop::with_clock(&clock), log.clone());
    let thread = spawn(&clock, "leaver", move || LAST.with(|l| l.borrow_mut().0 = Some((stop, inner)))).unwrap();
    // The thread is no longer ours, so nobody waits for it to get there.
    while log.lock().is_empty() {
        clock.advance(10 * MS);
    }
    thread.join().unwrap();
    assert_eq!(*log.lock(), [false]);
}
