//! A trace: what somebody asked of a part of client-go, and what could be seen of it after each step.

use serde_json::{Map, Value};
use std::{collections::BTreeMap, fs, path::Path};

/// What can be seen after a step, by name.
pub type Seen = Map<String, Value>;

#[derive(Clone)]
pub struct Trace {
    pub name: String,
    pub kind: String,
    pub config: Value,
    pub steps: Vec<Step>,
}

#[derive(Clone)]
pub struct Step {
    pub op: String,
    pub args: Value,
    pub obs: Seen,
}

/// Every trace of a folder, in the order of their names. Files of another schema are passed over.
pub fn read_folder(folder: &Path) -> Vec<Trace> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = entries.map(|e| e.expect("an entry of the folder").path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "json"));
    files.sort();
    files.iter().filter_map(|path| read(path)).collect()
}

fn read(path: &Path) -> Option<Trace> {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut file: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    if file.get("schema").and_then(Value::as_str) != Some("informer-oracle/1") {
        return None;
    }
    let steps = match file["steps"].take() {
        Value::Array(steps) => steps.into_iter().map(step).collect(),
        other => panic!("{}: steps are {other}", path.display()),
    };
    let (name, kind) = (text_of(&file["name"]).to_owned(), text_of(&file["kind"]).to_owned());
    Some(Trace { name, kind, config: file["config"].take(), steps })
}

fn step(mut step: Value) -> Step {
    let Value::Object(obs) = step["obs"].take() else { panic!("a step without obs: {step}") };
    Step { op: text_of(&step["op"]).to_owned(), args: step["args"].take(), obs }
}

impl Step {
    pub fn is_pop(&self) -> bool {
        self.op == "pop" || self.op == "pop_batch"
    }

    /// What a pop handed out; nothing for every other step.
    pub fn deltas(&self) -> &[Value] {
        self.obs.get("deltas").map_or(&[], |d| array(d))
    }

    pub fn key(&self) -> &str {
        text_of(&self.args["key"])
    }
}

pub fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}"))
}

pub fn array(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("not an array: {value}"))
}

/// A part of ours, driven as the peer was.
pub trait Room {
    /// Does the step, and says what can be seen then.
    fn step(&mut self, trace: &Trace, at: usize) -> Seen;
}

/// A deliberate difference: turns what was recorded at a step into what is expected of us there. It sees the trace and
/// nothing of ours.
#[derive(Clone, Copy)]
pub struct Deviation {
    pub name: &'static str,
    pub expected: fn(&Trace, usize, &mut Seen),
}

/// How the traces of a kind are replayed.
pub struct Replay {
    pub room: Box<dyn Room>,
    /// In the order in which they apply.
    pub deviations: &'static [Deviation],
    /// What is recorded and has no counterpart here.
    pub hidden: &'static [&'static str],
    /// Says what is recorded in words that fit both; no difference is explained by it.
    pub in_our_words: fn(&mut Seen),
}

/// What came of the traces of one kind.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub traces: usize,
    pub equal: usize,
    pub explained: usize,
    pub different: Vec<String>,
    /// How often each deviation changed what was expected.
    pub hits: BTreeMap<&'static str, usize>,
    /// How often something recorded was not compared.
    pub hidden: BTreeMap<&'static str, usize>,
}

/// Replays one trace to its end, or to the first difference: what follows one proves nothing.
pub fn replay(trace: &Trace, replay: Replay, count: &mut Count) {
    let Replay { mut room, deviations, hidden, in_our_words } = replay;
    count.traces += 1;
    for (at, step) in trace.steps.iter().enumerate() {
        let mut expected = step.obs.clone();
        for &name in hidden {
            if expected.remove(name).is_some() {
                *count.hidden.entry(name).or_default() += 1;
            }
        }
        in_our_words(&mut expected);
        let recorded = expected.clone();
        for deviation in deviations {
            let before = expected.clone();
            (deviation.expected)(trace, at, &mut expected);
            if expected != before {
                *count.hits.entry(deviation.name).or_default() += 1;
            }
        }
        let seen = room.step(trace, at);
        let wrong: Vec<String> = expected
            .iter()
            .filter(|(name, value)| seen.get(*name) != Some(value))
            .map(|(name, value)| format!("{name} is {:?}, expected {value}", seen.get(name).map(Value::to_string)))
            .chain(extra(&expected, &seen))
            .collect();
        if !wrong.is_empty() {
            let args = &step.args;
            count.different.push(format!("{} step {at}, {} {args}: {}", trace.name, step.op, wrong.join("; ")));
            return;
        }
        if expected == recorded {
            count.equal += 1;
        } else {
            count.explained += 1;
        }
    }
}

/// What an answer has although it was not expected to: a key where the call should have waited, deltas beside an error.
fn extra(expected: &Seen, seen: &Seen) -> Vec<String> {
    let decisive = ["would_block", "deltas", "key"];
    decisive
        .iter()
        .filter(|name| seen.contains_key(**name) && !expected.contains_key(**name))
        .map(|name| format!("{name} is {}, expected none", seen[*name]))
        .collect()
}
