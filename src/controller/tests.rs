//! The promises of the controller, on a clock that is moved by hand.

use super::{Action, AtStop, Context, Controller, ControllerError, ControllerEvent, ReconcileError, StopReport};
use crate::{
    sync::{
        Arc, Clock, Deadline, Gate, JoinHandle, ManualClock, Monitor, Mutex, Stop, Synced, WaitError,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        call_out::assert_contained,
        spawn,
    },
    workqueue::{ItemExponential, Limiter, WorkQueue},
};
use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn queue(clock: &Clock) -> WorkQueue<u32> {
    let limiter = ItemExponential::new(ms(5), Duration::from_secs(1000));
    WorkQueue::builder().name("q").clock(clock).limiter(limiter).build()
}

type Running = JoinHandle<Result<StopReport, ControllerError>>;

fn start(clock: &Clock, controller: Controller<u32>, stop: &Stop) -> Running {
    let stop = stop.clone();
    spawn(clock, "run", move || controller.run(&stop)).unwrap()
}

fn end(running: Running, stop: &Stop) -> StopReport {
    stop.stop();
    running.join().unwrap().unwrap()
}

/// Which key, at what time on the clock, which attempt.
type Log = Arc<Mutex<Vec<(u32, u64, u32)>>>;

/// A reconciler that writes down each run and does what `f` says of the key and the attempt.
fn logged(
    log: &Log,
    f: impl Fn(u32, u32) -> Result<Action, ReconcileError> + Send + Sync + 'static,
) -> impl Fn(&u32, &Context) -> Result<Action, ReconcileError> + Send + Sync + 'static {
    let log = log.clone();
    move |key, cx| {
        log.lock().push((*key, cx.clock().now().since_start().as_millis() as u64, cx.attempt()));
        f(*key, cx.attempt())
    }
}

#[test]
fn p6_keys_are_exclusive_across_workers() {
    const KEYS: u32 = 5;
    let clock = ManualClock::new();
    let (q, stop) = (queue(&clock), Stop::new());
    let inside: Arc<[AtomicBool; KEYS as usize]> = Arc::default();
    let runs = Arc::new(AtomicUsize::new(0));
    let controller = {
        let (inside, runs) = (inside.clone(), runs.clone());
        let reconcile = move |key: &u32, cx: &Context| {
            assert!(!inside[*key as usize].swap(true, SeqCst), "two workers in one key");
            let n = runs.fetch_add(1, SeqCst);
            inside[*key as usize].store(false, SeqCst);
            match (n % 7, cx.attempt()) {
                (3, 1) => Err(ReconcileError::retry("now and then")),
                (5, 1) => Ok(Action::RequeueAfter(ms(1))),
                _ => Ok(Action::Done),
            }
        };
        Controller::builder(q.clone(), reconcile).workers(4).build()
    };
    let running = start(&clock, controller, &stop);
    let adders: Vec<_> = (0..3)
        .map(|i| {
            let q = q.clone();
            spawn(&clock, &format!("adder-{i}"), move || (0..1000).for_each(|n| assert!(q.add((n + i) % KEYS)))).unwrap()
        })
        .collect();
    adders.into_iter().for_each(|t| t.join().unwrap());
    clock.advance(ms(1000));
    assert_eq!(q.len(), 0);
    let report = end(running, &stop);
    assert_eq!(report.reconciles, runs.load(SeqCst) as u64);
    assert_eq!((report.panicked, report.dropped, report.retries_refused), (0, 0, 0));
}

/// B-135, first part: attempts follow the backoff, neither in a hot loop nor never.
#[test]
fn b135_a_permanent_error_is_retried_by_the_backoff_series() {
    let clock = ManualClock::new();
    let (q, stop, log) = (queue(&clock), Stop::new(), Log::default());
    let controller = Controller::builder(q.clone(), logged(&log, |_, _| Err(ReconcileError::retry("always")))).build();
    let running = start(&clock, controller, &stop);
    q.add(1);
    clock.advance(Duration::from_secs(60));
    let expected: Vec<_> = (0..14).map(|n| (1, 5 * ((1 << n) - 1), n as u32 + 1)).collect();
    assert_eq!(*log.lock(), expected);
    let report = end(running, &stop);
    assert_eq!((report.failed, report.delays_dropped), (14, 1));
}

/// B-135, second part, and B-13: a failed or panicked key comes again, once, and success forgets its failures.
#[test]
fn p9_a_failed_or_panicked_key_comes_again_and_success_forgets() {
    let clock = ManualClock::new();
    let (q, stop, log) = (queue(&clock), Stop::new(), Log::default());
    let reconcile = logged(&log, |key, attempt| match (key, attempt) {
        (1, 1) => Err(ReconcileError::retry("once")),
        (2, 1) => panic!("reconcile of 2 blew up"),
        _ => Ok(Action::Done),
    });
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = seen.clone();
    let controller = Controller::builder(q.clone(), reconcile)
        .observe(move |event| {
            told.lock().push(match event {
                ControllerEvent::Started { workers } => format!("started {workers}"),
                ControllerEvent::Reconciled { key, action, attempt, .. } => format!("{key}: {action:?}, attempt {attempt}"),
                ControllerEvent::Failed { key, error, attempt, .. } => format!("{key}: {error}, attempt {attempt}"),
                ControllerEvent::Panicked { key, message, attempt, .. } => format!("{key}: {message}, attempt {attempt}"),
            })
        })
        .build();
    let running = start(&clock, controller, &stop);
    clock.settle();
    q.add_all([1, 2, 3]);
    clock.advance(Duration::from_secs(10));
    assert_eq!(*log.lock(), [(1, 0, 1), (2, 0, 1), (3, 0, 1), (1, 5, 2), (2, 5, 2)]);
    assert_eq!([1, 2, 3].map(|key| q.requeues(&key)), [0; 3]);
    // Added anew, both run as if nothing had been.
    q.add(1);
    clock.settle();
    assert_eq!(log.lock().last(), Some(&(1, 10_000, 1)));
    stop.stop();
    let report = running.join().unwrap().unwrap();
    assert_eq!((report.reconciles, report.failed, report.panicked), (6, 2, 1));
    assert_contained(&clock, &["reconcile of 2 blew up"]);
    assert_eq!(
        seen.lock()[..6],
        [
            "started 1",
            "1: once, attempt 1",
            "2: reconcile of 2 blew up, attempt 1",
            "3: Done, attempt 1",
            "1: Done, attempt 2",
            "2: Done, attempt 2"
        ]
    );
}

#[test]
fn a_terminal_error_is_reported_forgotten_and_not_retried() {
    let clock = ManualClock::new();
    let (q, stop, log) = (queue(&clock), Stop::new(), Log::default());
    let terminal = Arc::new(AtomicUsize::new(0));
    let told = terminal.clone();
    let controller = Controller::builder(
        q.clone(),
        logged(&log, |_, attempt| match attempt {
            1 | 2 => Err(ReconcileError::retry("not yet")),
            _ => Err(ReconcileError::terminal("never")),
        }),
    )
    .observe(move |event| {
        if let ControllerEvent::Failed { error, .. } = event {
            told.fetch_add(usize::from(error.is_terminal()), SeqCst);
        }
    })
    .build();
    let running = start(&clock, controller, &stop);
    q.add(1);
    clock.advance(Duration::from_secs(100));
    assert_eq!(*log.lock(), [(1, 0, 1), (1, 5, 2), (1, 15, 3)]);
    assert_eq!((terminal.load(SeqCst), q.requeues(&1)), (1, 0));
    let report = end(running, &stop);
    assert_eq!((report.terminal, report.failed), (1, 2));
}

/// B-134: the time of the next run of each outcome is exact, and no outcome has two of them.
#[test]
fn b134_each_outcome_has_one_next_time() {
    let clock = ManualClock::new();
    let (q, stop, log) = (queue(&clock), Stop::new(), Log::default());
    let step = AtomicUsize::new(0);
    let controller = Controller::builder(
        q.clone(),
        logged(&log, move |_, _| match step.fetch_add(1, SeqCst) {
            0 => Ok(Action::Requeue),                                      // at 0, again after 5 ms
            1 => Ok(Action::Requeue),                                      // at 5, after 10 ms
            2 => Err(ReconcileError::retry_after("busy", ms(1000))),       // at 15, not counted
            3 => Err(std::io::Error::other("what `?` makes").into()),      // at 1015, after 20 ms
            4 => Ok(Action::RequeueAfter(ms(50))),                         // at 1035, forgets
            5 => Ok(Action::RequeueAfter(Duration::ZERO)),                 // at 1085, at once
            6 => Err(ReconcileError::retry("counted from the beginning")), // at 1085, after 5 ms
            _ => Ok(Action::Done),                                         // at 1090
        }),
    )
    .build();
    let running = start(&clock, controller, &stop);
    q.add(1);
    clock.advance(Duration::from_secs(3600));
    let got: Vec<_> = log.lock().iter().map(|l| (l.1, l.2)).collect();
    assert_eq!(got, [(0, 1), (5, 2), (15, 3), (1015, 3), (1035, 4), (1085, 1), (1085, 1), (1090, 2)]);
    end(running, &stop);
}

#[test]
fn p8_stop_ends_every_thread_and_reports() {
    let clock = ManualClock::new();
    let (q, stop, gate, log) = (queue(&clock), Stop::new(), Gate::new(), Log::default());
    let wait = gate.clone();
    let reconcile = logged(&log, move |_, _| {
        wait.wait();
        Err(ReconcileError::retry("refused by now"))
    });
    let controller = Controller::builder(q.clone(), reconcile).name("pods-controller").workers(3).build();
    let running = start(&clock, controller, &stop);
    q.add_all(0..5);
    q.add_after(9, ms(10));
    clock.settle();
    let mut threads = clock.threads();
    threads.sort();
    assert_eq!(threads, ["pods-contr-0", "pods-contr-1", "pods-contr-2", "run"]);
    stop.stop();
    clock.settle();
    assert!(!q.add(7), "closed at once");
    assert!(!running.is_finished(), "three reconciles are running");
    gate.open();
    let report = running.join().unwrap().unwrap();
    let expected =
        StopReport { reconciles: 3, failed: 3, dropped: 2, retries_refused: 3, delays_dropped: 1, ..StopReport::default() };
    assert_eq!(report, expected);
    assert!(clock.threads().is_empty());
    let calls = log.lock().len();
    clock.advance(Duration::from_secs(1000));
    assert_eq!(log.lock().len(), calls, "nothing is called afterwards");
}

#[test]
fn stop_works_leftovers_off_when_told_to() {
    let clock = ManualClock::new();
    let (q, stop, gate, log) = (queue(&clock), Stop::new(), Gate::new(), Log::default());
    let wait = gate.clone();
    let reconcile = logged(&log, move |key, _| {
        wait.wait();
        Ok(if key == 2 { Action::Requeue } else { Action::Done })
    });
    let controller = Controller::builder(q.clone(), reconcile).workers(2).at_stop(AtStop::Drain).build();
    let running = start(&clock, controller, &stop);
    clock.settle();
    q.add_all([1, 2]);
    clock.settle();
    q.add_all([3, 4, 1]);
    stop.stop();
    gate.open();
    let report = running.join().unwrap().unwrap();
    let expected = StopReport { reconciles: 5, retries_refused: 1, ..StopReport::default() };
    assert_eq!(report, expected);
    let mut keys: Vec<_> = log.lock().iter().map(|l| l.0).collect();
    keys.sort_unstable();
    assert_eq!(keys, [1, 1, 2, 3, 4]);
}

/// B-83: the thread that runs the controller is not the one that has to end it.
#[test]
fn b83_stop_ends_a_controller_that_has_nothing_to_do() {
    let clock = ManualClock::new();
    for workers in [0, 1, 4] {
        let (q, stop) = (queue(&clock), Stop::new());
        let controller = Controller::builder(q, |_: &u32, _: &Context| Ok(Action::Done)).workers(workers).build();
        let running = start(&clock, controller, &stop);
        clock.settle();
        assert_eq!(clock.threads().len(), 1 + workers.max(1));
        assert_eq!(end(running, &stop), StopReport::default());
        assert!(clock.threads().is_empty());
    }
}

#[test]
fn a_queue_that_is_shut_down_ends_the_run_after_its_keys() {
    let clock = ManualClock::new();
    let (q, stop, log) = (queue(&clock), Stop::new(), Log::default());
    let controller = Controller::builder(q.clone(), logged(&log, |_, _| Ok(Action::Done))).workers(2).build();
    q.add_all([1, 2, 3]);
    q.shutdown();
    let report = controller.run(&stop).unwrap();
    assert_eq!((report.reconciles, report.dropped), (3, 0));
    assert!(!stop.is_stopped());
    assert!(matches!(controller.run(&stop), Err(ControllerError::AlreadyRan)));
}

/// A store of which a test says when it is synced.
struct Store {
    name: &'static str,
    clock: Clock,
    synced: Monitor<bool>,
}

impl Store {
    fn new(name: &'static str, clock: &Clock) -> Arc<Self> {
        Arc::new(Self { name, clock: clock.clone(), synced: Monitor::new(false) })
    }

    fn sync(&self) {
        *self.synced.lock() = true;
        self.synced.notify_all();
    }
}

impl Synced for Store {
    fn name(&self) -> &str {
        self.name
    }

    fn has_synced(&self) -> bool {
        *self.synced.lock()
    }

    fn wait_synced(&self, deadline: Deadline) -> Result<(), WaitError> {
        let at = deadline.on(&self.clock);
        let (_, reached) = self.synced.wait_while(self.synced.lock(), &self.clock, at, |synced| !*synced);
        let timeout = || WaitError::Timeout { missing: vec![self.name.into()], last_error: Some("refused".into()) };
        reached.then_some(()).ok_or_else(timeout)
    }
}

#[test]
fn nothing_is_reconciled_before_every_store_is_synced() {
    let clock = ManualClock::new();
    let (q, stop, log) = (queue(&clock), Stop::new(), Log::default());
    let (pods, nodes) = (Store::new("pods", &clock), Store::new("nodes", &clock));
    let controller = Controller::builder(q.clone(), logged(&log, |_, _| Ok(Action::Done)))
        .wait_for([pods.clone() as Arc<dyn Synced>, nodes.clone()])
        .build();
    let running = start(&clock, controller, &stop);
    q.add(1);
    clock.advance(ms(30_000));
    nodes.sync();
    clock.advance(ms(30_000));
    assert!(log.lock().is_empty());
    pods.sync();
    clock.settle();
    assert_eq!(*log.lock(), [(1, 60_000, 1)]);
    end(running, &stop);
}

#[test]
fn stores_that_do_not_sync_in_time_are_named() {
    let clock = ManualClock::new();
    let (q, stop) = (queue(&clock), Stop::new());
    let stores = ["pods", "nodes", "jobs"].map(|name| Store::new(name, &clock));
    let controller = Controller::builder(q.clone(), |_: &u32, _: &Context| Ok(Action::Done))
        .wait_for(stores.clone().map(|s| s as Arc<dyn Synced>))
        .sync_deadline(ms(250))
        .build();
    let running = start(&clock, controller, &stop);
    clock.advance(ms(120));
    stores[0].sync();
    clock.advance(ms(129));
    assert!(!running.is_finished());
    clock.advance(ms(1));
    let Err(ControllerError::NotSynced { store, error }) = running.join().unwrap() else { panic!("it ran") };
    let missing = vec!["nodes".to_owned(), "jobs".to_owned()];
    let expected = WaitError::Timeout { missing, last_error: Some("refused".into()) };
    assert_eq!((store.as_str(), error), ("nodes", expected));
    assert!(!q.add(1), "nobody will ever work on this queue");
}

#[test]
fn stop_is_heard_while_waiting_for_stores() {
    let clock = ManualClock::new();
    let (q, stop) = (queue(&clock), Stop::new());
    let controller = Controller::builder(q.clone(), |_: &u32, _: &Context| Ok(Action::Done))
        .wait_for([Store::new("pods", &clock) as Arc<dyn Synced>])
        .build();
    let running = start(&clock, controller, &stop);
    q.add(1);
    clock.advance(ms(1050));
    stop.stop();
    clock.advance(ms(50));
    assert!(running.is_finished());
    assert_eq!(running.join().unwrap().unwrap(), StopReport { dropped: 1, ..StopReport::default() });
}

/// The hook and the limiter are user code as the reconcile is: their panics cost neither the key nor a worker.
#[test]
fn p9_panics_of_hook_limiter_and_error_cost_no_key() {
    struct Broken;
    impl Limiter<u32> for Broken {
        fn when(&self, _: &u32) -> Duration {
            panic!("when is broken")
        }
        fn forget(&self, _: &u32) {
            panic!("forget is broken")
        }
        fn requeues(&self, _: &u32) -> u32 {
            0
        }
    }
    #[derive(Debug, thiserror::Error)]
    #[error("falls apart")]
    struct FallsApart;
    impl Drop for FallsApart {
        fn drop(&mut self) {
            panic!("the error's drop is broken")
        }
    }
    let clock = ManualClock::new();
    let (stop, log, first) = (Stop::new(), Log::default(), AtomicBool::new(true));
    let q = WorkQueue::builder().clock(&clock).limiter(Broken).build();
    let reconcile = logged(&log, move |_, _| if first.swap(false, SeqCst) { Err(FallsApart.into()) } else { Ok(Action::Done) });
    let controller = Controller::builder(q.clone(), reconcile)
        .observe(|event| assert!(matches!(event, ControllerEvent::Started { .. }), "the hook is broken"))
        .build();
    let running = start(&clock, controller, &stop);
    q.add(1);
    clock.advance(ms(5000));
    assert_eq!(*log.lock(), [(1, 0, 1), (1, 1000, 1)]);
    assert_eq!(end(running, &stop).reconciles, 2);
    let expected = ["the hook is broken", "when is broken", "the error's drop", "the hook is broken", "forget is broken"];
    assert_contained(&clock, &expected);
}

#[test]
fn p10_a_reconcile_may_use_the_queue_but_not_wait_for_itself() {
    let clock = ManualClock::new();
    let (q, stop, log) = (queue(&clock), Stop::new(), Log::default());
    let (inner, first, refused) = (q.clone(), AtomicBool::new(true), Arc::new(Mutex::new(None)));
    let outcome = refused.clone();
    let reconcile = logged(&log, move |_, _| {
        if first.swap(false, SeqCst) {
            *outcome.lock() = inner.drain(ms(10)).err();
            inner.forget(&1);
            assert!(inner.add(1) && inner.add(2) && inner.add_after(3, ms(7)));
            assert_eq!((inner.len(), inner.requeues(&1)), (1, 0));
        }
        Ok(Action::Done)
    });
    let running = start(&clock, Controller::builder(q.clone(), reconcile).build(), &stop);
    q.add(1);
    clock.advance(ms(10));
    assert_eq!(*refused.lock(), Some(WaitError::WouldDeadlock));
    assert_eq!(*log.lock(), [(1, 0, 1), (2, 0, 1), (1, 0, 1), (3, 7, 1)]);
    end(running, &stop);
}

#[test]
fn a_reconcile_sees_the_stop_and_can_stop_its_own_controller() {
    let clock = ManualClock::new();
    let (q, stop) = (queue(&clock), Stop::new());
    let controller = Controller::builder(q.clone(), |key: &u32, cx: &Context| {
        if *key == 2 {
            cx.stop().stop();
        } else {
            cx.stop().wait(Deadline::never());
        }
        Ok(Action::Done)
    })
    .workers(2)
    .build();
    let running = start(&clock, controller, &stop);
    q.add(1);
    clock.settle();
    q.add(2);
    assert_eq!(running.join().unwrap().unwrap().reconciles, 2);
    assert!(stop.is_stopped());
}
