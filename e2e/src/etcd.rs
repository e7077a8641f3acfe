//! What really happened: every change of every object, read from etcd itself, below the API server and all its caches.
//!
//! An object's version is the number of the change in etcd that made it, so the changes of one key, in order, are exactly
//! what a faithful watch tells. [`History`] follows etcd from its start. When etcd is restored from a copy, numbers begin
//! again: that is a new *era*, which begins with a step for each key ever seen, as the copy has it.

use crate::{api::runtime, cluster::check_interrupted};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::Request;
use http_body_util::BodyExt;
use kube::{Client, Config, client::Body};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// A moment: an era, and a number in it.
pub type Moment = (u32, u64);

/// One change of one key.
#[derive(Clone, Debug)]
pub struct Step {
    pub at: Moment,
    /// Of the content that is compared; `None` when the object is gone.
    pub now: Option<u64>,
}

/// The changes of each key of one collection.
pub type Steps = HashMap<String, Vec<Step>>;

#[derive(Default)]
struct State {
    era: u32,
    /// By folder of etcd's, as `configmaps`.
    all: HashMap<String, Steps>,
    /// The last change read.
    read: u64,
}

#[derive(Clone)]
pub struct History {
    state: Arc<Mutex<State>>,
    port: u16,
}

/// Follows etcd until it is stopped.
pub struct Following {
    end: Arc<tokio::sync::Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.end.notify_one();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the follower of etcd does not panic");
        }
    }
}

fn client(port: u16) -> Client {
    let mut config = Config::new(format!("http://127.0.0.1:{port}").parse().expect("it is an address"));
    config.default_retry = false;
    let _inside = runtime().enter();
    Client::try_from(config).expect("the configuration is good")
}

fn request(path: &str, body: String) -> Request<Vec<u8>> {
    Request::post(path).header("content-type", "application/json").body(body.into_bytes()).expect("the path is well-formed")
}

/// A call of etcd's gateway.
pub fn post(port: u16, path: &str, body: &str) -> Result<Value, String> {
    let client = client(port);
    let asked = tokio_timeout(client.request_text(request(path, body.to_owned())));
    let text = runtime().block_on(asked)?.map_err(|e| e.to_string())?;
    serde_json::from_str(&text).map_err(|e| e.to_string())
}

async fn tokio_timeout<T>(f: impl Future<Output = T>) -> Result<T, String> {
    tokio::time::timeout(Duration::from_secs(20), f).await.map_err(|_| "no answer".to_owned())
}

fn number(v: &Value) -> u64 {
    v.as_str().and_then(|s| s.parse().ok()).unwrap_or(0)
}

/// The number of the last change.
pub fn revision(port: u16) -> u64 {
    number(&post(port, "/v3/kv/range", r#"{"key":"AA=="}"#).expect("etcd answers")["header"]["revision"])
}

/// Everything below `/registry/`, and the moment.
fn range(port: u16, keys_only: bool) -> Result<(Vec<Value>, u64), String> {
    let all = json!({"key": encode("/registry/"), "range_end": encode("/registry0"), "keys_only": keys_only});
    let mut answer = post(port, "/v3/kv/range", &all.to_string())?;
    let revision = number(&answer["header"]["revision"]);
    match answer["kvs"].take() {
        Value::Array(kvs) => Ok((kvs, revision)),
        _ => Ok((Vec::new(), revision)),
    }
}

pub fn encode(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}

fn decode(v: &Value) -> Vec<u8> {
    v.as_str().and_then(|s| BASE64_STANDARD.decode(s).ok()).unwrap_or_default()
}

/// `/registry/configmaps/ns/name` is `ns/name` in `configmaps`; resources that are defined by users have their group in
/// between, `/registry/example.dev/widgets/ns/name`.
fn place(key: &[u8]) -> Option<(String, String)> {
    let key = std::str::from_utf8(key).ok()?.strip_prefix("/registry/")?;
    let parts: Vec<&str> = key.split('/').collect();
    match parts[..] {
        [folder, namespace, name] => Some((folder.to_owned(), format!("{namespace}/{name}"))),
        [group, folder, namespace, name] if group.contains('.') => Some((folder.to_owned(), format!("{namespace}/{name}"))),
        _ => None,
    }
}

/// Of what is compared event by event: labels and data. Both sides make it from the object as JSON.
pub fn digest(object: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    for part in [&object["metadata"]["labels"], &object["data"]] {
        // Keys come in order.
        part.to_string().hash(&mut hasher);
    }
    hasher.finish()
}

impl State {
    fn step(&mut self, key: &[u8], number: u64, object: Option<&[u8]>) {
        let Some((folder, key)) = place(key) else { return };
        let now = object.map(|o| digest(&serde_json::from_slice(o).unwrap_or_default()));
        let at = (self.era, number);
        let steps = self.all.entry(folder).or_default().entry(key).or_default();
        // After a broken stream the same may come again.
        if steps.last().is_none_or(|last| last.at < at) {
            steps.push(Step { at, now });
        }
    }
}

impl History {
    pub fn new(port: u16) -> Self {
        Self { state: Arc::default(), port }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }

    /// Takes what etcd has, and follows it. The first of an era; to be dropped before etcd is stopped for a restore.
    pub fn follow(&self) -> Following {
        let (kvs, revision) = range(self.port, false).expect("etcd answers");
        {
            let mut state = self.state();
            // Whatever is not in the copy is gone as of now.
            let era = state.era;
            for steps in state.all.values_mut().flat_map(HashMap::values_mut) {
                if steps.last().is_some_and(|s| s.at.0 < era) {
                    steps.push(Step { at: (era, 0), now: None });
                }
            }
            for kv in &kvs {
                state.step(&decode(&kv["key"]), number(&kv["mod_revision"]), Some(&decode(&kv["value"])));
            }
            state.read = revision;
        }
        let end = Arc::new(tokio::sync::Notify::new());
        let (history, told) = (self.clone(), end.clone());
        let follow = move || {
            let client = client(history.port);
            let work = async {
                loop {
                    let _broken = history.read_stream(&client).await;
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            };
            runtime().block_on(async {
                tokio::select! { () = work => {}, () = told.notified() => {} }
            });
        };
        let thread = thread::Builder::new().name("history".into()).spawn(follow).expect("a thread can be started");
        Following { end, thread: Some(thread) }
    }

    pub fn era(&self) -> u32 {
        self.state().era
    }

    /// A new era begins: etcd was restored.
    pub fn new_era(&self) {
        self.state().era += 1;
    }

    async fn read_stream(&self, client: &Client) -> Result<(), String> {
        let from = self.state().read + 1;
        let create = json!({"create_request": {
            "key": encode("/registry/"), "range_end": encode("/registry0"), "start_revision": from.to_string()}});
        let asked = request("/v3/watch", create.to_string()).map(Body::from);
        let answer = client.send(asked).await.map_err(|e| e.to_string())?;
        let (mut body, mut text) = (answer.into_body(), Vec::new());
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|e| e.to_string())?.into_data() else { continue };
            text.extend_from_slice(&data);
            while let Some(end) = text.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                let message: Value = serde_json::from_slice(&line).map_err(|e| e.to_string())?;
                self.take(&message["result"])?;
            }
        }
        Ok(())
    }

    fn take(&self, result: &Value) -> Result<(), String> {
        if result["canceled"] == json!(true) {
            return Err(format!("etcd ended the watch: {result}"));
        }
        let mut state = self.state();
        for event in result["events"].as_array().into_iter().flatten() {
            let kv = &event["kv"];
            let number = number(&kv["mod_revision"]);
            let value = (event["type"] != json!("DELETE")).then(|| decode(&kv["value"]));
            state.step(&decode(&kv["key"]), number, value.as_deref());
            state.read = state.read.max(number);
        }
        Ok(())
    }

    /// Waits until the history has every change up to now, and hands out that of one folder.
    pub fn complete(&self, folder: &str) -> Steps {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            check_interrupted();
            let (kvs, _) = range(self.port, true).expect("etcd answers");
            let exist: BTreeMap<String, u64> = kvs
                .iter()
                .filter_map(|kv| {
                    place(&decode(&kv["key"])).filter(|(f, _)| f == folder).map(|(_, k)| (k, number(&kv["mod_revision"])))
                })
                .collect();
            {
                let state = self.state();
                let steps = state.all.get(folder);
                let known: BTreeMap<String, u64> = steps
                    .into_iter()
                    .flatten()
                    .filter_map(|(k, steps)| steps.last().filter(|s| s.now.is_some()).map(|s| (k.clone(), s.at.1)))
                    .collect();
                if known == exist {
                    return steps.cloned().unwrap_or_default();
                }
            }
            assert!(Instant::now() < end, "the history of {folder} does not reach etcd's present");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// What etcd wrote as base64, if it is text.
pub fn decode_text(text: &str) -> Option<String> {
    String::from_utf8(BASE64_STANDARD.decode(text).ok()?).ok()
}
