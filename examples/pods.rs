//! The main job, with no set-up: an embedded API server, an informer with two indices and two handlers (one slow), a
//! workqueue and a controller, while connections break, history is lost and the server restarts. At the end every copy
//! of the truth is compared with the truth, and each handler's stream with the server's audit log.
//!
//! Writers create, change and delete pods. The controller sees to it that each pod's label `observed` says its
//! generation; it is idempotent. Faults end two seconds before the writers do, and no list follows them, since a last
//! list would repair a lost event. Exits non-zero on any difference; `--sabotage` plants one through public doors.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "an example is the user's code, on real time")]

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use informer::{
    controller::{Action, Context, Controller, ReconcileError},
    flow::{Event, Meta, Object, ObjectKey},
    informer::{Engine, HandlerOptions, InformerEvent, SharedInformer},
    memory::{Close, Fault, Pod, Server, ServerError, Source, check::StreamChecker},
    reflector::{Backoff, ReflectorEvent},
    source::{
        ListEnd, ListParams, ListerWatcher, Next, SourceError, SourceErrorKind, Undecodable, WatchEvent, WatchParams, WatchStream,
    },
    store::Snapshot,
    sync::{Clock, Deadline, Stop, Synced, Wake},
    workqueue::WorkQueue,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    io::IsTerminal,
    ops::ControlFlow,
    process::ExitCode,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const NAMESPACES: usize = 20;
const NODES: usize = 50;
const WRITERS: u64 = 3;
/// The writers go on for this long after the last fault.
const QUIET: Duration = Duration::from_secs(2);
/// Within this, after the writers have ended, listeners and queue must have come to rest.
const REST: Duration = Duration::from_secs(120);
/// Nothing may have moved for this long to count as rest.
const STILL: Duration = Duration::from_millis(500);

/// Runs the whole river against an embedded API server and checks every copy of the truth.
#[derive(Parser)]
struct Args {
    /// Pods to begin with, in 20 namespaces.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(20..=1_000_000))]
    objects: u64,
    /// How long the writers run, at least. The last two seconds are without faults.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u64).range(3..=3600))]
    seconds: u64,
    /// Workers of the controller.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=64))]
    workers: u64,
    /// What is written and which faults come; the scheduler of the machine does the rest.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// On which threads the stages run.
    #[arg(long, value_enum, default_value_t = EngineArg::Merged)]
    engine: EngineArg,
    /// Plants a defect that must be found.
    #[arg(long, value_enum)]
    sabotage: Option<Sabotage>,
}

#[derive(Clone, Copy, ValueEnum)]
enum EngineArg {
    Merged,
    Decoupled,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sabotage {
    /// The source swallows one event.
    DropEvent,
    /// An index function remembers its first value of each pod.
    StaleIndex,
    /// The handler never queues one key.
    SkipKey,
}

/// Swallows the first object event after it was armed.
#[derive(Clone)]
struct Swallowing {
    inner: Source<Pod>,
    armed: Arc<AtomicBool>,
}

struct SwallowingStream {
    inner: Box<dyn WatchStream<Pod>>,
    armed: Arc<AtomicBool>,
}

impl ListerWatcher for Swallowing {
    type Object = Pod;

    fn meta<'a>(&self, pod: &'a Pod) -> Meta<'a> {
        self.inner.meta(pod)
    }

    fn list(
        &self,
        stop: &Stop,
        p: &ListParams,
        sink: &mut dyn FnMut(Result<Pod, Undecodable>) -> ControlFlow<()>,
    ) -> Result<ListEnd, SourceError> {
        self.inner.list(stop, p, sink)
    }

    fn watch(&self, stop: &Stop, p: &WatchParams) -> Result<Box<dyn WatchStream<Pod>>, SourceError> {
        Ok(Box::new(SwallowingStream { inner: self.inner.watch(stop, p)?, armed: self.armed.clone() }))
    }

    fn compare(&self, a: &str, b: &str) -> Option<std::cmp::Ordering> {
        self.inner.compare(a, b)
    }
}

impl SwallowingStream {
    fn swallows(&self, next: &Next<Pod>) -> bool {
        let object = matches!(next, Next::Event(WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Deleted(_)));
        object && self.armed.swap(false, Ordering::AcqRel)
    }
}

impl WatchStream<Pod> for SwallowingStream {
    fn next(&mut self, wake: &Wake, deadline: Deadline) -> Next<Pod> {
        loop {
            let next = self.inner.next(wake, deadline);
            if !self.swallows(&next) {
                return next;
            }
        }
    }

    fn ready(&mut self) -> Option<Next<Pod>> {
        let next = self.inner.ready()?;
        if self.swallows(&next) { self.inner.ready() } else { Some(next) }
    }
}

/// Counts for people.
#[derive(Default)]
struct Seen {
    lists: AtomicU64,
    failures: AtomicU64,
}

fn key_of(i: u64) -> (String, String) {
    (format!("ns-{:02}", i as usize % NAMESPACES), format!("pod-{i:06}"))
}

fn node(rng: &mut fastrand::Rng) -> String {
    format!("node-{:02}", rng.usize(..NODES))
}

/// Creates, changes and deletes pods until told to end.
fn write(server: &Server, keys: u64, mut rng: fastrand::Rng, end: &AtomicBool) {
    while !end.load(Ordering::Acquire) {
        let (namespace, name) = key_of(rng.u64(..keys));
        let key = (namespace.as_str(), name.as_str());
        let outcome = match rng.u8(..10) {
            0..=5 => server.edit::<Pod>(key, |pod| {
                pod.generation += 1;
                if pod.generation.is_multiple_of(3) {
                    pod.node = node(&mut rng);
                }
            }),
            6 | 7 => server.delete::<Pod>(key),
            _ => server.create(Pod::new(&namespace, &name).on_node(node(&mut rng))),
        };
        // Another writer may have been faster, or the pod is not there: all part of the game.
        if let Err(e) = outcome
            && !matches!(e, ServerError::Exists { .. } | ServerError::NotFound { .. })
        {
            panic!("a write failed: {e}");
        }
        thread::sleep(Duration::from_micros(1500));
    }
}

/// Breaks things until told to end; says what it did.
fn break_things(server: &Server, mut rng: fastrand::Rng, end: &AtomicBool) -> BTreeMap<&'static str, u64> {
    let mut did = BTreeMap::new();
    while !end.load(Ordering::Acquire) {
        thread::sleep(Duration::from_millis(rng.u64(60..250)));
        let what = match rng.u8(..8) {
            0 | 1 => {
                server.drop_connections();
                "dropped"
            }
            2 => {
                server.close_connections();
                "closed"
            }
            3 => {
                // While the line is down the window moves on: 410 for the resume.
                server.compact();
                server.drop_connections();
                server.trim();
                "expired"
            }
            4 => {
                server.compact();
                server.restart(if rng.bool() { Close::Cut } else { Close::Clean });
                "restarted"
            }
            5 => {
                server.down(Close::Cut);
                thread::sleep(Duration::from_millis(rng.u64(20..200)));
                server.up();
                "down"
            }
            6 => {
                server.faults([Fault::cut_after(rng.u64(..20)), Fault::close_after(rng.u64(..20))]);
                server.drop_connections();
                "cut short"
            }
            _ => {
                let retry_after = Some(Duration::from_millis(10));
                server.faults([Fault::refuse(SourceErrorKind::TooManyRequests { retry_after })]);
                server.drop_connections();
                "refused"
            }
        };
        *did.entry(what).or_default() += 1;
    }
    did
}

/// What the controller has last seen of each key: a version, or that it is gone.
type Reconciled = Mutex<HashMap<ObjectKey, Option<String>>>;

fn main() -> ExitCode {
    let args = Args::parse();
    let progress = Progress::new(args.seconds);
    let clock = Clock::real();
    let mut rng = fastrand::Rng::with_seed(args.seed);
    let server = Server::builder(&clock).window(5000).bookmark_period(Duration::from_millis(500)).seed(args.seed).build();
    for i in 0..args.objects {
        let (namespace, name) = key_of(i);
        server.create(Pod::new(namespace, name).on_node(node(&mut rng))).expect("the server is empty");
    }

    // ---- the river ---------------------------------------------------------------------------------------------------
    let armed = Arc::new(AtomicBool::new(false));
    let source = Swallowing { inner: server.source::<Pod>(), armed: armed.clone() };
    let seen = Arc::new(Seen::default());
    let first_values = Mutex::new(HashMap::<String, String>::new());
    let stale = args.sabotage == Some(Sabotage::StaleIndex);
    let told = seen.clone();
    let informer = SharedInformer::builder(source)
        .name("pods")
        .engine(match args.engine {
            EngineArg::Merged => Engine::Merged,
            EngineArg::Decoupled => Engine::Decoupled,
        })
        .relist_spread(Duration::from_millis(100))
        // Impatient, so that the faults of a few seconds meet a reflector that reads, and not one that waits.
        .backoff(Backoff { base: Duration::from_millis(50), cap: Duration::from_millis(400), ..Backoff::default() })
        .seed(args.seed)
        .index("namespace", |pod: &Pod, emit: &mut dyn FnMut(String)| emit(pod.namespace.clone()))
        .index("node", move |pod: &Pod, emit: &mut dyn FnMut(String)| {
            if stale {
                let mut first = first_values.lock().unwrap();
                emit(first.entry(format!("{}/{}", pod.namespace, pod.name)).or_insert_with(|| pod.node.clone()).clone());
            } else {
                emit(pod.node.clone());
            }
        })
        .observe(move |event| match event {
            InformerEvent::Reflector(ReflectorEvent::Listed { .. }) => drop(told.lists.fetch_add(1, Ordering::Relaxed)),
            InformerEvent::Reflector(ReflectorEvent::Failed { .. }) => drop(told.failures.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        })
        .build()
        .expect("the indices have different names");

    let queue = WorkQueue::<ObjectKey>::builder().name("pods").build();
    let (fast_check, slow_check) = (StreamChecker::<Pod>::new(&server), StreamChecker::<Pod>::new(&server));
    let skipped = (args.sabotage == Some(Sabotage::SkipKey)).then(|| {
        let (namespace, name) = key_of(0);
        ObjectKey::new(&namespace, &name).expect("a fine key")
    });
    let told_of = Arc::new(Mutex::new(HashSet::new()));
    let (check, keys, known) = (fast_check.clone(), queue.clone(), told_of.clone());
    let fast = informer
        .add_handler_with(
            move |event: &Event<Pod>| {
                // What is wrong is remembered and counted at the end.
                let _remembered = check.observe_values(event);
                known.lock().unwrap().insert(event.key().clone());
                if skipped.as_ref() != Some(event.key()) {
                    keys.add(event.key().clone());
                }
            },
            HandlerOptions { name: Some("fast".into()), ..HandlerOptions::default() },
        )
        .expect("the informer is new");
    let check = slow_check.clone();
    let slow = informer
        .add_handler_with(
            move |event: &Event<Pod>| {
                thread::sleep(Duration::from_micros(50));
                let _remembered = check.observe_values(event);
            },
            HandlerOptions { name: Some("slow".into()), ..HandlerOptions::default() },
        )
        .expect("the informer is new");

    let reconciled = Arc::new(Reconciled::default());
    let reconciles = Arc::new(AtomicU64::new(0));
    let (store, api, last, count) = (informer.store(), server.clone(), reconciled.clone(), reconciles.clone());
    let reconcile = move |key: &ObjectKey, _: &Context| {
        count.fetch_add(1, Ordering::Relaxed);
        let pod = store.get(key);
        last.lock().unwrap().insert(key.clone(), pod.as_ref().map(|p| Object::version(p).to_string()));
        let Some(pod) = pod else { return Ok(Action::Done) };
        let wanted = pod.generation.to_string();
        if pod.label("observed") == Some(&wanted) {
            return Ok(Action::Done);
        }
        match api.update(Pod::clone(&pod).with_label("observed", wanted)) {
            Ok(_) | Err(ServerError::NotFound { .. }) => Ok(Action::Done),
            // The store is behind: look again in a moment.
            Err(e @ ServerError::Conflict { .. }) => Err(ReconcileError::retry(e)),
            Err(e) => Err(ReconcileError::terminal(e)),
        }
    };
    let synced: Arc<dyn Synced> = Arc::new(informer.clone());
    let controller =
        Controller::builder(queue.clone(), reconcile).name("observed").workers(args.workers as usize).wait_for([synced]).build();

    let stop = Stop::new();
    let running = informer.spawn(&stop).expect("a thread for the informer");
    let controlling = {
        let stop = stop.clone();
        thread::spawn(move || controller.run(&stop))
    };

    // ---- writers and faults ------------------------------------------------------------------------------------------
    let (writers_end, faults_end) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (server, rng, end, keys) = (server.clone(), rng.fork(), writers_end.clone(), args.objects + args.objects / 5);
            thread::spawn(move || write(&server, keys, rng, &end))
        })
        .collect();
    let breaker = {
        let (server, rng, end) = (server.clone(), rng.fork(), faults_end.clone());
        thread::spawn(move || break_things(&server, rng, &end))
    };
    let show = |phase: &str, ticks: u64| {
        let (objects, events) = (informer.store().len(), fast_check.events() + slow_check.events());
        let reconciles = reconciles.load(Ordering::Relaxed);
        // While the server is down or the informer waits after a failure, nothing moves but this.
        let number = |version: String| version.parse::<u64>().unwrap_or(0);
        let behind = number(server.version()).saturating_sub(number(informer.store().version()));
        progress.tick(
            ticks,
            &format!("{phase}: {objects} objects, {events} events told to 2 handlers, {reconciles} reconciles, {behind} versions behind"),
        );
    };
    for second in 1..=args.seconds - QUIET.as_secs() {
        thread::sleep(Duration::from_secs(1));
        show("writing, breaking", second);
    }
    faults_end.store(true, Ordering::Release);
    let faults = breaker.join().expect("the fault thread");
    server.clear_faults();
    // The informer may be in a backoff. The quiet time begins when it watches again and has caught up.
    let caught_up = wait(REST, || {
        let target = server.version();
        server.open_streams() == 1 && wait(Duration::from_millis(500), || newer_or_equal(&informer.store().version(), &target))
    });
    let lists_before = seen.lists.load(Ordering::Relaxed);
    armed.store(args.sabotage == Some(Sabotage::DropEvent), Ordering::Release);
    for second in 1..=QUIET.as_secs() {
        thread::sleep(Duration::from_secs(1));
        show("writing", args.seconds - QUIET.as_secs() + second);
    }
    writers_end.store(true, Ordering::Release);
    for writer in writers {
        writer.join().expect("a writer");
    }
    // One change behind all others, so that the pod that `--sabotage skip-key` is about exists and has one.
    let (namespace, name) = key_of(0);
    if server.edit::<Pod>((namespace.as_str(), name.as_str()), |pod| pod.generation += 1).is_err() {
        server.create(Pod::new(namespace, name)).expect("nobody else writes any more, but the controller, which creates none");
    }

    // ---- rest --------------------------------------------------------------------------------------------------------
    let mut last_move = (Instant::now(), String::new());
    let rested = wait(REST, || {
        let now = format!(
            "{} {} {} {}",
            server.version(),
            informer.store().version(),
            fast.delivered() + slow.delivered(),
            reconciles.load(Ordering::Relaxed)
        );
        if now != last_move.1 || !fast.is_idle() || !slow.is_idle() || !queue.is_empty() {
            last_move = (Instant::now(), now);
        }
        last_move.0.elapsed() >= STILL
    });
    let lists_after = seen.lists.load(Ordering::Relaxed);
    stop.stop();
    let mut errors = Differences::default();
    if let Err(e) = running.join() {
        errors.add(format!("the informer ended with: {e}"));
    }
    match controlling.join() {
        Ok(Ok(_)) => {}
        other => errors.add(format!("the controller ended with: {other:?}")),
    }

    // ---- the check ---------------------------------------------------------------------------------------------------
    if !caught_up {
        errors.add("the informer did not catch up after the last fault".into());
    }
    if !rested {
        errors.add("listeners and queue did not come to rest".into());
    }
    if lists_after != lists_before {
        errors.add("a list followed the last fault: it would repair a lost event, so this run proves nothing".into());
    }
    let truth = server.all::<Pod>();
    let stored = informer.store().snapshot();
    compare_objects(&truth.objects, &stored, &mut errors);
    compare_index("namespace", &truth.objects, &stored, |p| &p.namespace, &mut errors);
    compare_index("node", &truth.objects, &stored, |p| &p.node, &mut errors);
    for (name, check) in [("fast", &fast_check), ("slow", &slow_check)] {
        for violation in check.finish(&truth).err().unwrap_or_default() {
            errors.add(format!("handler {name}: {violation}"));
        }
    }
    compare_reconciled(&truth.objects, &told_of.lock().unwrap(), &reconciled.lock().unwrap(), &mut errors);
    for error in errors.first.iter() {
        progress.line(&format!("difference: {error}"));
    }
    if errors.count == 0 {
        progress.line(
            "no differences: store, 2 indices, the streams of 2 handlers, and what was last reconciled, against the server",
        );
    }
    let faults = faults.iter().map(|(what, n)| format!("{what}={n}")).collect::<Vec<_>>().join(" ");
    progress.line(&format!("faults: {faults}; failures seen by the reflector={}", seen.failures.load(Ordering::Relaxed)));
    progress.finish();
    println!(
        "objects={} events={} reconciles={} relists={} errors={}",
        stored.len(),
        fast_check.events() + slow_check.events(),
        reconciles.load(Ordering::Relaxed),
        lists_after.saturating_sub(1),
        errors.count
    );
    if errors.count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Looks every few milliseconds, for at most `limit`.
fn wait(limit: Duration, mut reached: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !reached() {
        if start.elapsed() > limit {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

fn newer_or_equal(a: &str, b: &str) -> bool {
    informer::source::compare_decimal(a, b).is_some_and(std::cmp::Ordering::is_ge)
}

/// The first of them, and how many.
#[derive(Default)]
struct Differences {
    first: Vec<String>,
    count: u64,
}

impl Differences {
    fn add(&mut self, what: String) {
        self.count += 1;
        if self.first.len() < 20 {
            self.first.push(what);
        }
    }
}

fn compare_objects(truth: &[Object<Pod>], stored: &Snapshot<Pod>, errors: &mut Differences) {
    for object in truth {
        match stored.object(object) {
            None => errors.add(format!("{object:?} is not stored")),
            Some(s) if Object::version(s) != Object::version(object) || **s != **object => {
                errors.add(format!("{object:?} is stored as {s:?}"))
            }
            Some(_) => {}
        }
    }
    let keys: BTreeSet<_> = truth.iter().map(Object::key).collect();
    for key in stored.keys().filter(|k| !keys.contains(k)) {
        errors.add(format!("{key} is stored and does not exist"));
    }
}

fn compare_index(
    name: &str,
    truth: &[Object<Pod>],
    stored: &Snapshot<Pod>,
    value: impl Fn(&Pod) -> &String,
    errors: &mut Differences,
) {
    let mut want = BTreeMap::<&String, Vec<&ObjectKey>>::new();
    for object in truth {
        want.entry(value(object)).or_default().push(Object::key(object));
    }
    let values = stored.index_values(name).expect("the informer has this index");
    if values != want.keys().copied().collect::<Vec<_>>() {
        errors.add(format!("index {name} has other values than the truth"));
    }
    for (value, keys) in want {
        let found: Vec<_> = stored.index_keys(name, value.as_str()).expect("the informer has this index").collect();
        if found != keys {
            errors.add(format!("index {name}, value {value}: {} keys instead of {}", found.len(), keys.len()));
        }
    }
}

/// Every object was reconciled in its last state, and every key that a handler was told of and that is gone, as gone.
fn compare_reconciled(
    truth: &[Object<Pod>],
    told_of: &HashSet<ObjectKey>,
    reconciled: &HashMap<ObjectKey, Option<String>>,
    errors: &mut Differences,
) {
    let mut last: HashMap<&ObjectKey, Option<String>> = told_of.iter().map(|key| (key, None)).collect();
    last.extend(truth.iter().map(|o| (Object::key(o), Some(Object::version(o).to_string()))));
    for (key, state) in last {
        match reconciled.get(key) {
            Some(seen) if *seen == state => {}
            seen => errors.add(format!("{key} is at {state:?} and was last reconciled at {seen:?}")),
        }
    }
}

/// A bar on a terminal, plain lines elsewhere.
struct Progress(Option<ProgressBar>);

impl Progress {
    fn new(seconds: u64) -> Self {
        Self(std::io::stderr().is_terminal().then(|| {
            let style =
                ProgressStyle::with_template("{bar:30} {pos}/{len} s  {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(seconds).with_style(style)
        }))
    }

    fn tick(&self, second: u64, text: &str) {
        match &self.0 {
            Some(bar) => {
                bar.set_position(second);
                bar.set_message(text.to_owned());
            }
            None => eprintln!("{second:>3} s  {text}"),
        }
    }

    fn line(&self, text: &str) {
        match &self.0 {
            Some(bar) => bar.println(text),
            None => eprintln!("{text}"),
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.0 {
            bar.finish();
        }
    }
}
