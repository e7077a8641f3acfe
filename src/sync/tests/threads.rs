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
fn a_thread_that_has_ended_is_a_visitor_in_destructors_of_its_thread_locals() {
    struct Visits(Option<Box<dyn FnOnce() + Send>>);
    impl Drop for Visits {
        fn drop(&mut self) {
            if let Some(f) = self.0.take() {
                f();
            }
        }
    }
    thread_local! {
        static LAST: ::std::cell::RefCell<Visits> = const { ::std::cell::RefCell::new(Visits(None)) };
    }
    let mut clock = clock_with(50 * MS, MS);
    let ((enter, entered), (go, gone)) = (mpsc::channel(), mpsc::channel::<()>());
    let (c, passed) = (clock.clock(), Log::default());
    let inner = passed.clone();
    let visit = move || {
        let (door, mut first) = (Monitor::new(()), true);
        let keep_waiting = |_: &mut ()| {
            if ::std::mem::take(&mut first) {
                enter.send(()).unwrap();
                gone.recv().unwrap();
            }
            true
        };
        push(&inner, door.wait_while(door.lock(), &c, Some(at(10)), keep_waiting).1);
    };
    let thread = spawn(&clock, "leaver", move || LAST.with(|l| l.borrow_mut().0 = Some(Box::new(visit)))).unwrap();
    entered.recv().unwrap();
    assert_eq!(clock.threads(), Vec::<String>::new());
    assert_eq!(clock.try_advance(MS).unwrap_err().busy, ["leaver"]);
    clock.patience = ManualClock::new().patience;
    go.send(()).unwrap();
    clock.advance(10 * MS);
    thread.join().unwrap();
    assert_eq!(*passed.lock(), [false]);
}

#[test]
fn a_thread_knows_itself_and_its_name_is_known_while_it_lives() {
    let (clock, gate) = (ManualClock::new(), Gate::new());
    let (tell, told) = mpsc::channel();
    let inner = gate.clone();
    let body = move || {
        tell.send(this_thread()).unwrap();
        inner.wait();
    };
    let thread = spawn(&clock, "somebody", body).unwrap();
    let id = told.recv().unwrap();
    assert_ne!(id, this_thread());
    assert_eq!(this_thread(), this_thread());
    assert_eq!(id.name().as_deref(), Some("somebody"));
    gate.open();
    thread.join().unwrap();
    assert_eq!(id.name(), None);
}
