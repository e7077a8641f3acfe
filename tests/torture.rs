//! Torture: real threads on the real clock, many rounds, every door at once. No assertion is about time; a guard of a
//! minute turns a deadlock into a failure. `TORTURE=n` multiplies the rounds.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests use the user's types")]

use informer::{
    flow::{Change, Deleted, Delta, DeltaSink, Event, Meta, Object, ObjectKey, SinkError},
    informer::{
        Engine, Handler, HandlerOptions, InformerBuilder, InformerState, PanicPolicy, Registration, Removed, SharedInformer,
    },
    queue::RealFifo,
    reflector::Backoff,
    source::{
        ListEnd, ListParams, ListerWatcher, Next, SourceError, SourceErrorKind, Undecodable, WatchEvent, WatchParams, WatchStream,
    },
    store::StoreReader,
    sync::{Clock, Deadline, Stop, Synced, WaitError, Wake, call_out::assert_contained},
};
use std::{
    cmp::Ordering as Order,
    collections::{BTreeMap, HashMap, VecDeque},
    ops::ControlFlow,
    sync::{
        Arc, Mutex, Once,
        atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

const DEADLOCK: Duration = Duration::from_secs(60);

fn rounds(n: usize) -> usize {
    n * std::env::var("TORTURE").map_or(1, |f| f.parse().expect("TORTURE is a number"))
}

/// Counts what a body got done, so that a slow machine is told from a deadlock.
#[derive(Clone, Default)]
struct Pulse(Arc<AtomicUsize>);

impl Pulse {
    fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs `body` on a thread of its own; fails when it neither comes back nor gets anything done for a while.
#[track_caller]
fn guarded(body: impl FnOnce(&Pulse) + Send + 'static) {
    let pulse = Pulse::default();
    let (send, receive) = mpsc::channel::<()>();
    let beats = pulse.clone();
    let thread = thread::spawn(move || {
        let _send = send;
        body(&beats);
    });
    let mut seen = 0;
    while let Err(mpsc::RecvTimeoutError::Timeout) = receive.recv_timeout(DEADLOCK) {
        let now = pulse.0.load(Ordering::Relaxed);
        assert_ne!(now, seen, "deadlock: nothing was done after step {seen}");
        seen = now;
    }
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Threads that begin each round together.
#[derive(Default)]
struct Meeting(AtomicUsize);

impl Meeting {
    fn meet(&self, round: usize, of: usize) {
        self.0.fetch_add(1, Ordering::AcqRel);
        while self.0.load(Ordering::Acquire) < (round + 1) * of {
            thread::yield_now();
        }
    }
}

fn spin(n: usize) {
    for _ in 0..n {
        std::hint::spin_loop();
    }
}

/// As little chance as repeats.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }
}

// ---- a source that can be stormed --------------------------------------------------------------------------------------

/// What the source delivers.
#[derive(Clone)]
struct Raw {
    name: u32,
    version: u64,
    key: String,
    text: String,
}

impl Raw {
    fn new(name: u32, version: u64) -> Self {
        Self { name, version, key: format!("o{name}"), text: version.to_string() }
    }
}

/// What is stored. All that are alive are counted.
#[derive(Debug)]
struct Value {
    name: u32,
    version: u64,
    alive: Arc<AtomicIsize>,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Objects, a log of their changes, and who waits for more of them.
#[derive(Clone, Default)]
struct Feed(Arc<Mutex<Log>>);

#[derive(Default)]
struct Log {
    version: u64,
    objects: BTreeMap<u32, u64>,
    /// Changes after `start`; true for deletions.
    changes: Vec<(u32, u64, bool)>,
    start: u64,
    /// Streams of another epoch are broken.
    epoch: u64,
    wakes: Vec<Wake>,
}

impl Feed {
    /// Changes an object: sets it, or deletes it.
    fn change(&self, name: u32, delete: bool) {
        let wakes = {
            let mut log = self.0.lock().unwrap();
            if delete && log.objects.remove(&name).is_none() {
                return;
            }
            log.version += 1;
            let version = log.version;
            if !delete {
                log.objects.insert(name, version);
            }
            log.changes.push((name, version, delete));
            std::mem::take(&mut log.wakes)
        };
        wakes.iter().for_each(Wake::poke);
    }

    /// Breaks every stream; forgets the changes too when asked to, so that a list must follow.
    fn cut(&self, forget: bool) {
        let wakes = {
            let mut log = self.0.lock().unwrap();
            log.epoch += 1;
            if forget {
                log.changes.clear();
                log.start = log.version;
            }
            std::mem::take(&mut log.wakes)
        };
        wakes.iter().for_each(Wake::poke);
    }

    fn version(&self) -> String {
        self.0.lock().unwrap().version.to_string()
    }
}

impl ListerWatcher for Feed {
    type Object = Raw;

    fn meta<'a>(&self, o: &'a Raw) -> Meta<'a> {
        Meta { namespace: "", name: &o.key, version: &o.text, uid: "" }
    }

    fn list(
        &self,
        _: &Stop,
        _: &ListParams,
        sink: &mut dyn FnMut(Result<Raw, Undecodable>) -> ControlFlow<()>,
    ) -> Result<ListEnd, SourceError> {
        let (all, version) = {
            let log = self.0.lock().unwrap();
            (log.objects.clone(), log.version)
        };
        for (name, version) in all {
            if sink(Ok(Raw::new(name, version))).is_break() {
                break;
            }
        }
        Ok(ListEnd { version: version.to_string(), continue_token: None })
    }

    fn watch(&self, _: &Stop, params: &WatchParams) -> Result<Box<dyn WatchStream<Raw>>, SourceError> {
        let log = self.0.lock().unwrap();
        let from: u64 = params.from.parse().unwrap();
        if from < log.start {
            return Err(SourceErrorKind::Expired.into());
        }
        Ok(Box::new(Stream { feed: self.clone(), at: (from - log.start) as usize, epoch: log.epoch }))
    }

    fn compare(&self, a: &str, b: &str) -> Option<Order> {
        informer::source::compare_decimal(a, b)
    }
}

struct Stream {
    feed: Feed,
    at: usize,
    epoch: u64,
}

impl Stream {
    fn look(&mut self, waits: Option<&Wake>) -> Option<Next<Raw>> {
        let mut log = self.feed.0.lock().unwrap();
        if log.epoch != self.epoch {
            return Some(Next::Failed(SourceErrorKind::Transport.into()));
        }
        let Some((name, version, deleted)) = log.changes.get(self.at).copied() else {
            log.wakes.extend(waits.cloned());
            return None;
        };
        self.at += 1;
        let raw = Raw::new(name, version);
        Some(Next::Event(if deleted { WatchEvent::Deleted(raw) } else { WatchEvent::Modified(raw) }))
    }
}

impl WatchStream<Raw> for Stream {
    fn next(&mut self, wake: &Wake, deadline: Deadline) -> Next<Raw> {
        let mut next = None;
        match wake.wait_until(deadline, || {
            next = self.look(Some(wake));
            next.is_some()
        }) {
            None => next.expect("it was ready"),
            Some(informer::sync::Woken::Stopped) => Next::Stopped,
            Some(informer::sync::Woken::Nudged) => Next::Woken,
            Some(informer::sync::Woken::Deadline) => Next::Deadline,
        }
    }

    fn ready(&mut self) -> Option<Next<Raw>> {
        self.look(None)
    }
}

type Builder = InformerBuilder<Value>;
type Informer = SharedInformer<Value>;

/// An informer over the feed that comes back quickly, with an index.
fn informer(feed: &Feed, clock: &Clock, engine: Engine, alive: &Arc<AtomicIsize>) -> Builder {
    let alive = alive.clone();
    let backoff = Backoff { base: Duration::from_micros(50), cap: Duration::from_micros(200), ..Backoff::default() };
    let transform = move |raw: Raw| {
        alive.fetch_add(1, Ordering::Relaxed);
        Ok::<_, String>(Value { name: raw.name, version: raw.version, alive: alive.clone() })
    };
    SharedInformer::builder_with(feed.clone(), transform)
        .index("parity", |v: &Value, emit: &mut dyn FnMut(u64)| emit(v.version % 2))
        .engine(engine)
        .clock(clock)
        .backoff(backoff)
        .relist_spread(Duration::ZERO)
}

// ---- what every handler must see ---------------------------------------------------------------------------------------

/// What went wrong, from all threads.
#[derive(Clone, Default)]
struct Wrong(Arc<Mutex<Vec<String>>>);

impl Wrong {
    fn add(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    #[track_caller]
    fn none(&self) {
        let all = self.0.lock().unwrap();
        assert!(all.is_empty(), "{} wrong, first: {:#?}", all.len(), &all[..all.len().min(5)]);
    }
}

/// Follows the stream of one registration.
struct Checker {
    store: StoreReader<Value>,
    last: HashMap<ObjectKey, Object<Value>>,
    wrong: Wrong,
    /// Nothing may be called any more.
    over: Arc<AtomicBool>,
    /// What it was given last, for whoever looks when it is idle.
    state: Arc<Mutex<HashMap<ObjectKey, Object<Value>>>>,
}

impl Checker {
    fn new(informer: &Informer, wrong: &Wrong) -> Self {
        Self { store: informer.store(), last: HashMap::new(), wrong: wrong.clone(), over: Arc::default(), state: Arc::default() }
    }

    fn check(&mut self, e: &Event<Value>) -> Result<(), String> {
        if self.over.load(Ordering::Acquire) {
            return Err("called after the end".into());
        }
        let key = e.key();
        let told = e.object().ok_or("an event without an object")?;
        if key.name() != format!("o{}", told.name) || *Object::version(told) != *told.version.to_string() {
            return Err("metadata of another object".into());
        }
        let snapshot = self.store.snapshot();
        let reached: u64 = snapshot.version().parse().map_err(|_| "no version")?;
        let newer = match (&e.change, snapshot.get(key)) {
            (Change::Deleted(_), stored) => stored.is_none_or(|s| s.version > told.version),
            (_, Some(stored)) => stored.version >= told.version,
            (_, None) => reached > told.version,
        };
        if !newer {
            return Err(format!("{key}@{} is told before it is stored", told.version));
        }
        let last = self.last.get(key);
        match &e.change {
            Change::Added(new) => {
                if let Some(last) = last {
                    return Err(format!("{key}@{} is added, and was there at {}", new.version, last.version));
                }
                self.last.insert(key.clone(), new.clone());
            }
            Change::Updated { old, new } => {
                if !last.is_some_and(|last| Object::ptr_eq(last, old)) || new.version <= old.version {
                    let last = last.map(|l| l.version);
                    return Err(format!("{key}@{}>{} after {last:?}", old.version, new.version));
                }
                self.last.insert(key.clone(), new.clone());
            }
            Change::Deleted(how) => {
                let Some(last) = last else { return Err(format!("{key} is deleted, and was not there")) };
                if let Deleted::Missed { last_known, .. } = how
                    && !last_known.as_ref().is_some_and(|known| Object::ptr_eq(known, last))
                {
                    return Err(format!("{key} was missed with another last state"));
                }
                self.last.remove(key);
            }
        }
        Ok(())
    }
}

impl Handler<Value> for Checker {
    fn on_event(&mut self, e: &Event<Value>) {
        if let Err(what) = self.check(e) {
            self.wrong.add(what);
        }
    }

    fn on_batch(&mut self, batch: &mut informer::informer::Batch<'_, Value>) {
        if self.over.load(Ordering::Acquire) {
            self.wrong.add("begun after the end");
        }
        while let Some(e) = batch.next() {
            self.on_event(e);
        }
        if self.over.load(Ordering::Acquire) {
            self.wrong.add("still running after the end");
        }
        self.state.lock().unwrap().clone_from(&self.last);
    }
}

/// Looks at the store as a reader does.
fn read(store: &StoreReader<Value>, wrong: &Wrong) {
    let snapshot = store.snapshot();
    let count = |parity: u64| {
        let index = store.index::<u64>("parity").unwrap();
        let found: Vec<_> = snapshot.by_index(&index, &parity).unwrap().collect();
        if found.iter().any(|o| o.version % 2 != parity) {
            wrong.add("an object under a value it does not have");
        }
        found.len()
    };
    if count(0) + count(1) != snapshot.len() || snapshot.iter().count() != snapshot.len() {
        wrong.add("items and index of one snapshot differ");
    }
}

/// Waits until the informer lacks a few changes at most, or all of them would reach it as one list.
fn not_far_behind(feed: &Feed, reached: impl Fn() -> String) {
    let enough = feed.0.lock().unwrap().version.saturating_sub(40);
    while reached().parse::<u64>().unwrap_or(0) < enough {
        thread::yield_now();
    }
}

/// Waits until the informer has everything and this handler was told.
fn caught_up(feed: &Feed, informer: &Informer, registration: &Registration<Value>) {
    while informer.store().version() != feed.version() || !registration.is_idle() {
        thread::yield_now();
    }
}

fn each_engine(body: impl Fn(Engine)) {
    body(Engine::Merged);
    body(Engine::Decoupled);
}

// ---- the storms --------------------------------------------------------------------------------------------------------

/// P1, P2, P4, P5 while everything moves: writers, broken streams, relists, readers, handlers that come and go.
#[test]
fn p2_no_storm_breaks_the_chain_of_a_handler() {
    guarded(|pulse| {
        each_engine(|engine| {
            let (clock, feed, alive, wrong) = (Clock::real(), Feed::default(), Arc::default(), Wrong::default());
            let informer = informer(&feed, &clock, engine, &alive).build().unwrap();
            let first = Checker::new(&informer, &wrong);
            let seen = first.state.clone();
            let first = informer.add_handler(first).unwrap();
            let stop = Stop::new();
            let handle = informer.spawn(&stop).unwrap();
            let rounds = rounds(4000);
            let mut threads = Vec::new();
            for seed in 0..2 {
                let (feed, store, pulse) = (feed.clone(), informer.store(), pulse.clone());
                threads.push(thread::spawn(move || {
                    let mut dice = Dice::new(seed + 1);
                    for round in 0..rounds {
                        feed.change(dice.below(50) as u32, dice.below(4) == 0);
                        match dice.below(200) {
                            0 => feed.cut(true),
                            1 => feed.cut(false),
                            2..20 => thread::yield_now(),
                            _ => {}
                        }
                        if round % 16 == 0 {
                            pulse.beat();
                            not_far_behind(&feed, || store.version());
                        }
                    }
                }));
            }
            for seed in 0..2 {
                let (informer, wrong, pulse) = (informer.clone(), wrong.clone(), pulse.clone());
                threads.push(thread::spawn(move || {
                    let mut dice = Dice::new(seed + 10);
                    let mut kept = Vec::new();
                    for _ in 0..rounds / 40 {
                        pulse.beat();
                        read(&informer.store(), &wrong);
                        match dice.below(4) {
                            0 | 1 => {
                                let checker = Checker::new(&informer, &wrong);
                                let over = checker.over.clone();
                                kept.push((informer.add_handler(checker).unwrap(), over));
                            }
                            2 if !kept.is_empty() => {
                                let (registration, over) = kept.swap_remove(dice.below(kept.len()));
                                if registration.remove() == Removed::Quiet || registration.shutdown(DEADLOCK).is_ok() {
                                    over.store(true, Ordering::Release);
                                }
                            }
                            3 if !kept.is_empty() => drop(kept.swap_remove(0)),
                            _ => thread::yield_now(),
                        }
                    }
                }));
            }
            threads.into_iter().for_each(|t| t.join().unwrap());
            caught_up(&feed, &informer, &first);
            let stored: BTreeMap<_, _> = informer.store().snapshot().iter().map(|v| (v.name, v.version)).collect();
            assert_eq!(stored, feed.0.lock().unwrap().objects, "the store is not what the source has");
            let told: BTreeMap<_, _> = seen.lock().unwrap().values().map(|v| (v.name, v.version)).collect();
            assert_eq!(told, stored, "the handler was not told of what is stored");
            stop.stop();
            handle.join().unwrap();
            wrong.none();
            assert!(clock.threads().is_empty());
            assert_contained(&clock, &[]);
            drop((first, informer, seen));
            assert_eq!(alive.load(Ordering::Relaxed), 0, "values are left");
        });
    });
}

/// Runs `body` while a thread changes four objects, as fast as the informer publishes each change.
fn while_it_changes(feed: &Feed, informer: &Informer, body: impl FnOnce()) {
    let end = Arc::new(AtomicBool::new(false));
    let (feed, store, over) = (feed.clone(), informer.store(), end.clone());
    let writer = thread::spawn(move || {
        let mut dice = Dice::new(3);
        while !over.load(Ordering::Acquire) {
            feed.change(dice.below(4) as u32, dice.below(8) == 0);
            if dice.below(3) > 0 {
                while store.version() != feed.version() && !over.load(Ordering::Acquire) {
                    thread::yield_now();
                }
            }
        }
    });
    body();
    end.store(true, Ordering::Release);
    writer.join().unwrap();
}

/// Join: a newcomer gets every change exactly once, by its first state or by its ring.
#[test]
fn p2_no_change_is_lost_or_told_twice_when_a_handler_joins() {
    guarded(|pulse| {
        each_engine(|engine| {
            let (clock, feed, alive, wrong) = (Clock::real(), Feed::default(), Arc::default(), Wrong::default());
            let informer = informer(&feed, &clock, engine, &alive).build().unwrap();
            let handle = informer.spawn(&Stop::new()).unwrap();
            while_it_changes(&feed, &informer, || {
                let mut alive = VecDeque::new();
                for _ in 0..rounds(2000) {
                    pulse.beat();
                    alive.push_back(informer.add_handler(Checker::new(&informer, &wrong)).unwrap());
                    // By then it has been told of changes that follow its first state.
                    if alive.len() > 16 {
                        alive.pop_front();
                    }
                }
            });
            drop(handle);
            wrong.none();
        });
    });
}

/// Removal: `Quiet` means that nothing runs and nothing will, `Running` ends with `shutdown`.
#[test]
fn p8_a_quiet_removal_is_quiet() {
    guarded(|pulse| {
        each_engine(|engine| {
            let (clock, feed, alive, wrong) = (Clock::real(), Feed::default(), Arc::default(), Wrong::default());
            let informer = informer(&feed, &clock, engine, &alive).build().unwrap();
            let handle = informer.spawn(&Stop::new()).unwrap();
            let (mut quiet, mut dice) = (0, Dice::new(5));
            while_it_changes(&feed, &informer, || {
                for _ in 0..rounds(600) {
                    pulse.beat();
                    let checker = Checker::new(&informer, &wrong);
                    let over = checker.over.clone();
                    let registration = informer.add_handler(checker).unwrap();
                    if dice.below(3) > 0 {
                        registration.wait_synced(Deadline::never()).unwrap();
                    }
                    spin(dice.below(3000));
                    match registration.remove() {
                        Removed::Quiet => quiet += 1,
                        Removed::Running => registration.shutdown(Deadline::never()).unwrap(),
                    }
                    over.store(true, Ordering::Release);
                }
            });
            assert!(quiet > 0);
            drop(handle);
            wrong.none();
            assert_eq!(informer.handlers(), 0);
        });
    });
}

/// P8: whatever ends it and whenever, all threads have ended and nothing is called when `run` has returned.
#[test]
fn p8_it_ends_from_every_moment_on() {
    guarded(|pulse| {
        each_engine(|engine| {
            let (clock, feed, alive, wrong) = (Clock::real(), Feed::default(), Arc::default(), Wrong::default());
            (0..20).for_each(|n| feed.change(n, false));
            let mut dice = Dice::new(7);
            for round in 0..rounds(300) {
                pulse.beat();
                let over = Arc::new(AtomicBool::new(false));
                let (o, w) = (over.clone(), wrong.clone());
                let called = move |what: &str| {
                    if o.load(Ordering::Acquire) {
                        w.add(format!("{what} called after the end"));
                    }
                };
                let hook = called.clone();
                let informer = informer(&feed, &clock, engine, &alive).observe(move |_| hook("hook")).build().unwrap();
                let mut registrations = Vec::new();
                for n in 0..dice.below(4) {
                    let called = called.clone();
                    let abort = round % 6 == 5 && n == 0;
                    let options = HandlerOptions { panic: PanicPolicy::Abort, ..HandlerOptions::default() };
                    let handler = move |e: &Event<Value>| {
                        called("handler");
                        assert!(!(abort && e.key().name() == "o3"), "the end");
                    };
                    registrations.push(informer.add_handler_with(handler, options).unwrap());
                }
                let stop = Stop::new();
                let handle = informer.spawn(&stop).unwrap();
                if dice.below(2) == 0 {
                    spin(dice.below(20_000));
                } else {
                    informer.wait_synced(Duration::from_micros(dice.below(500) as u64).into()).ok();
                }
                feed.change(dice.below(20) as u32, false);
                let more = informer.clone();
                let adder = thread::spawn(move || more.on(|_| ()).map(Registration::detach).is_ok());
                match round % 6 {
                    0 => {
                        stop.stop();
                        handle.join().unwrap();
                    }
                    1 => drop(handle),
                    2 => {
                        informer.shutdown(DEADLOCK).unwrap();
                        handle.join().unwrap();
                    }
                    3 => {
                        drop(registrations);
                        registrations = Vec::new();
                        stop.stop();
                        handle.join().unwrap();
                    }
                    4 => {
                        let other = stop.clone();
                        let stopper = thread::spawn(move || other.stop());
                        informer.shutdown(DEADLOCK).unwrap();
                        handle.join().unwrap();
                        stopper.join().unwrap();
                    }
                    _ if registrations.is_empty() => drop(handle),
                    _ => {
                        handle.join().unwrap_err();
                        assert_contained(&clock, &["the end"]);
                    }
                }
                over.store(true, Ordering::Release);
                adder.join().unwrap();
                assert_eq!(informer.state(), InformerState::Stopped);
                assert!(registrations.iter().all(|r| r.wait_synced(DEADLOCK.into()) != Err(WaitError::Removed)));
                assert!(clock.threads().is_empty(), "round {round}: {:?}", clock.threads());
            }
            wrong.none();
            assert_contained(&clock, &[]);
            assert_eq!(alive.load(Ordering::Relaxed), 0, "values are left");
        });
    });
}

/// Panics with a text that is kept out of the output.
fn planned(what: &str) -> ! {
    panic!("planned: {what}")
}

fn keep_planned_panics_out_of_the_output() {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let text = info.payload().downcast_ref::<String>();
            if !text.is_some_and(|text| text.starts_with("planned")) {
                before(info);
            }
        }));
    });
}

/// Panics when dropped, sometimes.
struct Shaky(Value);

impl Drop for Shaky {
    fn drop(&mut self) {
        if self.0.version % 7 == 3 {
            planned("drop");
        }
    }
}

/// P9: panics of everything at once. What others are told and what is stored in the end is the same as without.
#[test]
fn p9_no_storm_of_panics_harms_anybody_else() {
    keep_planned_panics_out_of_the_output();
    guarded(|pulse| {
        each_engine(|engine| {
            let (clock, feed, alive, wrong) = (Clock::real(), Feed::default(), Arc::new(AtomicIsize::new(0)), Wrong::default());
            let calm = Arc::new(AtomicBool::new(false));
            let shaken = |salt: u64, calm: &Arc<AtomicBool>| {
                let calm = calm.clone();
                move |version: u64| !calm.load(Ordering::Acquire) && version.wrapping_mul(salt) % 11 == 3
            };
            let (in_transform, in_index, in_hook, in_handler) =
                (shaken(3, &calm), shaken(5, &calm), calm.clone(), shaken(7, &calm));
            let counted = alive.clone();
            let transform = move |raw: Raw| {
                if in_transform(raw.version) {
                    planned("transform");
                }
                if raw.version % 13 == 5 {
                    return Err("refused");
                }
                counted.fetch_add(1, Ordering::Relaxed);
                Ok(Shaky(Value { name: raw.name, version: raw.version, alive: counted.clone() }))
            };
            let backoff = Backoff { base: Duration::from_micros(50), cap: Duration::from_micros(200), ..Backoff::default() };
            let informer = SharedInformer::builder_with(feed.clone(), transform)
                .index("version", |v: &Shaky, emit: &mut dyn FnMut(u64)| emit(v.0.version))
                .index("parity", move |v: &Shaky, emit: &mut dyn FnMut(u64)| {
                    emit(v.0.version % 2);
                    if in_index(v.0.version) {
                        planned("index");
                    }
                })
                .observe(move |_| {
                    if !in_hook.load(Ordering::Acquire) {
                        planned("hook");
                    }
                })
                .engine(engine)
                .clock(&clock)
                .backoff(backoff)
                .relist_spread(Duration::ZERO)
                .build()
                .unwrap();
            let seen = Arc::new(Mutex::new(BTreeMap::new()));
            let (s, w) = (seen.clone(), wrong.clone());
            let steady = informer.on(move |e: &Event<Shaky>| {
                let mut seen = s.lock().unwrap();
                let version = |o: &Object<Shaky>| o.0.version;
                let (key, told) = (e.key().clone(), e.object().unwrap());
                let (old, new) = match &e.change {
                    Change::Added(new) => (None, Some(version(new))),
                    Change::Updated { old, new } => (Some(version(old)), Some(version(new))),
                    // The last state of a deletion may be one that never was stored.
                    Change::Deleted(_) => (seen.get(&key).copied(), None),
                };
                let before = match new {
                    Some(new) => seen.insert(key, new),
                    None => seen.remove(&key),
                };
                if before != old {
                    w.add(format!("{}@{} {:?} after {before:?}", told.0.name, told.0.version, e.change));
                }
            });
            let steady = steady.unwrap();
            let shaky = informer.on(move |e: &Event<Shaky>| {
                if in_handler(e.object().unwrap().0.version) {
                    planned("handler");
                }
            });
            let shaky = shaky.unwrap();
            let stop = Stop::new();
            let handle = informer.spawn(&stop).unwrap();
            let mut dice = Dice::new(99);
            // Until the informer has met some of it: it may be started late.
            let met = || informer.failures().refused_objects > 0 && informer.failures().handler_panics > 0;
            let mut round = 0;
            while round < rounds(3000) || !met() {
                feed.change(dice.below(30) as u32, dice.below(5) == 0);
                match dice.below(300) {
                    0 => feed.cut(true),
                    1 => feed.cut(false),
                    2..30 => thread::yield_now(),
                    _ => {}
                }
                if round % 16 == 0 {
                    pulse.beat();
                    not_far_behind(&feed, || informer.store().version());
                }
                round += 1;
            }
            calm.store(true, Ordering::Release);
            // Every object once more, until the version is one that the transform takes.
            for name in 0..30 {
                feed.change(name, false);
                while feed.0.lock().unwrap().version % 13 == 5 {
                    feed.change(name, false);
                }
            }
            while informer.store().version() != feed.version() || !steady.is_idle() || !shaky.is_idle() {
                thread::yield_now();
            }
            let objects = feed.0.lock().unwrap().objects.clone();
            let snapshot = informer.store().snapshot();
            let stored: BTreeMap<_, _> = snapshot.iter().map(|v| (v.0.name, v.0.version)).collect();
            assert_eq!(stored, objects);
            let told: BTreeMap<_, _> = seen.lock().unwrap().iter().map(|(k, v)| (k.name()[1..].parse().unwrap(), *v)).collect();
            assert_eq!(told, objects);
            for version in objects.values() {
                let found: Vec<_> =
                    snapshot.by_index(&informer.store().index::<u64>("version").unwrap(), version).unwrap().collect();
                assert!(found.len() == 1 && found[0].0.version == *version);
            }
            let even = objects.values().filter(|v| *v % 2 == 0).count();
            assert_eq!(snapshot.by_index(&informer.store().index::<u64>("parity").unwrap(), &0).unwrap().count(), even);
            assert_eq!(snapshot.index_values(&informer.store().index::<u64>("version").unwrap()).unwrap().len(), objects.len());
            stop.stop();
            handle.join().unwrap();
            wrong.none();
            drop((steady, shaky, informer, snapshot));
            assert_eq!(alive.load(Ordering::Relaxed), 0, "values are left");
        });
    });
}

/// P8, P10: handlers that add and remove others and themselves, and drop the last handle to the informer.
#[test]
fn p10_handlers_may_do_anything_to_handlers() {
    guarded(|pulse| {
        each_engine(|engine| {
            let (clock, feed, alive, wrong) = (Clock::real(), Feed::default(), Arc::default(), Wrong::default());
            (0..10).for_each(|n| feed.change(n, false));
            for round in 0..rounds(60) {
                pulse.beat();
                let informer = informer(&feed, &clock, engine, &alive).build().unwrap();
                let shared = Arc::new(Mutex::new(Vec::<Registration<Value>>::new()));
                let calls = Arc::new(AtomicUsize::new(0));
                for seed in 0..3 {
                    let (informer, kept, calls, wrong) = (informer.clone(), shared.clone(), calls.clone(), wrong.clone());
                    let mut dice = Dice::new(round as u64 * 3 + seed);
                    let registration = informer.clone().on(move |_| {
                        let take = |dice: &mut Dice| {
                            let mut kept = kept.lock().unwrap();
                            let n = kept.len();
                            (n > 0).then(|| kept.swap_remove(dice.below(n)))
                        };
                        calls.fetch_add(1, Ordering::Relaxed);
                        match dice.below(5) {
                            0 | 1 => {
                                if let Ok(more) = informer.add_handler(Checker::new(&informer, &wrong)) {
                                    kept.lock().unwrap().push(more);
                                }
                            }
                            2 => drop(take(&mut dice)),
                            3 => {
                                if let Some(one) = take(&mut dice) {
                                    assert_eq!(one.shutdown(Duration::ZERO), Err(WaitError::WouldDeadlock));
                                }
                            }
                            _ => drop(take(&mut dice).map(|one| one.wait_synced(Duration::from_micros(50).into()))),
                        }
                    });
                    shared.lock().unwrap().push(registration.unwrap());
                }
                let handle = informer.spawn(&Stop::new()).unwrap();
                // They may have removed each other by then.
                for n in 0..100 {
                    feed.change(n % 10, false);
                    thread::yield_now();
                    if calls.load(Ordering::Relaxed) > 20 {
                        break;
                    }
                }
                match round % 3 {
                    0 => drop(handle),
                    1 => {
                        informer.shutdown(Deadline::never()).unwrap();
                        handle.join().unwrap();
                    }
                    _ => {
                        // The last handle goes inside a callback, or the one that holds it is removed.
                        let slot = Mutex::new(Some(informer.clone()));
                        informer.on(move |_| drop(slot.lock().unwrap().take())).unwrap().detach();
                        feed.change(0, false);
                        informer.shutdown(Deadline::never()).unwrap();
                        handle.join().unwrap();
                    }
                }
                drop(informer);
                shared.lock().unwrap().clear();
                assert!(clock.threads().is_empty(), "{:?}", clock.threads());
            }
            wrong.none();
            assert_contained(&clock, &[]);
            assert_eq!(alive.load(Ordering::Relaxed), 0, "values are left");
        });
    });
}

/// P8: informers that never run, dropped in any order and on any thread.
#[test]
fn p8_informers_that_never_run_leave_nothing_behind() {
    guarded(|pulse| {
        let (clock, feed, alive, wrong) = (Clock::real(), Feed::default(), Arc::default(), Wrong::default());
        let mut dice = Dice::new(1);
        for round in 0..rounds(200) {
            pulse.beat();
            let informer = informer(&feed, &clock, Engine::Merged, &alive).build().unwrap();
            let (handle, store) = (informer.clone(), informer.store());
            let mut registrations: Vec<_> =
                (0..dice.below(4)).map(|_| informer.add_handler(Checker::new(&informer, &wrong)).unwrap()).collect();
            // A handler that holds a handle keeps the informer until it is removed.
            let holds = informer.clone();
            registrations.push(informer.on(move |_| drop(holds.clone())).unwrap());
            let elsewhere = thread::spawn(move || drop(handle));
            match round % 3 {
                0 => {
                    drop(registrations);
                    drop(informer);
                }
                1 => {
                    drop(informer);
                    drop(registrations);
                }
                _ => {
                    informer.shutdown(Deadline::never()).unwrap();
                    drop((informer, registrations));
                }
            }
            elsewhere.join().unwrap();
            assert_eq!(store.len(), 0);
        }
        // The last handle may have gone on a listener's thread, which nobody waits for then.
        while !clock.threads().is_empty() {
            thread::yield_now();
        }
        wrong.none();
        assert_contained(&clock, &[]);
    });
}

/// P7: an end between the look and the sleep of a waiter is heard of.
#[test]
fn p7_a_wait_for_the_first_state_hears_of_every_end() {
    guarded(|pulse| {
        let (clock, feed, alive) = (Clock::real(), Feed::default(), Arc::default());
        let meeting = Arc::new(Meeting::default());
        let (send, receive) = mpsc::channel::<Informer>();
        let m = meeting.clone();
        let waiter = thread::spawn(move || {
            for (round, informer) in receive.into_iter().enumerate() {
                m.meet(round, 2);
                spin(round * 7 % 64);
                assert_eq!(informer.wait_synced(Deadline::never()), Err(WaitError::Stopped));
            }
        });
        let stop = Stop::new();
        stop.stop();
        for round in 0..rounds(20_000) {
            let informer = informer(&feed, &clock, Engine::Merged, &alive).build().unwrap();
            send.send(informer.clone()).unwrap();
            meeting.meet(round, 2);
            informer.run(&stop).unwrap();
            pulse.beat();
        }
        drop(send);
        waiter.join().unwrap();
    });
}

/// A stop reaches everybody who listens, whatever they are about to do.
#[test]
fn p8_a_stop_reaches_every_listener_once() {
    guarded(|pulse| {
        let (clock, meeting) = (Clock::real(), Arc::new(Meeting::default()));
        let rounds = rounds(400);
        let stops: Arc<Vec<Stop>> = Arc::new((0..rounds).map(|_| Stop::new()).collect());
        let mut threads = Vec::new();
        for seed in 0..3 {
            let (stops, meeting, clock, pulse) = (stops.clone(), meeting.clone(), clock.clone(), pulse.clone());
            threads.push(thread::spawn(move || {
                let mut dice = Dice::new(seed + 1);
                for (round, stop) in stops.iter().enumerate() {
                    let called = Arc::new(AtomicUsize::new(0));
                    let count = || {
                        let called = called.clone();
                        move || {
                            called.fetch_add(1, Ordering::AcqRel);
                        }
                    };
                    meeting.meet(round, 4);
                    spin(dice.below(100));
                    let held: Vec<_> = (0..3).map(|_| stop.on_stop(count())).collect();
                    drop(stop.on_stop(|| ()));
                    let (child, wake) = (stop.child(), Wake::new(stop, &clock));
                    let (nudged, woken) = (wake.clone(), Arc::new(AtomicBool::new(false)));
                    let w = woken.clone();
                    let on_wake = wake.on_wake(move || w.store(true, Ordering::Release));
                    if dice.below(2) == 0 {
                        nudged.nudge();
                    }
                    while wake.wait(Deadline::never()) != informer::sync::Woken::Stopped {}
                    assert!(child.wait(Deadline::never()) && stop.wait(Deadline::never()));
                    // They run on the thread that stops, which may not have come to all of them.
                    while called.load(Ordering::Acquire) < 3 || !woken.load(Ordering::Acquire) {
                        thread::yield_now();
                    }
                    drop((held, on_wake));
                    assert_eq!(called.load(Ordering::Acquire), 3);
                    assert!(stop.child().is_stopped() && Wake::new(stop, &clock).is_stopped());
                    pulse.beat();
                }
            }));
        }
        let mut dice = Dice::new(9);
        for (round, stop) in stops.iter().enumerate() {
            meeting.meet(round, 4);
            spin(dice.below(200));
            stop.stop();
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
    });
}

fn object(name: u32, version: u64, alive: &Arc<AtomicIsize>) -> Object<Value> {
    alive.fetch_add(1, Ordering::Relaxed);
    let meta = Meta { namespace: "", name: &format!("o{name}"), version: &version.to_string(), uid: "" };
    Object::new(meta, Value { name, version, alive: alive.clone() }).unwrap()
}

/// The queue hands everything out once, in order, until it is closed, and lets nobody wait for ever.
#[test]
fn the_queue_keeps_order_and_wakes_everybody() {
    guarded(|pulse| {
        let (clock, alive) = (Clock::real(), Arc::default());
        for round in 0..rounds(100) {
            pulse.beat();
            let queue = Arc::new(RealFifo::<Value>::new("queue", &clock));
            let taken = Arc::new(Mutex::new(Vec::new()));
            let mut threads = Vec::new();
            for producer in 0..2 {
                let (queue, alive) = (queue.clone(), Arc::clone(&alive));
                threads.push(thread::spawn(move || {
                    let mut dice = Dice::new(producer + 1);
                    let mut version = 0;
                    loop {
                        let mut batch: Vec<_> = (0..dice.below(5))
                            .map(|_| {
                                version += 1;
                                Delta::Updated(object(producer as u32, version, &alive))
                            })
                            .collect();
                        if version > 200 {
                            return;
                        }
                        match queue.apply(&mut batch) {
                            Ok(()) => assert!(batch.is_empty()),
                            Err(SinkError::Closed) => return,
                            Err(other) => panic!("{other}"),
                        }
                    }
                }));
            }
            for taker in 0..2 {
                let (queue, taken) = (queue.clone(), taken.clone());
                threads.push(thread::spawn(move || {
                    let mut dice = Dice::new(taker + 5);
                    loop {
                        let max = dice.below(20);
                        let mut got = match dice.below(3) {
                            0 => match queue.take_deadline(max, Duration::from_micros(100)) {
                                Ok(Some(got)) => got,
                                Ok(None) => continue,
                                Err(_) => return,
                            },
                            _ => match queue.take(max) {
                                Ok(got) => got,
                                Err(_) => return,
                            },
                        };
                        taken.lock().unwrap().extend(got.drain().map(|delta| match delta {
                            Delta::Updated(o) => (o.name, o.version),
                            other => panic!("{other:?}"),
                        }));
                        if dice.below(10) > 0 {
                            got.commit();
                        }
                    }
                }));
            }
            let waits = queue.clone();
            let waiter = thread::spawn(move || waits.wait_synced(Deadline::never()));
            if round % 2 == 0 {
                spin(round * 100);
            } else {
                while !queue.is_empty() || taken.lock().unwrap().len() < 390 {
                    thread::yield_now();
                }
            }
            queue.close();
            threads.into_iter().for_each(|t| t.join().unwrap());
            assert_eq!(waiter.join().unwrap(), Err(WaitError::Stopped));
            for producer in 0..2 {
                let taken = taken.lock().unwrap();
                let of: Vec<u64> = taken.iter().filter(|(name, _)| *name == producer).map(|(_, v)| *v).collect();
                assert!(of.iter().copied().eq(1..=of.len() as u64), "{of:?}");
            }
        }
        assert_eq!(alive.load(Ordering::Relaxed), 0, "objects are left");
    });
}

/// Objects and keys are freed once, by whoever has the last handle.
#[test]
fn objects_are_freed_once_by_their_last_owner() {
    guarded(|pulse| {
        let (alive, meeting) = (Arc::default(), Arc::new(Meeting::default()));
        let rounds = rounds(3000);
        let slots: Arc<Vec<_>> = Arc::new((0..rounds).map(|n| Mutex::new(vec![object(n as u32, 1, &alive); 3])).collect());
        let unwrapped = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..3)
            .map(|seed| {
                let (slots, meeting, unwrapped, pulse) = (slots.clone(), meeting.clone(), unwrapped.clone(), pulse.clone());
                thread::spawn(move || {
                    let mut dice = Dice::new(seed + 1);
                    for (round, slot) in slots.iter().enumerate() {
                        pulse.beat();
                        let mine = slot.lock().unwrap().pop().unwrap();
                        meeting.meet(round, 3);
                        let key = Object::key(&mine).clone();
                        match dice.below(3) {
                            0 => drop((mine.clone(), mine)),
                            _ => match Object::try_unwrap(mine) {
                                Ok(value) => {
                                    unwrapped.fetch_add(1, Ordering::Relaxed);
                                    assert_eq!(value.name as usize, round);
                                }
                                Err(shared) => assert_eq!(shared.name as usize, round),
                            },
                        }
                        assert_eq!(key.name()[1..].parse::<usize>().unwrap(), round);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert!(unwrapped.load(Ordering::Relaxed) > 0);
        assert_eq!(alive.load(Ordering::Relaxed), 0, "objects are left, or were freed twice");
    });
}
