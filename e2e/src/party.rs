//! One party of the comparison, in a process of its own: this crate's informer, or kube-runtime's reflector. client-go's
//! is the program in `go/peer`. All three watch the config maps of one namespace and speak the same lines; see there.

use crate::api::config_as;
use futures_util::{StreamExt, TryFutureExt};
use http::{Request, Response};
use http_body_util::BodyExt;
use informer::{
    flow::{Change, Event, Object},
    informer::{InformerEvent, SharedInformer},
    kube::{Io, KubeSource},
    reflector::{InitialState, ReflectorEvent},
    source::Scope,
    sync::{Stop, Synced},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config,
    client::{Body, ClientBuilder},
    runtime::{WatchStreamExt, reflector, watcher},
};
use serde_json::json;
use std::{
    fs,
    io::{BufRead, Write},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tower::Service;

#[derive(clap::Args)]
pub struct Args {
    #[arg(value_enum)]
    who: Who,
    #[arg(long)]
    port: u16,
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    user: String,
    #[arg(long)]
    namespace: String,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Who {
    /// This crate's informer.
    Ours,
    /// The same, by streamed list.
    OursStreamed,
    /// kube-runtime's reflector.
    KubeRuntime,
    /// The same, by streamed list.
    KubeRuntimeStreamed,
}

/// The sum over these is the digest of a state.
pub fn of(key: &str, version: &str) -> u64 {
    // FNV-1a, as in Go's hash/fnv.
    let bytes = key.bytes().chain(std::iter::once(b'@')).chain(version.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

pub fn micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros().try_into().unwrap_or(u64::MAX))
}

/// A line, whole, at once.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody reads any more when the comparison has ended.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

#[derive(Default)]
struct State {
    count: u64,
    digest: u64,
    events: u64,
    since: u64,
    expected: Option<(String, u64, u64)>,
}

impl State {
    fn agree(&mut self) {
        if let Some((name, _, _)) = self.expected.take_if(|(_, c, d)| (*c, *d) == (self.count, self.digest)) {
            say(&format!("agreed {name} {}", self.since));
        }
    }
}

/// What was asked, and what came.
#[derive(Default)]
struct Traffic {
    lists: AtomicU64,
    watches: AtomicU64,
    bytes: AtomicU64,
    /// When a watch was last answered 410, in microseconds; zero once a list was asked for. And how long that took.
    expired: AtomicU64,
    to_list: AtomicU64,
}

/// What a watch that is answered 410 has in it.
const GONE: &[u8] = br#""code":410"#;

/// Counts the requests and the bytes of the answers' bodies.
#[derive(Clone)]
struct Counting<S>(S, Arc<Traffic>);

impl<S, B> Service<Request<Body>> for Counting<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    B: http_body::Body<Data = bytes::Bytes> + Send + Unpin + 'static,
{
    type Response = Response<http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, B::Error>>;
    type Error = S::Error;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let query = request.uri().query().unwrap_or_default();
        let plain_watch = query.contains("watch=") && !query.contains("sendInitialEvents=true");
        let asked = if plain_watch { &self.1.watches } else { &self.1.lists };
        asked.fetch_add(1, Ordering::Relaxed);
        let traffic = self.1.clone();
        if !plain_watch {
            let expired = traffic.expired.swap(0, Ordering::Relaxed);
            if expired != 0 {
                traffic.to_list.store(micros().saturating_sub(expired), Ordering::Relaxed);
            }
        }
        let counted = move |frame: http_body::Frame<bytes::Bytes>| {
            let data = frame.data_ref().map_or(&[][..], |data| data);
            traffic.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
            if plain_watch && data.windows(GONE.len()).any(|w| w == GONE) {
                traffic.expired.store(micros(), Ordering::Relaxed);
            }
            frame
        };
        Box::pin(self.0.call(request).map_ok(move |answer| answer.map(|body| body.map_frame(counted).boxed_unsync())))
    }
}

fn client(config: Config, traffic: &Arc<Traffic>) -> Client {
    let builder = ClientBuilder::try_from(config).expect("the configuration is good");
    builder.with_layer(&tower::layer::layer_fn(|inner| Counting(inner, traffic.clone()))).build()
}

pub fn run(args: &Args) {
    let config = config_as(&args.dir, args.port, &args.user);
    let (state, traffic) = (Arc::new(Mutex::new(State::default())), Arc::new(Traffic::default()));
    match args.who {
        Who::Ours | Who::OursStreamed => ours(args, config, &state, &traffic),
        Who::KubeRuntime | Who::KubeRuntimeStreamed => kube_runtime(args, config, &state, &traffic),
    }
}

/// Answers what is asked on the standard input, until it ends. `look` brings the state up to date.
fn answer(state: &Mutex<State>, traffic: &Traffic, look: impl Fn(&mut State)) {
    let number = |w: Option<&&str>| w.and_then(|w| w.parse().ok()).unwrap_or(0);
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut state = state.lock().expect("nobody panics with it");
        match words.first() {
            Some(&"expect") => {
                let name = words.get(1).map_or(String::new(), |w| (*w).to_owned());
                state.expected = Some((name, number(words.get(2)), number(words.get(3))));
                look(&mut state);
                state.agree();
            }
            Some(&"stats") => {
                let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
                let stats = json!({"events": state.events, "lists": of(&traffic.lists), "watches": of(&traffic.watches),
                    "bytes": of(&traffic.bytes), "to_list": traffic.to_list.swap(0, Ordering::Relaxed), "peak_kb": peak()});
                say(&format!("stats {stats}"));
            }
            _ => {}
        }
    }
}

/// The most memory that this process ever had, in kB.
fn peak() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()).unwrap_or("0").to_owned()
}

fn ours(args: &Args, mut config: Config, state: &Arc<Mutex<State>>, traffic: &Arc<Traffic>) {
    let io = Io::shared().expect("a thread can be started");
    config.default_retry = false;
    let client = io.block_on(async { client(config, traffic) });
    let initial = match args.who {
        Who::OursStreamed => InitialState::Streamed,
        _ => InitialState::default(),
    };
    let scope = Scope { namespace: Some(args.namespace.clone()), ..Scope::default() };
    let source = KubeSource::<ConfigMap>::new(&io, client);
    let informer = SharedInformer::builder(source)
        .scope(scope)
        .initial(initial)
        .observe(|e| {
            // Into the party's log, which is kept with `E2E_KEEP`.
            if let InformerEvent::Reflector(e @ ReflectorEvent::Failed { .. }) = e {
                eprintln!("{} {e:?}", micros());
            }
        })
        .build()
        .expect("there are no indices");
    let told = state.clone();
    let registration = informer.on(move |event| change(&mut told.lock().expect("nobody panics with it"), event));
    let registration = registration.expect("it has not ended");
    let stop = Stop::new();
    let began = Instant::now();
    let handle = informer.spawn(&stop).expect("a thread can be started");
    if registration.wait_synced(Duration::from_secs(120).into()).is_ok() {
        let took = began.elapsed().as_micros();
        say(&format!("synced {took} {}", state.lock().expect("nobody panics with it").count));
    }
    answer(state, traffic, |_| ());
    stop.stop();
    handle.join().expect("the informer ends in order");
}

fn change(state: &mut State, event: &Event<ConfigMap>) {
    let of = |o: &Object<ConfigMap>| of(event.key().as_str(), &Object::version(o));
    match &event.change {
        Change::Added(new) => {
            state.count += 1;
            state.digest = state.digest.wrapping_add(of(new));
        }
        Change::Updated { old, new } => {
            state.digest = state.digest.wrapping_sub(of(old)).wrapping_add(of(new));
        }
        // The last state that a watch tells has the version of the deletion, so what goes is what was told before.
        Change::Deleted(_) => unreachable!("nothing is deleted in the comparison"),
    }
    state.events += 1;
    state.since = micros();
    state.agree();
}

fn kube_runtime(args: &Args, config: Config, state: &Arc<Mutex<State>>, traffic: &Arc<Traffic>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("tokio starts");
    let _inside = runtime.enter();
    let api = Api::<ConfigMap>::namespaced(client(config, traffic), &args.namespace);
    let options = watcher::Config::default();
    let options = if args.who == Who::KubeRuntimeStreamed { options.streaming_lists() } else { options };
    let (reader, writer) = reflector::store();
    let look = {
        let reader = reader.clone();
        move |state: &mut State| {
            let objects = reader.state();
            let one = |o: &Arc<ConfigMap>| {
                let m = &o.metadata;
                let text = |t: &Option<String>| t.clone().unwrap_or_default();
                of(&format!("{}/{}", text(&m.namespace), text(&m.name)), &text(&m.resource_version))
            };
            state.count = objects.len() as u64;
            state.digest = objects.iter().map(one).fold(0, u64::wrapping_add);
        }
    };
    let began = Instant::now();
    let (told, looks) = (state.clone(), look.clone());
    let events = reflector(writer, watcher(api, options).default_backoff());
    let followed = runtime.spawn(async move {
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            // It tells of errors, and goes on.
            let Ok(event) = event else { continue };
            let mut state = told.lock().expect("nobody panics with it");
            if !matches!(event, watcher::Event::Init) {
                state.events += 1;
            }
            if !matches!(event, watcher::Event::Init | watcher::Event::InitApply(_)) {
                state.since = micros();
                if state.expected.is_some() {
                    looks(&mut state);
                    state.agree();
                }
            }
        }
    });
    runtime.block_on(async { reader.wait_until_ready().await }).expect("the writer is there");
    say(&format!("synced {} {}", began.elapsed().as_micros(), reader.len()));
    answer(state, traffic, look);
    followed.abort();
    // Whatever still sleeps in it need not be waited for.
    thread::spawn(move || runtime.shutdown_background());
}
