//! User code is contained, marked and on record.

use super::*;

#[test]
fn a_call_out_hands_the_panic_over_and_puts_it_on_record() {
    assert_eq!(call(Site::Key, || 7), Ok(7));
    let text = call(Site::Handler, || panic!("with {}", "text")).unwrap_err();
    assert_eq!((text.site, text.message.as_str()), (Site::Handler, "with text"));
    assert_eq!(call(Site::Hook, || panic_any(7)).unwrap_err().message, "(no message)");
    assert_contained(&Clock::real(), &["with text", "(no message)"]);
}

#[test]
fn a_payload_that_panics_while_dropped_is_contained() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("bad payload");
        }
    }
    contain(Site::Hook, || panic_any(Bad));
    assert_contained(&Clock::real(), &["(no message)"]);
}

#[test]
fn marks_nest_and_are_restored_after_a_panic() {
    assert_eq!(inside(), None);
    contain(Site::Handler, || {
        assert_eq!(inside(), Some(Site::Handler));
        contain(Site::Key, || panic!("inner"));
        assert_eq!(inside(), Some(Site::Handler));
        panic!("outer");
    });
    assert_eq!(inside(), None);
    assert_contained(&Clock::real(), &["inner", "outer"]);
}

#[test]
#[cfg(debug_assertions)]
fn user_code_under_a_counted_lock_is_a_loud_defect() {
    let (lock, other) = (Mutex::new(()), Monitor::new(()));
    let (a, b) = (lock.lock(), other.lock());
    drop(a);
    assert_eq!(locks_held(), 1);
    let message = panic_of(|| contain(Site::Handler, || {}));
    assert!(message.contains("entering user code (Handler) with a lock held"), "{message}");
    drop(b);
    contain(Site::Handler, || {});
}

#[test]
fn a_panic_is_on_the_record_of_the_threads_clock() {
    let (clock, other) = (ManualClock::new(), Clock::real());
    spawn(&clock, "ours", || contain(Site::Handler, || panic!("on our thread"))).unwrap().join().unwrap();
    assert_contained(&other, &[]);
    assert_contained(&clock, &["on our thread"]);
    assert_contained(&clock, &[]);
}

#[test]
fn undeclared_and_missing_panics_fail_a_test() {
    let clock = Clock::real();
    contain(Site::Handler, || panic!("surprise"));
    let undeclared = panic_of(|| assert_contained(&clock, &[]));
    assert!(undeclared.contains("undeclared") && undeclared.contains("surprise"), "{undeclared}");
    let missing = panic_of(|| assert_contained(&clock, &["awaited"]));
    assert!(missing.contains(r#"missing ["awaited"]"#), "{missing}");
    contain(Site::Handler, || panic!("once"));
    assert!(panic_of(|| assert_contained(&clock, &["once", "once"])).contains(r#"missing ["once"]"#));
    for n in 0..300 {
        contain(Site::Handler, || panic!("storm {n}"));
    }
    assert!(panic_of(|| assert_contained(&clock, &["storm"; 256])).contains("44 more"));
}

#[test]
fn dropping_a_clock_with_undeclared_panics_fails_the_test() {
    let on_its_thread = panic_of(|| {
        let (clock, gate) = (ManualClock::new(), Gate::new());
        let inner = gate.clone();
        let handler = move || {
            inner.wait();
            assert_eq!(1, 2, "planted");
        };
        let _detached = spawn(&clock, "handler", || contain(Site::Handler, handler)).unwrap();
        // The panic is still to come when the clock is dropped.
        gate.open();
    });
    assert!(on_its_thread.contains("planted"), "{on_its_thread}");
    let on_this_thread = panic_of(|| {
        let _clock = ManualClock::new();
        contain(Site::Index, || panic!("planted"));
    });
    assert!(on_this_thread.contains("planted"), "{on_this_thread}");
    let failing_anyway = panic_of(|| {
        let _clock = ManualClock::new();
        contain(Site::Index, || panic!("planted"));
        panic!("the first failure");
    });
    assert_eq!(failing_anyway, "the first failure");
    take_record(&Clock::real());
}

#[test]
fn a_comparison_of_keys_may_panic_under_a_lock_and_is_on_record_after_it() {
    let lock = Mutex::new(());
    let held = lock.lock();
    assert_eq!(key_cmp(inside).ok(), Some(Some(Site::Key)));
    let panicked = key_cmp(|| panic!("bad eq")).unwrap_err();
    assert!(take_record(&Clock::real()).is_empty(), "its payload is user code: it waits for the end of the lock");
    drop(held);
    panicked.contain();
    assert_contained(&Clock::real(), &["bad eq"]);
}

#[test]
#[cfg(debug_assertions)]
fn a_comparison_of_keys_that_calls_back_is_a_loud_defect() {
    let (lock, other) = (Mutex::new(()), Mutex::new(()));
    let held = lock.lock();
    let called_back = key_cmp(|| drop(other.lock())).unwrap_err();
    drop(held);
    called_back.contain();
    assert_contained(&Clock::real(), &["must not call back"]);
    // Without a lock around it nothing is wrong with it.
    assert!(key_cmp(|| drop(other.lock())).is_ok());
}

#[test]
fn a_defect_of_the_crate_itself_is_an_error_and_on_no_record() {
    assert_eq!(call_out::guard(|| 7), Ok(7));
    assert_eq!(call_out::guard(|| panic!("a defect")), Err::<(), _>("a defect".to_owned()));
    assert_contained(&Clock::real(), &[]);
}
