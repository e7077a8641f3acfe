//! [`RealFifo`] as the peer's RealFIFO with atomic events.
//!
//! Keys and transforms live at ingest here, so this file has an ingest: it makes objects, refuses bad keys, transforms,
//! and leaves bookmarks out when they are off. Where a batch ends is the taker's business: the replay takes as many
//! deltas as the peer's batch had.

use crate::trace::{Deviation, Replay, Room, Seen, Step, Trace, array, text_of};
use informer::{
    flow::{Deleted, Delta, DeltaSink, KeyError, Meta, Object, ObjectKey, SinkError},
    queue::{Closed, RealFifo},
    sync::{ManualClock, Synced},
};
use serde_json::{Value, json};

pub fn replay(trace: &Trace) -> Result<Replay, &'static str> {
    if trace.config["known"] != "none" {
        return Err("real_fifo, with known objects");
    }
    let clock = ManualClock::new();
    let room = Fifo { queue: RealFifo::new("replay", &clock), transform: transform(&trace.config), _clock: clock };
    Ok(Replay {
        room: Box::new(room),
        deviations: &[NO_SYNC_ALL, CLOSED_AT_ONCE, SYNCED_BY_THE_WHOLE_STATE],
        // `populated` and `initial` are the peer's counters. `single` says which of two callbacks was used; here is none.
        hidden: &["populated", "initial", "single"],
        // How the peer's insides stand is recorded for information; none of ours is a SyncAll.
        in_our_words: |seen| {
            if let Some(Value::Array(items)) = seen.get_mut("items") {
                items.retain(|item| item[0] != "SyncAll");
            }
        },
    })
}

/// A resync is made by each listener's own clock, so none travels in the queue: the peer's pop of one is no pop.
const NO_SYNC_ALL: Deviation = Deviation {
    name: "no SyncAll in the queue",
    expected: |trace, at, seen| {
        if only_sync_all(&trace.steps[at]) {
            for name in ["err", "in_initial_list", "returned", "synced_during"] {
                seen.remove(name);
            }
            seen.insert("deltas".to_owned(), json!([]));
        }
    },
};

/// A closed queue hands out nothing and takes nothing in; the peer's still does both.
const CLOSED_AT_ONCE: Deviation = Deviation {
    name: "closed at once",
    expected: |trace, at, seen| {
        let step = &trace.steps[at];
        if closed(trace).is_none_or(|closed| at < closed) {
            return;
        }
        if let Some(items) = seen.get_mut("items") {
            *items = json!([]);
        }
        if step.is_pop() && !only_sync_all(step) {
            for name in ["deltas", "in_initial_list", "returned", "synced_during"] {
                seen.remove(name);
            }
            seen.insert("err".to_owned(), json!({"class": "fifo_closed"}));
        }
        if ["add", "update", "delete", "replace", "bookmark"].contains(&&*step.op) {
            seen.insert("err".to_owned(), json!({"class": "fifo_closed"}));
        }
    },
};

/// Synced is the whole state processed, not a count come to zero: nothing else makes it true, a failed processing
/// neither. "In the initial list" is everything taken before. What is recorded otherwise than by the peer's count is
/// explained by nothing.
const SYNCED_BY_THE_WHOLE_STATE: Deviation = Deviation {
    name: "synced by the whole state",
    expected: |trace, at, seen| {
        let end = closed(trace).unwrap_or(usize::MAX);
        let makes_synced =
            |step: &Step| step.obs.get("err") == Some(&Value::Null) && step.deltas().iter().any(|d| d["type"] == "ReplacedAll");
        let ours = trace.steps.iter().take(end).position(makes_synced).unwrap_or(usize::MAX);
        let theirs = synced_by_count(trace).unwrap_or(usize::MAX);
        let rule = |name: &str, first: usize| match name {
            "synced" => first <= at,
            "synced_during" => first < at,
            _ => first >= at,
        };
        for name in ["synced", "synced_during", "in_initial_list"] {
            match seen.get_mut(name) {
                Some(value) if *value == rule(name, theirs) => *value = rule(name, ours).into(),
                _ => {}
            }
        }
    },
};

/// The step at which the peer's queue becomes synced: something was put in and as much taken out as was there after the
/// first whole state, unless that was not the first thing to come.
fn synced_by_count(trace: &Trace) -> Option<usize> {
    let (mut populated, mut initial, mut len) = (false, 0, 0);
    trace.steps.iter().position(|step| {
        let accepted = step.obs.get("err") == Some(&Value::Null);
        match &*step.op {
            "add" | "update" | "delete" => {
                populated = true;
                len += usize::from(accepted);
            }
            "replace" if accepted => {
                len += 1;
                if !populated {
                    (populated, initial) = (true, len);
                }
            }
            "resync" => len += 1,
            "bookmark" if trace.config["bookmarks"] == true => len += 1,
            "pop" | "pop_batch" => {
                len = len.saturating_sub(step.deltas().len());
                initial = initial.saturating_sub(step.deltas().len());
            }
            _ => {}
        }
        populated && initial == 0
    })
}

fn closed(trace: &Trace) -> Option<usize> {
    trace.steps.iter().position(|step| step.op == "close")
}

fn only_sync_all(step: &Step) -> bool {
    let deltas = step.deltas();
    !deltas.is_empty() && deltas.iter().all(|d| d["type"] == "SyncAll")
}

type Transform = fn(&Value) -> Option<Value>;

/// Makes nothing of an object that it fails on.
fn transform(config: &Value) -> Transform {
    fn count(object: &Value) -> Option<Value> {
        let mut object = object.clone();
        object["t"] = (object["t"].as_u64().unwrap_or(0) + 1).into();
        Some(object)
    }
    match text_of(&config["transform"]) {
        "none" => |object| Some(object.clone()),
        "count" => count,
        "fail_a" => |object| if object["name"] == "a" { None } else { count(object) },
        other => panic!("the transform {other} is unknown"),
    }
}

struct Fifo {
    queue: RealFifo<Value>,
    transform: Transform,
    _clock: ManualClock,
}

/// Why an operation took nothing in.
#[derive(Debug)]
enum Refused {
    Key,
    Transform,
    Sink(SinkError),
}

impl From<KeyError> for Refused {
    fn from(_: KeyError) -> Self {
        Self::Key
    }
}

impl Room for Fifo {
    fn step(&mut self, trace: &Trace, at: usize) -> Seen {
        let step = &trace.steps[at];
        let mut seen = Seen::new();
        if step.is_pop() {
            self.pop(step, &mut seen);
        } else {
            match &*step.op {
                "close" => {
                    self.queue.close();
                }
                "is_closed" => {
                    seen.insert("closed".to_owned(), self.queue.is_closed().into());
                }
                _ => {
                    let refused = self.ingest(step, trace.config["bookmarks"] == true).err();
                    let class = refused.map(|refused| match refused {
                        Refused::Key => "key_error",
                        Refused::Transform => "transform_error",
                        Refused::Sink(SinkError::Closed) => "fifo_closed",
                        Refused::Sink(other) => panic!("{other}"),
                    });
                    seen.insert("err".to_owned(), class.map_or(Value::Null, |class| json!({"class": class})));
                }
            }
        }
        seen.insert("synced".to_owned(), self.queue.has_synced().into());
        if step.obs.contains_key("items") {
            seen.insert("items".to_owned(), self.items(trace, at));
        }
        seen
    }
}

impl Fifo {
    fn ingest(&self, step: &Step, bookmarks: bool) -> Result<(), Refused> {
        let args = &step.args;
        let delta = match &*step.op {
            "add" => Delta::Added(self.object(&args["obj"])?),
            "update" => Delta::Updated(self.object(&args["obj"])?),
            "delete" => Delta::Deleted(self.deleted(&args["obj"])?),
            "replace" => Delta::ReplacedAll {
                version: text_of(&args["rv"]).to_owned(),
                objects: array(&args["objs"]).iter().map(|o| self.object(o)).collect::<Result<_, _>>()?,
                kept: Vec::new(),
                complete: true,
                new_era: false,
            },
            "bookmark" if bookmarks => Delta::Bookmark { version: text_of(&args["rv"]).to_owned() },
            "bookmark" | "resync" => return Ok(()),
            other => panic!("the operation {other} is unknown"),
        };
        let mut batch = vec![delta];
        self.queue.apply(&mut batch).map_err(Refused::Sink)?;
        assert!(batch.is_empty(), "a batch that was taken is empty");
        Ok(())
    }

    fn object(&self, raw: &Value) -> Result<Object<Value>, Refused> {
        let key = key_of(raw)?;
        let value = (self.transform)(raw).ok_or(Refused::Transform)?;
        Ok(Object::with_key(key, text_of(&raw["rv"]), text_of(&raw["uid"]), value))
    }

    fn deleted(&self, raw: &Value) -> Result<Deleted<Value>, Refused> {
        let Some(tombstone) = raw.get("tombstone") else { return Ok(Deleted::Observed(self.object(raw)?)) };
        let (namespace, name) = text_of(&tombstone["key"]).split_once('/').unwrap_or(("", text_of(&tombstone["key"])));
        let known = &tombstone["obj"];
        // What a tombstone carries was transformed when it was stored.
        let last_known = (!known.is_null()).then(|| Object::new(meta(known), known.clone())).transpose()?;
        Ok(Deleted::Missed { key: ObjectKey::new(namespace, name)?, last_known })
    }

    fn pop(&self, step: &Step, seen: &mut Seen) {
        if only_sync_all(step) {
            seen.insert("deltas".to_owned(), json!([]));
            return;
        }
        let mut taken = match self.queue.try_take(step.deltas().len().max(1)) {
            Ok(Some(taken)) => taken,
            Ok(None) => {
                seen.insert("would_block".to_owned(), true.into());
                return;
            }
            Err(Closed) => {
                seen.insert("err".to_owned(), json!({"class": "fifo_closed"}));
                return;
            }
        };
        seen.insert("in_initial_list".to_owned(), taken.is_initial().into());
        seen.insert("synced_during".to_owned(), self.queue.has_synced().into());
        seen.insert("returned".to_owned(), taken.deltas().len().into());
        seen.insert("deltas".to_owned(), taken.drain().map(|d| shown(&d)).collect());
        let before = self.queue.uncommitted();
        if step.args["fail"] == true {
            drop(taken);
        } else {
            taken.commit();
        }
        let failed = self.queue.uncommitted() > before;
        seen.insert("err".to_owned(), if failed { json!({"class": "process_error"}) } else { Value::Null });
    }

    /// The queue shows how many wait, not which. At the end of the trace they are taken out to be looked at; before, as
    /// many as are recorded count as those recorded.
    fn items(&self, trace: &Trace, at: usize) -> Value {
        if self.queue.is_closed() {
            return json!(vec!["unknown"; self.queue.len()]);
        }
        if at + 1 == trace.steps.len() {
            let taken = self.queue.try_take(usize::MAX).expect("it is open");
            return taken.map_or_else(|| json!([]), |mut t| t.drain().map(|d| shown_short(&d)).collect());
        }
        let mut items = array(&trace.steps[at].obs["items"]).to_vec();
        items.retain(|item| item[0] != "SyncAll");
        if self.queue.len() == items.len() { items.into() } else { json!(vec!["unknown"; self.queue.len()]) }
    }
}

fn meta(raw: &Value) -> Meta<'_> {
    let [namespace, name, version, uid] = ["ns", "name", "rv", "uid"].map(|field| text_of(&raw[field]));
    Meta { namespace, name, version, uid }
}

fn key_of(raw: &Value) -> Result<ObjectKey, Refused> {
    if raw.get("bad").is_some() {
        return Err(Refused::Key);
    }
    Ok(ObjectKey::new(meta(raw).namespace, meta(raw).name)?)
}

/// A delta in the words of the traces. What the queue's object says of itself goes before what its value says.
fn shown(delta: &Delta<Value>) -> Value {
    let kind = shown_short(delta)[0].take();
    let object = match delta {
        Delta::Added(o) | Delta::Updated(o) | Delta::Deleted(Deleted::Observed(o)) => shown_object(o),
        Delta::Deleted(Deleted::Missed { key, last_known }) => {
            json!({"tombstone": {"key": key.as_str(), "obj": last_known.as_ref().map(shown_object)}})
        }
        Delta::ReplacedAll { version, objects, .. } => {
            let objects: Vec<_> = objects.iter().map(shown_object).collect();
            json!({"replaced_all": {"rv": version, "objs": objects}})
        }
        Delta::Bookmark { version } => json!({"bookmark": {"rv": version}}),
    };
    json!({"type": kind, "obj": object})
}

fn shown_object(object: &Object<Value>) -> Value {
    let mut shown = Value::clone(object);
    let key = Object::key(object);
    shown["ns"] = key.namespace().into();
    shown["name"] = key.name().into();
    shown["rv"] = Object::version(object).as_str().into();
    shown["uid"] = Object::uid(object).as_str().into();
    shown
}

fn shown_short(delta: &Delta<Value>) -> Value {
    let kind = match delta {
        Delta::Added(_) => "Added",
        Delta::Updated(_) => "Updated",
        Delta::Deleted(_) => "Deleted",
        Delta::ReplacedAll { .. } => "ReplacedAll",
        Delta::Bookmark { .. } => "Bookmark",
    };
    json!([kind, delta.key().map_or("", ObjectKey::as_str)])
}
