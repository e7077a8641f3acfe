//! The promises against user code that does its worst: panics where values are dropped, doors used from odd places,
//! threads that the system does not give.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests use the user's types")]

mod common;

use common::{Told, World, pod, texts};
use informer::{
    flow::{Event, Meta},
    informer::{
        AddHandlerError, Engine, Handler, HandlerOptions, InformerEvent, InformerHandle, InformerState, PanicPolicy,
        Registration, RunError, SharedInformer,
    },
    memory::{Pod, Server, Source},
    reflector::ReflectorEvent,
    source::{ListEnd, ListParams, ListerWatcher, SourceError, Undecodable, WatchParams, WatchStream},
    store::StoreReader,
    sync::{Deadline, Gate, ManualClock, Stop, Synced, WaitError, Wake, call_out::assert_contained},
};
use std::{
    cell::RefCell,
    ops::ControlFlow,
    sync::{Arc, Mutex},
    time::Duration,
};

const SOON: Duration = Duration::from_secs(1);

/// Panics when dropped.
struct Bomb(&'static str);

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("{}", self.0);
    }
}

/// A source that panics when dropped.
struct Mined(Source<Pod>, #[allow(dead_code)] Bomb);

impl ListerWatcher for Mined {
    type Object = Pod;

    fn meta<'a>(&self, object: &'a Pod) -> Meta<'a> {
        self.0.meta(object)
    }

    fn list(
        &self,
        stop: &Stop,
        params: &ListParams,
        sink: &mut dyn FnMut(Result<Pod, Undecodable>) -> ControlFlow<()>,
    ) -> Result<ListEnd, SourceError> {
        self.0.list(stop, params, sink)
    }

    fn watch(&self, stop: &Stop, params: &WatchParams) -> Result<Box<dyn WatchStream<Pod>>, SourceError> {
        self.0.watch(stop, params)
    }
}

/// A handler that panics when dropped.
struct MinedHandler(#[allow(dead_code)] Bomb);

impl<T> Handler<T> for MinedHandler {
    fn on_event(&mut self, _: &Event<T>) {}
}

with_each_engine! {
    fn p7_a_handler_may_wait_for_any_registration_but_its_own(engine) {
        let mut w = World::new(engine);
        w.server.create(pod("a")).unwrap();
        // Both handlers are the first of their informers.
        let other = SharedInformer::builder(w.server.source::<Pod>()).engine(engine).clock(&w.clock).build().unwrap();
        let (_told, awaited) = w.told();
        let told = Told::default();
        let t = told.clone();
        let _waiting = other.on(move |_| t.push(format!("{:?}", awaited.wait_synced(Deadline::never())))).unwrap();
        let handle = other.spawn(&w.stop).unwrap();
        w.start();
        assert_eq!(told.take(), texts(&["Ok(())"]));
        w.end().unwrap();
        handle.join().unwrap();
    }

    fn p8_joining_an_informer_from_its_own_callback_is_refused(engine) {
        let w = World::new(engine);
        w.server.create(pod("a")).unwrap();
        let (told, slot) = (Told::default(), Arc::new(Mutex::new(None::<InformerHandle>)));
        let (t, s) = (told.clone(), slot.clone());
        let _registration = w.informer.on(move |_| {
            let handle = s.lock().unwrap().take().unwrap();
            t.push(handle.join().unwrap_err().to_string());
        }).unwrap();
        *slot.lock().unwrap() = Some(w.informer.spawn(&w.stop).unwrap());
        w.settle();
        let told = told.take();
        assert!(told.len() == 1 && told[0].contains("deadlock"), "{told:?}");
        assert_eq!(w.informer.state(), InformerState::Stopped, "the handle was dropped");
    }

    fn p8_an_informer_that_is_shut_down_before_it_runs_is_over(engine) {
        let w = World::new(engine);
        let (told, registration) = w.told();
        w.informer.shutdown(Duration::ZERO).unwrap();
        assert_eq!(w.informer.state(), InformerState::Stopped);
        assert!(w.clock.threads().is_empty(), "{:?}", w.clock.threads());
        assert_eq!(w.informer.wait_synced(Deadline::never()), Err(WaitError::Stopped));
        assert_eq!(registration.wait_synced(Deadline::never()), Err(WaitError::Stopped));
        assert!(matches!(w.informer.on(|_| ()), Err(AddHandlerError::Stopped)));
        assert!(matches!(w.informer.run(&Stop::new()), Err(RunError::AlreadyRan)));
        assert!(w.server.requests().is_empty() && told.len() == 0);
        w.informer.shutdown(Duration::ZERO).unwrap();
    }

    fn p8_a_thread_handle_dropped_on_the_informers_own_thread_does_not_wait_for_itself(engine) {
        let clock = ManualClock::new();
        let server = Server::new(&clock);
        let slot = Arc::new(Mutex::new(None::<InformerHandle>));
        let kept = slot.clone();
        let builder = SharedInformer::builder(server.source::<Pod>()).engine(engine).clock(&clock);
        let informer = builder.observe(move |_| drop(kept.lock())).build().unwrap();
        *slot.lock().unwrap() = Some(informer.spawn(&Stop::new()).unwrap());
        drop(slot);
        clock.settle();
        // The last handle: the informer ends, and drops its hook, and with it the handle, on its own thread.
        drop(informer);
        clock.settle();
        assert!(clock.threads().is_empty(), "{:?}", clock.threads());
    }

    fn p9_a_handler_that_is_removed_for_its_panic_is_gone(engine) {
        let mut w = World::new(engine);
        let (told, registration) = w.panicking(PanicPolicy::Remove);
        registration.detach();
        w.start();
        assert_eq!(w.informer.handlers(), 1);
        w.server.create(pod("bad")).unwrap();
        w.settle();
        assert_eq!((w.informer.handlers(), told.len()), (0, 0));
        w.contained(&["cannot bear ns/bad"]);
    }

    fn p9_a_handler_that_ends_the_informer_by_its_panic_is_told_of_nothing_more(engine) {
        // The thread that would take the handler off does not get to it.
        let (gate, busy) = (Gate::new(), Gate::new());
        let b = busy.clone();
        let mut w = World::with(engine, |builder| builder.observe(move |e| {
            if matches!(e, InformerEvent::Reflector(ReflectorEvent::Watching { .. })) {
                b.wait();
            }
        }));
        for name in ["a", "bad", "c", "d"] {
            w.server.create(pod(name)).unwrap();
        }
        let g = gate.clone();
        let told = Told::default();
        let t = told.clone();
        let handler = move |e: &Event<Pod>| {
            g.wait();
            t.push(e.key().to_string());
            assert!(e.key().name() != "bad", "cannot bear {}", e.key());
        };
        let options = HandlerOptions { panic: PanicPolicy::Abort, ..HandlerOptions::default() };
        let _registration = w.informer.add_handler_with(handler, options).unwrap();
        w.start();
        gate.open();
        w.settle();
        busy.open();
        // The four come in any order.
        assert_eq!(told.take().last(), Some(&"ns/bad".to_owned()));
        assert!(matches!(w.handle.take().unwrap().join(), Err(RunError::HandlerPanicked { .. })));
        w.contained(&["cannot bear ns/bad"]);
    }

    fn p9_what_the_informer_was_built_of_may_panic_while_dropped(engine) {
        let clock = ManualClock::new();
        let server = Server::new(&clock);
        server.create(pod("a")).unwrap();
        let (in_transform, in_index, in_hook) = (Bomb("transform dropped"), Bomb("index dropped"), Bomb("hook dropped"));
        let source = Mined(server.source(), Bomb("source dropped"));
        let builder = SharedInformer::builder_with(source, move |p: Pod| {
            let _ = &in_transform;
            Ok::<_, String>(p)
        });
        let builder = builder.index("node", move |p: &Pod, emit: &mut dyn FnMut(String)| {
            let _ = &in_index;
            emit(p.node.clone());
        });
        let informer = builder.engine(engine).clock(&clock).observe(move |_| { let _ = &in_hook; }).build().unwrap();
        informer.add_handler(MinedHandler(Bomb("handler dropped"))).unwrap().detach();
        let stop = Stop::new();
        let in_stop = Bomb("stop callback dropped");
        let guard = stop.on_stop(move || { let _ = &in_stop; });
        let handle = informer.spawn(&stop).unwrap();
        clock.settle();
        // The informer's thread has the last handle to everything.
        drop((informer, stop));
        handle.join().unwrap();
        drop(guard);
        let expected = ["transform dropped", "index dropped", "hook dropped", "source dropped", "handler dropped", "stop callback dropped"];
        assert_contained(&clock, &expected);
    }

    fn p11_what_an_index_function_holds_goes_with_the_informer_even_a_reader_of_its_own_store(engine) {
        let (held, slot) = (Arc::new(()), Arc::new(Mutex::new(None)));
        let (left, own) = (Arc::downgrade(&held), slot.clone());
        let mut w = World::with(engine, |b| b.index("held", move |_: &Pod, emit: &mut dyn FnMut(usize)| {
            let _ = (&held, own.lock().unwrap().as_ref().map(StoreReader::<Pod>::len));
            emit(1);
        }));
        w.server.create(pod("a")).unwrap();
        *slot.lock().unwrap() = Some(w.informer.store());
        drop(slot);
        w.start();
        let reader = w.informer.store();
        w.end().unwrap();
        drop(w);
        assert!(left.upgrade().is_none());
        assert_eq!(reader.by_index(&reader.index::<usize>("held").unwrap(), &1).unwrap().len(), 1);
    }

    fn p9_an_error_of_the_source_may_panic_while_dropped(engine) {
        #[derive(Debug)]
        struct Mine(#[allow(dead_code)] Option<i32>);
        impl std::fmt::Display for Mine {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("mine")
            }
        }
        impl std::error::Error for Mine {}
        impl Drop for Mine {
            fn drop(&mut self) {
                panic!("error dropped");
            }
        }
        /// Fails when it is stopped.
        struct Failing;
        impl ListerWatcher for Failing {
            type Object = Pod;
            fn meta<'a>(&self, object: &'a Pod) -> Meta<'a> {
                Meta { namespace: &object.namespace, name: &object.name, ..Meta::default() }
            }
            fn list(
                &self,
                stop: &Stop,
                _: &ListParams,
                _: &mut dyn FnMut(Result<Pod, Undecodable>) -> ControlFlow<()>,
            ) -> Result<ListEnd, SourceError> {
                stop.wait(Deadline::never());
                Err(SourceError::caused_by(informer::source::SourceErrorKind::Other, Mine(None)))
            }
            fn watch(&self, _: &Stop, _: &WatchParams) -> Result<Box<dyn WatchStream<Pod>>, SourceError> {
                unreachable!()
            }
        }
        let clock = ManualClock::new();
        let server = Server::new(&clock);
        let mut w = World::over(engine, clock, server, Failing, |b| b);
        w.start();
        w.end().unwrap();
        w.contained(&["error dropped"]);
    }
}

#[test]
fn p9_a_handlers_name_may_be_any_text() {
    let w = World::new(Engine::Merged);
    for name in ["", "\0", "a\0b", "ünïcödé näme", "日本語日本語日本語", "\u{1F980}\u{1F980}\u{1F980}\u{1F980}\u{1F980}", "a\nb"]
    {
        let options = HandlerOptions { name: Some(name.into()), ..HandlerOptions::default() };
        let registration = w.informer.add_handler_with(|_: &Event<Pod>| (), options).unwrap();
        assert_eq!(Synced::name(&registration), name);
    }
}

#[test]
fn p9_what_waits_for_a_stop_may_panic_while_dropped() {
    let clock = ManualClock::new();
    let stop = Stop::with_clock(&clock);
    let (a, b) = (Bomb("on_stop dropped"), Bomb("on_wake dropped"));
    let wake = Wake::new(&stop, &clock);
    let guards = (
        stop.on_stop(move || drop(a)),
        wake.on_wake(move || {
            let _ = &b;
        }),
    );
    drop((wake, stop));
    drop(guards);
    assert_contained(&clock, &["on_stop dropped", "on_wake dropped"]);
}

#[test]
fn p8_a_thread_local_may_hold_the_last_handles() {
    thread_local! {
        static KEPT: RefCell<Option<(SharedInformer<Pod>, InformerHandle)>> = const { RefCell::new(None) };
    }
    let clock = informer::sync::Clock::real();
    let server = Server::new(&clock);
    let informer = SharedInformer::builder(server.source::<Pod>()).clock(&clock).build().unwrap();
    let handle = informer.spawn(&Stop::new()).unwrap();
    let thread = std::thread::spawn(move || {
        KEPT.with(|kept| *kept.borrow_mut() = None);
        // What this crate keeps of the thread is made later, and so goes first.
        informer.wait_synced(Deadline::never()).unwrap();
        KEPT.with(|kept| *kept.borrow_mut() = Some((informer, handle)));
    });
    thread.join().unwrap();
    assert!(clock.threads().is_empty(), "{:?}", clock.threads());
}

#[test]
fn p8_a_thread_local_of_the_informers_own_thread_may_hold_its_handle() {
    thread_local! {
        static KEPT: RefCell<Option<InformerHandle>> = const { RefCell::new(None) };
    }
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    let (slot, gate) = (Arc::new(Mutex::new(None::<InformerHandle>)), Gate::new());
    let (s, g) = (slot.clone(), gate.clone());
    let builder = SharedInformer::builder(server.source::<Pod>()).clock(&clock);
    let hook = move |_: &InformerEvent<'_>| {
        g.wait();
        if let Some(handle) = s.lock().unwrap().take() {
            KEPT.with(|kept| *kept.borrow_mut() = Some(handle));
        }
    };
    let informer = builder.observe(hook).build().unwrap();
    *slot.lock().unwrap() = Some(informer.spawn(&Stop::new()).unwrap());
    gate.open();
    clock.settle();
    informer.shutdown(Deadline::never()).unwrap();
    assert!(slot.lock().unwrap().is_none());
    clock.settle();
}

#[test]
fn p8_a_thread_local_of_a_handlers_thread_may_add_handlers_while_it_is_dropped() {
    struct Adds(SharedInformer<Pod>, Told, Gate);
    impl Drop for Adds {
        fn drop(&mut self) {
            self.1.push(format!("{:?}", self.0.on(|_| ()).map(Registration::detach)));
            self.2.open();
        }
    }
    thread_local! {
        static KEPT: RefCell<Option<Adds>> = const { RefCell::new(None) };
    }
    let mut w = World::new(Engine::Merged);
    w.server.create(pod("a")).unwrap();
    let (told, done) = (Told::default(), Gate::new());
    let (informer, t, d) = (w.informer.clone(), told.clone(), done.clone());
    let keep = move |_: &Event<Pod>| KEPT.with(|kept| *kept.borrow_mut() = Some(Adds(informer.clone(), t.clone(), d.clone())));
    let registration = w.informer.on(keep).unwrap();
    w.start();
    registration.remove();
    done.wait();
    assert_eq!(told.take(), texts(&["Ok(())"]));
}

/// Runs the test `name` of this program in a process that gets no further thread.
fn without_threads(name: &str) -> bool {
    const MARK: &str = "INFORMER_TEST_WITHOUT_THREADS";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    // No machine has room for a stack of this size, so each attempt to start a thread fails.
    command
        .args(["--exact", name, "--test-threads=1", "--nocapture"])
        .env(MARK, "1")
        .env("RUST_MIN_STACK", (1_u64 << 60).to_string());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    false
}

#[test]
fn p8_without_threads_every_door_says_so_and_what_could_be_done_is_done() {
    if !without_threads("p8_without_threads_every_door_says_so_and_what_could_be_done_is_done") {
        return;
    }
    let w = World::new(Engine::Merged);
    let refused = w.informer.add_handler(MinedHandler(Bomb("handler dropped")));
    assert!(matches!(refused, Err(AddHandlerError::Spawn(_))), "{refused:?}");
    w.contained(&["handler dropped"]);
    assert_eq!(w.informer.handlers(), 0);
    w.stop.stop();
    w.informer.run(&w.stop).unwrap();

    let w = World::new(Engine::Merged);
    assert!(matches!(w.informer.spawn(&w.stop), Err(RunError::Spawn(_))));
    assert_eq!(w.informer.state(), InformerState::Stopped);
    let w = World::new(Engine::Decoupled);
    assert!(matches!(w.informer.run(&w.stop), Err(RunError::Spawn(_))));
    assert_eq!(w.informer.state(), InformerState::Stopped);
    assert_eq!(w.informer.wait_synced(SOON.into()), Err(WaitError::Stopped));
}
