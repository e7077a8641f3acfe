//! One informer under test: typed, dynamic or of metadata alone, with a handler that records every call.

use crate::{
    api::{self, Api, Refused},
    etcd::digest,
    judge::Recorder,
};
use informer::{
    flow::Object,
    informer::{Engine, InformerHandle, Registration, SharedInformer},
    kube::{Io, KubeSource},
    reflector::{Backoff, InitialState},
    sync::{Stop, Synced},
};
use kube::{Client, Resource};
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};

/// A collection of the server.
#[derive(Clone, Copy, Debug)]
pub struct Collection {
    /// Of all namespaces, for lists.
    pub all: &'static str,
    /// Of the namespace that this program writes to.
    pub ours: &'static str,
    /// Its folder in etcd.
    pub folder: &'static str,
}

pub const CONFIG_MAPS: Collection =
    Collection { all: "/api/v1/configmaps", ours: "/api/v1/namespaces/e2e/configmaps", folder: "configmaps" };
pub const PODS: Collection = Collection { all: "/api/v1/pods", ours: "/api/v1/namespaces/e2e/pods", folder: "pods" };
pub const WIDGETS: Collection =
    Collection { all: "/apis/example.dev/v1/widgets", ours: "/apis/example.dev/v1/namespaces/e2e/widgets", folder: "widgets" };

/// How an informer is built; what is not here is as the crate has it by default.
#[derive(Clone, Copy, Debug)]
pub struct How {
    pub initial: InitialState,
    pub page: Option<u32>,
    pub engine: Engine,
    /// Short, so that what happens every few minutes happens every few seconds.
    pub watch: (u64, u64),
    pub seed: u64,
    /// The era of the history in which it begins.
    pub era: u32,
}

impl How {
    pub fn new(seed: u64, era: u32) -> Self {
        Self { initial: InitialState::Any, page: None, engine: Engine::Merged, watch: (3, 6), seed, era }
    }

    pub fn most_recent(self, page: u32) -> Self {
        Self { initial: InitialState::MostRecent, page: Some(page), ..self }
    }

    pub fn streamed(self) -> Self {
        Self { initial: InitialState::Streamed, ..self }
    }

    pub fn decoupled(self) -> Self {
        Self { engine: Engine::Decoupled, ..self }
    }
}

/// An informer under test, whatever its type.
pub trait Watcher {
    fn name(&self) -> &str;
    fn collection(&self) -> Collection;
    fn recorder(&self) -> &Recorder;
    fn wait_synced(&self, limit: Duration) -> Result<(), String>;
    /// Whether the handler has been told of all that is stored.
    fn is_idle(&self) -> bool;
    fn versions(&self) -> BTreeMap<String, u64>;
    /// The objects as JSON.
    fn bodies(&self) -> BTreeMap<String, Value>;
    /// The server's objects, in the form that they have here.
    fn truth(&self, api: &Api) -> Result<BTreeMap<String, Value>, Refused>;
    /// Ends it, and waits for the end.
    fn end(self: Box<Self>) -> Result<(), String>;
}

/// What is done differently for each type.
trait Form: Resource + serde::Serialize + serde::de::DeserializeOwned + Send + Sync + 'static {
    /// Whether the server is asked for metadata alone.
    const METADATA: bool = false;
    fn digest(&self) -> Option<u64>;
}

fn digest_of(o: &impl serde::Serialize) -> Option<u64> {
    Some(digest(&serde_json::to_value(o).expect("an object can be written")))
}

impl Form for k8s_openapi::api::core::v1::ConfigMap {
    fn digest(&self) -> Option<u64> {
        digest_of(self)
    }
}

impl Form for k8s_openapi::api::core::v1::Pod {
    fn digest(&self) -> Option<u64> {
        // Without its `spec`, which is not compared and dear to write.
        digest_of(&json!({"metadata": {"labels": self.metadata.labels}}))
    }
}

impl Form for kube::api::DynamicObject {
    fn digest(&self) -> Option<u64> {
        digest_of(self)
    }
}

impl<K: Clone + std::fmt::Debug + 'static> Form for kube::api::PartialObjectMeta<K>
where
    Self: Resource + serde::Serialize + serde::de::DeserializeOwned + Send + Sync,
{
    const METADATA: bool = true;
    fn digest(&self) -> Option<u64> {
        None
    }
}

struct One<K> {
    name: String,
    collection: Collection,
    informer: SharedInformer<K>,
    registration: Registration<K>,
    recorder: Recorder,
    stop: Stop,
    handle: InformerHandle,
}

/// Where informers get their objects.
#[derive(Clone)]
pub struct Kube {
    pub io: Io,
    pub client: Client,
}

impl Kube {
    pub fn new(config: kube::Config) -> Self {
        let io = Io::shared().expect("a thread can be started");
        let client = io.client(config).expect("the configuration is good");
        Self { io, client }
    }

    /// Over HTTP/2: one connection for all watches, which is pinged.
    pub fn http2(config: kube::Config) -> Self {
        let io = Io::shared().expect("a thread can be started");
        let client = io.http2_client(config).expect("the configuration is good");
        Self { io, client }
    }

    pub fn config_maps(&self, name: &str, how: How) -> Box<dyn Watcher> {
        start::<k8s_openapi::api::core::v1::ConfigMap>(KubeSource::new(&self.io, self.client.clone()), name, CONFIG_MAPS, how)
    }

    pub fn config_maps_metadata(&self, name: &str, how: How) -> Box<dyn Watcher> {
        type Meta = kube::api::PartialObjectMeta<k8s_openapi::api::core::v1::ConfigMap>;
        start::<Meta>(KubeSource::new(&self.io, self.client.clone()), name, CONFIG_MAPS, how)
    }

    pub fn pods(&self, name: &str, how: How) -> Box<dyn Watcher> {
        start::<k8s_openapi::api::core::v1::Pod>(KubeSource::new(&self.io, self.client.clone()), name, PODS, how)
    }

    pub fn pods_dynamic(&self, name: &str, how: How) -> Box<dyn Watcher> {
        let kind = kube::api::ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
        start::<kube::api::DynamicObject>(KubeSource::with(&self.io, self.client.clone(), kind), name, PODS, how)
    }

    pub fn widgets(&self, name: &str, how: How) -> Box<dyn Watcher> {
        start::<kube::api::DynamicObject>(KubeSource::with(&self.io, self.client.clone(), widget()), name, WIDGETS, how)
    }

    pub fn widgets_metadata(&self, name: &str, how: How) -> Box<dyn Watcher> {
        type Meta = kube::api::PartialObjectMeta<kube::api::DynamicObject>;
        start::<Meta>(KubeSource::with(&self.io, self.client.clone(), widget()), name, WIDGETS, how)
    }
}

fn widget() -> kube::api::ApiResource {
    let kind = kube::api::GroupVersionKind::gvk("example.dev", "v1", "Widget");
    kube::api::ApiResource::from_gvk_with_plural(&kind, "widgets")
}

fn start<K: Form>(source: KubeSource<K>, name: &str, collection: Collection, how: How) -> Box<dyn Watcher>
where
    KubeSource<K>: informer::source::ListerWatcher<Object = K>,
{
    let recorder = Recorder::beginning_in(how.era);
    let (hook, tape) = (recorder.clone(), recorder.clone());
    let seconds = Duration::from_secs;
    let mut builder = SharedInformer::builder(source)
        .name(name)
        .initial(how.initial)
        .engine(how.engine)
        .seed(how.seed)
        .watch_timeout(seconds(how.watch.0)..=seconds(how.watch.1))
        // So that phases are short, and the failures of one do not make the next one wait.
        .backoff(Backoff { cap: seconds(4), reset: seconds(5), ..Backoff::default() })
        .observe(move |e| hook.hook(e));
    if let Some(page) = how.page {
        builder = builder.page_size(page);
    }
    let informer = builder.build().expect("there are no indices");
    let registration = informer.on(move |e| tape.event(e, K::digest)).expect("it has not ended");
    let stop = Stop::new();
    let handle = informer.spawn(&stop).expect("a thread can be started");
    Box::new(One { name: name.to_owned(), collection, informer, registration, recorder, stop, handle })
}

/// An object as JSON. Metadata is said to be of one kind in lists and of another in watches, so without that.
fn written<K: Form>(object: &K) -> Value {
    let mut json = serde_json::to_value(object).expect("an object can be written");
    if K::METADATA {
        for field in ["apiVersion", "kind"] {
            json.as_object_mut().expect("an object is one").remove(field);
        }
    }
    json
}

impl<K: Form> Watcher for One<K> {
    fn name(&self) -> &str {
        &self.name
    }

    fn collection(&self) -> Collection {
        self.collection
    }

    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn wait_synced(&self, limit: Duration) -> Result<(), String> {
        self.registration.wait_synced(limit.into()).map_err(|e| format!("{}: {e}", self.name))
    }

    fn is_idle(&self) -> bool {
        self.registration.is_idle()
    }

    fn versions(&self) -> BTreeMap<String, u64> {
        let version = |o: &Object<K>| Object::version(o).to_string().parse().unwrap_or(0);
        self.informer.store().snapshot().objects().map(|o| (Object::key(o).as_str().to_owned(), version(o))).collect()
    }

    fn bodies(&self) -> BTreeMap<String, Value> {
        let json = |o: &Object<K>| written(&**o);
        self.informer.store().snapshot().objects().map(|o| (Object::key(o).as_str().to_owned(), json(o))).collect()
    }

    fn truth(&self, api: &Api) -> Result<BTreeMap<String, Value>, Refused> {
        let (objects, _) = if K::METADATA { api.list_metadata(self.collection.all)? } else { api.list(self.collection.all)? };
        let kind = ["ConfigMap", "Pod", "Widget"]
            [[CONFIG_MAPS.folder, PODS.folder, WIDGETS.folder].iter().position(|f| *f == self.collection.folder).unwrap_or(0)];
        let version = if kind == "Widget" { "example.dev/v1" } else { "v1" };
        // Items of a list say neither where their kind is served nor its name; a single object does, and so must the
        // store. Read as the type and written again, as the store's objects are.
        let formed = objects.into_iter().map(|(key, mut o)| {
            if !K::METADATA {
                o["apiVersion"] = json!(version);
                o["kind"] = json!(kind);
            }
            let typed: K = serde_json::from_value(o).expect("what the server sends can be read");
            (key, written(&typed))
        });
        Ok(formed.collect())
    }

    fn end(self: Box<Self>) -> Result<(), String> {
        self.stop.stop();
        self.handle.join().map_err(|e| format!("{}: {e}", self.name))
    }
}

/// The definition of the widgets.
pub fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.dev"},
        "spec": {
            "group": "example.dev", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"data": {"type": "object", "additionalProperties": {"type": "string"}}}}}}],
        },
    })
}

/// An object of a collection.
pub fn object(collection: Collection, name: &str, n: u64) -> Value {
    let metadata = json!({"name": name, "namespace": "e2e", "labels": {"n": n.to_string()}});
    let data = json!({"n": n.to_string(), "filling": "0123456789".repeat(16)});
    match collection.folder {
        "pods" => json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {
            "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "nothing"}]}}),
        "widgets" => json!({"apiVersion": "example.dev/v1", "kind": "Widget", "metadata": metadata, "data": data}),
        _ => json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}),
    }
}

/// A change of an object of a collection.
pub fn change(collection: Collection, n: u64) -> Value {
    let labels = json!({"n": n.to_string()});
    match collection.folder {
        "pods" => json!({"metadata": {"labels": labels}}),
        _ => json!({"metadata": {"labels": labels}, "data": {"n": n.to_string()}}),
    }
}

/// The path of an object of ours.
pub fn path(collection: Collection, name: &str) -> String {
    format!("{}/{name}", collection.ours)
}

/// Reaches the server as one of the users.
pub fn kube(cluster: &crate::cluster::Cluster, user: &crate::certs::User) -> Kube {
    Kube::new(api::config(cluster.dir(), cluster.api_port(), user))
}
