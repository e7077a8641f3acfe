//! The store, behind the one public door that fills it: an informer, here the decoupled one, so the deltas go through
//! the delta queue. A scripted source says what the peer's store was told: a write is a frame of a watch, a `replace` an
//! expired watch and the list that follows.
//!
//! The key of an object is what the trace says it is, so it is kept beside the object; the object may be null.

use crate::trace::{Deviation, Replay, Room, Seen, Step, Trace, array, text_of};
use informer::{
    flow::{Meta, Object, ObjectKey},
    informer::{Engine, InformerHandle, SharedInformer},
    source::{
        ListEnd, ListParams, ListerWatcher, Next, SourceError, SourceErrorKind, Undecodable, WatchEvent, WatchParams, WatchStream,
    },
    store::{Index, IndexError, Snapshot},
    sync::{Deadline, ManualClock, Stop, Wake, Woken, call_out::assert_contained},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::ControlFlow,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

const INDICES: [&str; 4] = ["ns", "app", "tags", "boom"];

/// The version that an informer begins with when the first that a trace does is a write.
const FIRST: &str = "0";

pub fn replay(trace: &Trace) -> Result<Replay, &'static str> {
    Ok(Replay {
        room: Box::new(Store::new(array(&trace.config["indexers"]).iter().map(text_of))),
        deviations: &[REFUSED_WHOLE, A_LIST_HAS_A_VERSION, IT_BEGINS_WITH_A_LIST, AN_UNKNOWN_INDEX_IS_AN_ERROR],
        hidden: &[],
        in_our_words: |seen| {
            if let Some(Value::Array(objects)) = seen.get_mut("objs") {
                sort(objects);
            }
        },
    })
}

/// B-61. The peer stores first and panics then, with the item stored and its indices as they were.
const REFUSED_WHOLE: Deviation = Deviation {
    name: "an update that an index refuses is refused whole",
    expected: |trace, at, seen| {
        if array(&trace.config["indexers"]).iter().any(|index| index == "boom") {
            Plain::after(trace, at).shows(&trace.steps[at], seen);
        }
    },
};

/// The peer forgets its version with such a list. Ours asks for another one, and shows what it has until then.
const A_LIST_HAS_A_VERSION: Deviation = Deviation {
    name: "a list without a version is refused",
    expected: |trace, at, seen| {
        let refused = |step: &Step| step.op == "replace" && step.args["rv"] == "";
        if trace.steps[..=at].iter().rfind(|step| step.op == "replace").is_some_and(refused) {
            Plain::after(trace, at).shows(&trace.steps[at], seen);
        }
    },
};

/// An object that is null has no version.
const IT_BEGINS_WITH_A_LIST: Deviation = Deviation {
    name: "a store that is written to has a version",
    expected: |trace, at, seen| {
        if seen["last_rv"] == "" && trace.steps[..=at].iter().any(|step| writes(&step.op)) {
            seen.insert("last_rv".to_owned(), FIRST.into());
        }
    },
};

fn writes(op: &str) -> bool {
    ["add", "update", "delete", "delete_with_object", "transaction", "bookmark", "replace"].contains(&op)
}

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

/// What a trace does to a plain map in which an object that fails and a list without a version change nothing. For the
/// steps that the traces with such have.
#[derive(Default)]
struct Plain {
    objects: BTreeMap<String, Value>,
    version: String,
}

impl Plain {
    fn after(trace: &Trace, at: usize) -> Self {
        let mut plain = Self::default();
        for Step { op, args, .. } in &trace.steps[..=at] {
            let key = args["key"].as_str().unwrap_or_default().to_owned();
            match &**op {
                "add" | "update" => {
                    plain.version = text_of(&args["obj"]["rv"]).to_owned();
                    if !fails(&args["obj"]) {
                        plain.objects.insert(key, args["obj"].clone());
                    }
                }
                "delete" => drop(plain.objects.remove(&key)),
                "replace" if args["rv"] != "" => {
                    plain.version = text_of(&args["rv"]).to_owned();
                    let items = array(&args["items"]).iter();
                    plain.objects = items.map(|item| (text_of(&item[0]).to_owned(), item[1].clone())).collect();
                }
                _ => {}
            }
        }
        plain
    }

    fn shows(&self, Step { op, args, .. }: &Step, seen: &mut Seen) {
        let mut says = |name: &str, value: Value| drop(seen.insert(name.to_owned(), value));
        says("keys", json!(self.objects.keys().collect::<Vec<_>>()));
        says("last_rv", json!(self.version));
        let of = |index: &str| {
            let emitted =
                self.objects.values().flat_map(move |object| values_of(index, object).into_iter().map(move |v| (v, object)));
            emitted.collect::<Vec<_>>()
        };
        match &**op {
            "add" | "update" => says("panicked", fails(&args["obj"]).into()),
            "delete" => says("panicked", false.into()),
            "get" => {
                let object = self.objects.get(text_of(&args["key"]));
                says("found", object.is_some().into());
                says("obj", object.cloned().unwrap_or_default());
            }
            "by_index" => {
                let found = of(text_of(&args["index"])).into_iter().filter(|(value, _)| *value == args["value"]);
                let mut objects: Vec<Value> = found.map(|(_, object)| object.clone()).collect();
                sort(&mut objects);
                says("objs", objects.into());
            }
            "list_index_values" => {
                let values: BTreeSet<String> = of(text_of(&args["index"])).into_iter().map(|(value, _)| value).collect();
                says("values", json!(values));
            }
            _ => {}
        }
    }
}

/// What a write tells the source's stream.
enum Frame {
    Event(WatchEvent<Keyed>),
    Expired,
}

/// An object under its key.
#[derive(Clone)]
struct Keyed {
    key: ObjectKey,
    object: Value,
}

impl Keyed {
    fn new(key: &Value, object: Value) -> Self {
        let (namespace, name) = text_of(key).split_once('/').unwrap_or(("", text_of(key)));
        Self { key: ObjectKey::new(namespace, name).expect("a key"), object }
    }
}

#[derive(Default)]
struct Script {
    version: String,
    objects: Vec<Keyed>,
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
    type Object = Keyed;

    fn meta<'a>(&self, Keyed { key, object }: &'a Keyed) -> Meta<'a> {
        let [version, uid] = ["rv", "uid"].map(|field| object[field].as_str().unwrap_or_default());
        Meta { namespace: key.namespace(), name: key.name(), version, uid }
    }

    fn list(
        &self,
        _: &Stop,
        _: &ListParams,
        sink: &mut dyn FnMut(Result<Keyed, Undecodable>) -> ControlFlow<()>,
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

    fn watch(&self, _: &Stop, _: &WatchParams) -> Result<Box<dyn WatchStream<Keyed>>, SourceError> {
        Ok(Box::new(Stream(self.clone())))
    }
}

struct Stream(Source);

impl WatchStream<Keyed> for Stream {
    fn next(&mut self, wake: &Wake, deadline: Deadline) -> Next<Keyed> {
        self.0.script().wake = Some(wake.clone());
        match wake.wait_until(deadline, || !self.0.script().frames.is_empty()) {
            None => self.ready().unwrap_or(Next::Deadline),
            Some(Woken::Stopped) => Next::Stopped,
            Some(Woken::Nudged) => Next::Woken,
            Some(Woken::Deadline) => Next::Deadline,
        }
    }

    fn ready(&mut self) -> Option<Next<Keyed>> {
        self.0.script().frames.pop_front().map(|frame| match frame {
            Frame::Event(event) => Next::Event(event),
            Frame::Expired => Next::Failed(SourceError::new(SourceErrorKind::Expired)),
        })
    }
}

struct Store {
    clock: ManualClock,
    source: Source,
    informer: SharedInformer<Keyed>,
    stop: Stop,
    thread: Option<InformerHandle>,
    indices: BTreeSet<String>,
    /// Updates that were refused so far.
    refused: u64,
    /// The last list was: it will be asked for again.
    lists: bool,
    /// How often an index function failed.
    failed: Arc<AtomicUsize>,
}

impl Store {
    fn new<'a>(indices: impl Iterator<Item = &'a str>) -> Self {
        let clock = ManualClock::new();
        let source = Source::default();
        let (failed, indices) = (Arc::new(AtomicUsize::new(0)), indices.map(str::to_owned).collect::<BTreeSet<_>>());
        let mut builder = SharedInformer::builder(source.clone())
            .clock(&clock)
            .engine(Engine::Decoupled)
            .relist_spread(Duration::ZERO)
            .watch_timeout(Duration::from_secs(1 << 30)..=Duration::from_secs(1 << 30));
        for name in &indices {
            builder = builder.index(name, function(name, &failed));
        }
        let informer = builder.build().expect("an informer");
        let (stop, thread, refused, lists) = (Stop::new(), None, 0, false);
        Self { clock, source, informer, stop, thread, indices, refused, lists, failed }
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

    fn list(&self, version: &str, objects: Vec<Keyed>) {
        let mut script = self.source.script();
        (script.version, script.objects) = (version.to_owned(), objects);
    }

    fn tell(&mut self, frames: impl IntoIterator<Item = Frame>) {
        if self.thread.is_none() {
            self.list(FIRST, Vec::new());
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
        self.informer.store().index(text_of(&step.args["index"])).ok()
    }

    /// Whether an update was refused since this was last asked.
    fn refuses(&mut self) -> Value {
        let before = std::mem::replace(&mut self.refused, self.informer.failures().refused_objects);
        (self.refused > before).into()
    }
}

fn function(index: &str, failed: &Arc<AtomicUsize>) -> impl Fn(&Keyed, &mut dyn FnMut(String)) + Send + Sync + 'static {
    assert!(INDICES.contains(&index), "the index {index} is unknown");
    let (index, failed) = (index.to_owned(), failed.clone());
    move |Keyed { object, .. }, emit| {
        if index == "boom" && fails(object) {
            failed.fetch_add(1, Ordering::Relaxed);
            panic!("boom");
        }
        values_of(&index, object).into_iter().for_each(emit);
    }
}

/// Whether the peer's index function `boom` fails for it.
fn fails(object: &Value) -> bool {
    object["labels"]["boom"] == "yes"
}

/// What the peer's index functions emit.
fn values_of(index: &str, object: &Value) -> Vec<String> {
    let label = |name: &str| object["labels"].get(name).map(text_of);
    match index {
        _ if object.is_null() => Vec::new(),
        "boom" => vec!["fine".to_owned()],
        "ns" => vec![text_of(&object["ns"]).to_owned()],
        "app" => label("app").map(str::to_owned).into_iter().collect(),
        _ => label("tags").into_iter().flat_map(|tags| tags.split('.')).map(str::to_owned).collect(),
    }
}

fn write(op: &str, key: &Value, object: Option<&Value>) -> Frame {
    // The peer's bare delete has a key only.
    let keyed = Keyed::new(key, object.cloned().unwrap_or_default());
    Frame::Event(match op {
        "add" => WatchEvent::Added(keyed),
        "update" => WatchEvent::Modified(keyed),
        _ => WatchEvent::Deleted(keyed),
    })
}

fn sort(objects: &mut [Value]) {
    objects.sort_by_cached_key(Value::to_string);
}

fn shown<'a>(objects: impl IntoIterator<Item = &'a Object<Keyed>>) -> Value {
    let mut objects: Vec<Value> = objects.into_iter().map(|o| o.object.clone()).collect();
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
        let snapshot: Snapshot<Keyed> = self.informer.store().snapshot();
        match &*step.op {
            "add" | "update" | "delete" | "delete_with_object" => {
                self.tell([write(&step.op, &args["key"], args.get("obj"))]);
                see("panicked", self.refuses());
            }
            "transaction" => {
                let writes = array(&args["txns"]).iter();
                self.tell(writes.map(|txn| write(text_of(&txn["op"]), &txn["key"], txn.get("obj"))));
                see("panicked", self.refuses());
            }
            "bookmark" => {
                let version = text_of(&args["rv"]).to_owned();
                self.tell([Frame::Event(WatchEvent::Bookmark { version, initial_events_end: false })]);
            }
            "replace" => {
                let version = text_of(&args["rv"]);
                self.list(version, array(&args["items"]).iter().map(|item| Keyed::new(&item[0], item[1].clone())).collect());
                let lists = std::mem::replace(&mut self.lists, version.is_empty());
                if !self.begin() {
                    if !lists {
                        self.tell([Frame::Expired]);
                    }
                    // Lists after expired watches that follow each other closely are put off.
                    self.clock.advance(Duration::from_secs(60));
                }
                see("panicked", self.refuses());
            }
            "get" => {
                let stored = snapshot.get(&Keyed::new(&args["key"], Value::Null).key);
                see("found", stored.is_some().into());
                see("obj", stored.map(|keyed| keyed.object.clone()).unwrap_or_default());
            }
            "list" => see("objs", shown(snapshot.objects())),
            "index" => {
                // The trace's object is a sample only; the peer has no key for it.
                let sample = Keyed::new(&"sample".into(), args["obj"].clone());
                let found = self.index(step).map(|index| snapshot.by_sample(&index, &sample).map(shown));
                let (err, objects) = match found {
                    None => (refused(), json!([])),
                    Some(Ok(objects)) => (Value::Null, objects),
                    Some(Err(IndexError::Failed { .. })) => (json!({"class": "index_func_failed"}), json!([])),
                    Some(Err(why)) => panic!("{why}"),
                };
                see("err", err);
                see("objs", objects);
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
                // Several are one call of the peer. (Where a trace names one that is there already, that is the first.)
                let added = args["names"].as_array().into_iter().flatten().map(text_of).try_for_each(|name| {
                    self.informer.add_index(name, function(name, &self.failed))?;
                    self.indices.insert(name.to_owned());
                    Ok(())
                });
                see(
                    "err",
                    match added {
                        Ok(()) => Value::Null,
                        Err(IndexError::Duplicate { .. }) => json!({"class": "indexer_conflict"}),
                        Err(why) => panic!("{why}"),
                    },
                );
                see("indexers", json!(self.indices));
                see("panicked", false.into());
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
            assert_contained(&self.clock, &vec!["boom"; self.failed.load(Ordering::Relaxed)]);
        }
    }
}
