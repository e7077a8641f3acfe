//! One informer over the server of this crate, on a clock that is moved by hand.

use informer::{
    flow::Object,
    informer::{InformerBuilder, InformerEvent, InformerHandle, SharedInformer},
    kube::{Io, KubeSource},
    reflector::{Backoff, During, FailureKind, ReflectorEvent},
    source::{ListerWatcher, SourceErrorKind},
    sync::{ManualClock, Stop},
};
use k8s_openapi::api::core::v1::Pod;
use kube_tests::server::{PATIENCE, Server};
use serde_json::json;
use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, mpsc},
    thread,
    time::Duration,
};

/// What the hook was told, in order.
#[derive(Clone, Default)]
pub struct Told(Arc<(Mutex<Vec<ReflectorEvent>>, Condvar)>);

impl Told {
    pub fn push(&self, event: ReflectorEvent) {
        self.0.0.lock().unwrap().push(event);
        self.0.1.notify_all();
    }

    pub fn all(&self) -> Vec<ReflectorEvent> {
        self.0.0.lock().unwrap().clone()
    }

    /// The event at `at` or later that `which` picks, and where it stands.
    #[track_caller]
    pub fn wait<R>(&self, at: usize, what: &str, which: impl Fn(&ReflectorEvent) -> Option<R>) -> (usize, R) {
        let pick = |all: &[ReflectorEvent]| all.iter().enumerate().skip(at).find_map(|(i, e)| Some((i, which(e)?)));
        let all = self.0.0.lock().unwrap();
        let (all, _) = self.0.1.wait_timeout_while(all, PATIENCE, |all| pick(all).is_none()).unwrap();
        pick(&all).unwrap_or_else(|| panic!("{what}: not within {PATIENCE:?}; told: {:#?}", &all[at.min(all.len())..]))
    }
}

/// A failure as it was told.
#[derive(Debug)]
pub struct Failure {
    pub during: During,
    pub kind: FailureKind,
    pub wait: Duration,
    pub message: String,
}

impl Failure {
    pub fn source(&self) -> &SourceErrorKind {
        match &self.kind {
            FailureKind::Source(kind) => kind,
            other => panic!("no failure of the source: {other:?}"),
        }
    }
}

pub struct World<K: Send + Sync + 'static = Pod> {
    // Dropped in this order: the informer ends before the server, and the clock last.
    pub handle: Option<InformerHandle>,
    pub informer: SharedInformer<K>,
    pub stop: Stop,
    pub told: Told,
    seen: usize,
    pub plural: &'static str,
    pub server: Server,
    pub clock: ManualClock,
}

/// A server with two pods: versions 101 and 102.
pub fn two_pods() -> Server {
    let server = Server::plain();
    server.put_named("pods", "ns", "a", json!({"app": "x"}));
    server.put_named("pods", "ns", "b", json!({"app": "y"}));
    server
}

/// A source of the server's pods.
pub fn pods(server: &Server) -> KubeSource<Pod> {
    let io = Io::shared().unwrap();
    let client = io.client(server.config()).unwrap();
    KubeSource::new(&io, client)
}

impl World<Pod> {
    pub fn new(server: Server) -> Self {
        Self::with(server, |b| b)
    }

    pub fn with(server: Server, more: impl FnOnce(InformerBuilder<Pod>) -> InformerBuilder<Pod>) -> Self {
        let (clock, source) = (ManualClock::new(), pods(&server));
        let source = source.clock(&clock);
        Self::over(server, "pods", source, clock, more)
    }
}

impl<K: Send + Sync + 'static> World<K> {
    pub fn over(
        server: Server,
        plural: &'static str,
        source: impl ListerWatcher<Object = K>,
        clock: ManualClock,
        more: impl FnOnce(InformerBuilder<K>) -> InformerBuilder<K>,
    ) -> Self {
        let told = Told::default();
        let tell = told.clone();
        let backoff = Backoff { jitter: 0.0, ..Backoff::default() };
        let builder = SharedInformer::builder(source).clock(&clock).seed(1).relist_spread(Duration::ZERO).backoff(backoff);
        let builder = builder.observe(move |e| {
            if let InformerEvent::Reflector(e) = e {
                tell.push((*e).clone());
            }
        });
        let informer = more(builder).build().unwrap();
        let stop = Stop::with_clock(&clock);
        Self { handle: None, informer, stop, told, seen: 0, plural, server, clock }
    }

    pub fn start(mut self) -> Self {
        self.handle = Some(self.informer.spawn(&self.stop).unwrap());
        self
    }

    /// Waits until a watch is open.
    #[track_caller]
    pub fn watching(self) -> Self {
        self.server.wait("a watch", |s| s.open_watches() == 1);
        self
    }

    /// The next failure that the hook is told of.
    #[track_caller]
    pub fn failure(&mut self) -> Failure {
        let (at, failure) = self.told.wait(self.seen, "a failure", |e| match e {
            ReflectorEvent::Failed { during, kind, wait, message, .. } => {
                Some(Failure { during: *during, kind: kind.clone(), wait: *wait, message: message.clone() })
            }
            _ => None,
        });
        self.seen = at + 1;
        failure
    }

    /// The next failure, and its wait.
    #[track_caller]
    pub fn sit_out(&mut self) -> Failure {
        let failure = self.failure();
        self.clock.advance(failure.wait);
        failure
    }

    /// Waits until the requests so far are these.
    #[track_caller]
    pub fn asked(&self, what: &str, expected: &[&str]) {
        self.server.wait(what, |s| s.asked().len() >= expected.len());
        assert_eq!(self.server.asked(), expected, "{what}");
    }

    /// What the store has: keys and versions.
    pub fn stored(&self) -> BTreeMap<String, String> {
        let snapshot = self.informer.store().snapshot();
        snapshot.objects().map(|o| (Object::key(o).to_string(), Object::version(o).to_string())).collect()
    }

    /// Waits until the store has what the server has.
    #[track_caller]
    pub fn agrees(&self, what: &str) {
        self.server.wait(what, |s| self.stored() == s.truth(self.plural));
    }

    /// Stops it from this thread; it has to end by itself.
    #[track_caller]
    pub fn end(&mut self, what: &str) {
        let handle = self.handle.take().expect("it was started");
        self.stop.stop();
        let (ended, end) = mpsc::channel();
        thread::spawn(move || ended.send(handle.join().map_err(|e| e.to_string())));
        let end = end.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what}: it did not stop within {PATIENCE:?}"));
        assert_eq!(end, Ok(()), "{what}");
    }
}
