//! The store, behind the one public door that fills it: an informer, here the decoupled one, so the deltas go through
//! the delta queue. A scripted source says what the peer's store was told: a write is a frame of a watch, a `replace` an
//! expired watch and the list that follows.
//!
//! Indices are named when an informer is built. All that a trace ever has are there from the start; one that the trace
//! adds later is not asked before.

use crate::trace::{Deviation, Replay, Room, Seen, Step, Trace, array, text_of};
use informer::{
    flow::{Meta, Object, ObjectKey},
    informer::{Engine, InformerHandle, SharedInformer},
    source::{
        ListEnd, ListParams, ListerWatcher, Next, SourceError, SourceErrorKind, Undecodable, WatchEvent, WatchParams, WatchStream,
    },
    store::{Index, Snapshot},
    sync::{Deadline, ManualClock, Stop, Wake, Woken},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeSet, VecDeque},
    ops::ControlFlow,
    sync::{Arc, Mutex},
    time::Duration,
};

const INDICES: [&str; 3] = ["ns", "app", "tags"];

pub fn replay(trace: &Trace) -> Result<Replay, &'static str> {
    let has = |name: &str| array(&trace.config["indexers"]).iter().any(|i| i == name);
    if has("boom") {
        return Err("thread_safe_store, with an index that fails");
    }
    if trace.steps.iter().any(|step| step.args.get("obj") == Some(&Value::Null)) {
        return Err("thread_safe_store, with objects that are null");
    }
    if trace.steps.iter().any(|step| step.op == "replace" && step.args["rv"] == "") {
        return Err("thread_safe_store, replaced without a version");
    }
    Ok(Replay {
        room: Box::new(Store::new(INDICES.into_iter().filter(|name| has(name)))),
        deviations: &[NO_INDEX_IS_ADDED, AN_UNKNOWN_INDEX_IS_AN_ERROR],
        hidden: &[],
        in_our_words: |seen| {
            if let Some(Value::Array(objects)) = seen.get_mut("objs") {
                sort(objects);
            }
        },
    })
}

/// There is no door to add an index by.
const NO_INDEX_IS_ADDED: Deviation = Deviation {
    name: "indices are named when the informer is built",
    expected: |trace, at, seen| {
        if trace.steps[at].op == "add_indexers" {
            for name in ["err", "indexers", "panicked"] {
                seen.remove(name);
            }
        }
    },
};

/// The peer says that an unknown index has no values.
const AN_UNKNOWN_INDEX_IS_AN_ERROR: Deviation = Deviation {
    name: "the values of an unknown index are an error",
    expected: |trace, at, seen| {
        let step = &trace.steps[at];
        if step.op == "list_index_values" && !known_indices(trace, at).contains(text_of(&step.args["index"])) {
            seen.remove("values");
            seen.insert("err".to_owned(), json!({"class": "no_such_index"}));
        }
    },
};

/// The indices that the peer's store has at a step.
fn known_indices(trace: &Trace, at: usize) -> BTreeSet<&str> {
    let added = trace.steps[..at].iter().filter(|step| adds_indices(step)).flat_map(|step| array(&step.args["names"]));
    array(&trace.config["indexers"]).iter().chain(added).map(text_of).collect()
}

fn adds_indices(step: &Step) -> bool {
    step.op == "add_indexers" && step.obs["err"].is_null() && !step.args["names"].is_null()
}

/// What a write tells the source's stream.
enum Frame {
    Event(WatchEvent<Value>),
    Expired,
}

#[derive(Default)]
struct Script {
    version: String,
    objects: Vec<Value>,
    frames: VecDeque<Frame>,
    wake: Option<Wake>,
}

#[derive(Clone, Default)]
struct Source(Arc<Mutex<Script>>);

impl Source {
    fn script(&self) -> std::sync::MutexGuard<'_, Script> {
        self.0.lock().expect("nobody panics with the script")
    }
}

impl ListerWatcher for Source {
    type Object = Value;

    fn meta<'a>(&self, object: &'a Value) -> Meta<'a> {
        let [namespace, name, version, uid] = ["ns", "name", "rv", "uid"].map(|field| text_of(&object[field]));
        Meta { namespace, name, version, uid }
    }

    fn list(
        &self,
        _: &Stop,
        _: &ListParams,
        sink: &mut dyn FnMut(Result<Value, Undecodable>) -> ControlFlow<()>,
    ) -> Result<ListEnd, SourceError> {
        let (version, objects) = {
            let script = self.script();
            (script.version.clone(), script.objects.clone())
        };
        for object in objects {
            if sink(Ok(object)).is_break() {
                break;
            }
        }
        Ok(ListEnd { version, continue_token: None })
    }

    fn watch(&self, _: &Stop, _: &WatchParams) -> Result<Box<dyn WatchStream<Value>>, SourceError> {
        Ok(Box::new(Stream(self.clone())))
    }
}

struct Stream(Source);

impl WatchStream<Value> for Stream {
    fn next(&mut self, wake: &Wake, deadline: Deadline) -> Next<Value> {
        self.0.script().wake = Some(wake.clone());
        match wake.wait_until(deadline, || !self.0.script().frames.is_empty()) {
            None => self.ready().unwrap_or(Next::Deadline),
            Some(Woken::Stopped) => Next::Stopped,
            Some(Woken::Nudged) => Next::Woken,
            Some(Woken::Deadline) => Next::Deadline,
        }
    }

    fn ready(&mut self) -> Option<Next<Value>> {
        self.0.script().frames.pop_front().map(|frame| match frame {
            Frame::Event(event) => Next::Event(event),
            Frame::Expired => Next::Failed(SourceError::new(SourceErrorKind::Expired)),
        })
    }
}

struct Store {
    clock: ManualClock,
    source: Source,
    informer: SharedInformer<Value>,
    stop: Stop,
    thread: Option<InformerHandle>,
    /// The indices that may be asked.
    indices: BTreeSet<String>,
}

impl Store {
    fn new<'a>(indices: impl Iterator<Item = &'a str>) -> Self {
        let clock = ManualClock::new();
        let source = Source::default();
        let mut builder = SharedInformer::builder(source.clone())
            .clock(&clock)
            .engine(Engine::Decoupled)
            .relist_spread(Duration::ZERO)
            .watch_timeout(Duration::from_secs(1 << 30)..=Duration::from_secs(1 << 30));
        for name in INDICES {
            builder = builder.index(name, move |object: &Value, emit: &mut dyn FnMut(String)| {
                values_of(name, object).into_iter().for_each(emit);
            });
        }
        let informer = builder.build().expect("an informer");
        Self { clock, source, informer, stop: Stop::new(), thread: None, indices: indices.map(str::to_owned).collect() }
    }

    /// Runs the informer, from what the script lists, unless it runs already: a store that nothing was written to has no
    /// version. Says whether it did.
    fn begin(&mut self) -> bool {
        let new = self.thread.is_none();
        if new {
            self.thread = Some(self.informer.spawn(&self.stop).expect("a thread"));
            self.clock.settle();
        }
        new
    }

    fn list(&self, version: &str, objects: Vec<Value>) {
        let mut script = self.source.script();
        (script.version, script.objects) = (version.to_owned(), objects);
    }

    fn tell(&mut self, frames: impl IntoIterator<Item = Frame>) {
        if self.thread.is_none() {
            self.list("0", Vec::new());
            self.begin();
        }
        let wake = {
            let mut script = self.source.script();
            script.frames.extend(frames);
            script.wake.clone()
        };
        wake.expect("the watch is open").poke();
        self.clock.settle();
        let left = self.source.script().frames.len();
        assert_eq!(left, 0, "the informer takes every frame");
    }

    fn index(&self, step: &Step) -> Option<Index<String>> {
        let name = text_of(&step.args["index"]);
        if INDICES.contains(&name) && !self.indices.contains(name) {
            return None;
        }
        self.informer.store().index(name).ok()
    }
}

/// What the peer's index functions emit.
fn values_of(index: &str, object: &Value) -> Vec<String> {
    let label = |name: &str| object["labels"].get(name).map(text_of);
    match index {
        "ns" => vec![text_of(&object["ns"]).to_owned()],
        "app" => label("app").map(str::to_owned).into_iter().collect(),
        _ => label("tags").into_iter().flat_map(|tags| tags.split('.')).map(str::to_owned).collect(),
    }
}

fn write(op: &str, key: &Value, object: Option<&Value>) -> Frame {
    let object = object.cloned().unwrap_or_else(|| {
        // The peer's bare delete has a key only, and no version.
        let (namespace, name) = text_of(key).split_once('/').unwrap_or(("", text_of(key)));
        json!({"ns": namespace, "name": name, "rv": "", "uid": ""})
    });
    Frame::Event(match op {
        "add" => WatchEvent::Added(object),
        "update" => WatchEvent::Modified(object),
        _ => WatchEvent::Deleted(object),
    })
}

fn sort(objects: &mut [Value]) {
    objects.sort_by_cached_key(Value::to_string);
}

fn shown<'a>(objects: impl IntoIterator<Item = &'a Object<Value>>) -> Value {
    let mut objects: Vec<Value> = objects.into_iter().map(|o| Value::clone(o)).collect();
    sort(&mut objects);
    objects.into()
}

impl Room for Store {
    fn step(&mut self, trace: &Trace, at: usize) -> Seen {
        let step = &trace.steps[at];
        let args = &step.args;
        let refused = || json!({"class": "no_such_index"});
        let mut seen = Seen::new();
        let mut see = |name: &str, value: Value| drop(seen.insert(name.to_owned(), value));
        let snapshot: Snapshot<Value> = self.informer.store().snapshot();
        match &*step.op {
            "add" | "update" | "delete" | "delete_with_object" => {
                self.tell([write(&step.op, &args["key"], args.get("obj"))]);
                see("panicked", (self.informer.failures().refused_objects > 0).into());
            }
            "transaction" => {
                let writes = array(&args["txns"]).iter();
                self.tell(writes.map(|txn| write(text_of(&txn["op"]), &txn["key"], txn.get("obj"))));
                see("panicked", (self.informer.failures().refused_objects > 0).into());
            }
            "bookmark" => {
                let version = text_of(&args["rv"]).to_owned();
                self.tell([Frame::Event(WatchEvent::Bookmark { version, initial_events_end: false })]);
            }
            "replace" => {
                self.list(text_of(&args["rv"]), array(&args["items"]).iter().map(|item| item[1].clone()).collect());
                if !self.begin() {
                    self.tell([Frame::Expired]);
                    // Lists after expired watches that follow each other closely are put off.
                    self.clock.advance(Duration::from_secs(60));
                }
                see("panicked", (self.informer.failures().refused_objects > 0).into());
            }
            "get" => {
                let (namespace, name) = text_of(&args["key"]).split_once('/').unwrap_or(("", text_of(&args["key"])));
                let key = ObjectKey::new(namespace, name).expect("a key");
                see("found", snapshot.get(&key).is_some().into());
                see("obj", snapshot.get(&key).cloned().unwrap_or_default());
            }
            "list" => see("objs", shown(snapshot.objects())),
            "index" => {
                // What shares a value with an object, once each: a union of what the store has by value.
                let values = values_of(text_of(&args["index"]), &args["obj"]);
                let keys = self.index(step).map(|index| {
                    let of = |value: &String| snapshot.index_keys(&index, value).expect("it has it").cloned().collect::<Vec<_>>();
                    values.iter().flat_map(of).collect::<BTreeSet<_>>()
                });
                see("err", if keys.is_some() { Value::Null } else { refused() });
                see("objs", shown(keys.iter().flatten().filter_map(|key| snapshot.object(key))));
                see("panicked", false.into());
            }
            "by_index" => {
                let objects = self.index(step).map(|index| {
                    let objects = snapshot.by_index(&index, text_of(&args["value"])).expect("it has it");
                    shown(objects)
                });
                see("err", if objects.is_some() { Value::Null } else { refused() });
                see("objs", objects.unwrap_or_else(|| json!([])));
            }
            "index_keys" => {
                let keys = self.index(step).map(|index| {
                    let keys = snapshot.index_keys(&index, text_of(&args["value"])).expect("it has it");
                    keys.map(|key| Value::from(key.as_str())).collect::<Value>()
                });
                see("err", if keys.is_some() { Value::Null } else { refused() });
                see("keys_of_value", keys.unwrap_or_else(|| json!([])));
            }
            "list_index_values" => match self.index(step) {
                Some(index) => see("values", json!(snapshot.index_values(&index).expect("it has it"))),
                None => see("err", refused()),
            },
            "add_indexers" => {
                if adds_indices(step) {
                    self.indices.extend(array(&args["names"]).iter().map(|name| text_of(name).to_owned()));
                }
            }
            other => panic!("the operation {other} is unknown"),
        }
        let snapshot = self.informer.store().snapshot();
        let mut keys: Vec<&str> = snapshot.keys().map(ObjectKey::as_str).collect();
        keys.sort_unstable();
        see("keys", json!(keys));
        see("last_rv", snapshot.version().into());
        seen
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take().filter(|_| !std::thread::panicking()) {
            thread.join().expect("the informer ends well");
        }
    }
}
