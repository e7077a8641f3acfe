//! What client-go did, step by step, against what the rooms here do when they are asked the same.
//!
//! The folder is `tests/traces`, or the one named by `INFORMER_TRACES`. After each step everything that can be seen must
//! equal what was recorded, or what a deviation makes of the recording: a function of the trace, never of our answer.
//! How often each deviation applied is pinned, so that none quietly explains more than it did. Kinds that no room here
//! plays yet are named with their number.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests use the user's types")]

#[path = "oracle/fifo.rs"]
mod fifo;
#[path = "oracle/queues.rs"]
mod queues;
#[path = "oracle/store.rs"]
mod store;
#[path = "oracle/trace.rs"]
mod trace;

use serde_json::Value;
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::Write as _,
    path::{Path, PathBuf},
};
use trace::{Count, Replay, Trace};

/// A kind; traces, equal, explained; the hits of each deviation.
type Pin = (&'static str, [usize; 3], &'static [(&'static str, usize)]);

/// What the committed traces come to.
const PINNED: &[Pin] = &[
    ("delaying_queue", [9, 496, 22], &[("a drain is a drain to the end", 10), ("done without work is nothing", 12)]),
    ("rate_limiter", [2, 166, 1], &[("delays saturate", 1)]),
    ("rate_limiting_queue", [1, 19, 0], &[]),
    (
        "real_fifo",
        [18, 1205, 346],
        &[("closed at once", 40), ("no SyncAll in the queue", 48), ("synced by the whole state", 266)],
    ),
    (
        "thread_safe_store",
        [16, 1053, 39],
        &[
            ("a list without a version is refused", 2),
            ("a store that is written to has a version", 3),
            ("an update that an index refuses is refused whole", 13),
            ("the values of an unknown index are an error", 21),
        ],
    ),
    ("workqueue", [13, 585, 146], &[("a drain is a drain to the end", 18), ("done without work is nothing", 134)]),
];

fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces")
}

/// How a trace is replayed, or what it is called among those that are not.
fn replay_of(trace: &Trace) -> Result<Replay, &str> {
    match &*trace.kind {
        "real_fifo" => fifo::replay(trace),
        "workqueue" | "delaying_queue" | "rate_limiting_queue" => queues::replay(trace),
        "thread_safe_store" => store::replay(trace),
        "rate_limiter" => queues::replay_limiter(trace),
        other => Err(other),
    }
}

struct Report {
    by_kind: BTreeMap<String, Count>,
    not_replayed: BTreeMap<String, usize>,
}

impl Report {
    fn of(traces: &[Trace]) -> Self {
        let mut report = Self { by_kind: BTreeMap::new(), not_replayed: BTreeMap::new() };
        for trace in traces {
            match replay_of(trace) {
                Ok(replay) => trace::replay(trace, replay, report.by_kind.entry(trace.kind.clone()).or_default()),
                Err(kind) => *report.not_replayed.entry(kind.to_owned()).or_default() += 1,
            }
        }
        report
    }

    fn different(&self) -> Vec<&String> {
        self.by_kind.values().flat_map(|count| &count.different).collect()
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let (mut equal, mut explained) = (0, 0);
        for (kind, count) in &self.by_kind {
            equal += count.equal;
            explained += count.explained;
            let Count { traces, equal, explained, different, .. } = count;
            let _ =
                writeln!(text, "{kind}: {traces} traces, {equal} equal, {explained} explained, {} different", different.len());
            for (name, hits) in &count.hits {
                let _ = writeln!(text, "    explained by \"{name}\": {hits}");
            }
            for (name, times) in &count.hidden {
                let _ = writeln!(text, "    recorded but not to be seen here: `{name}`, {times} times");
            }
        }
        for (kind, traces) in &self.not_replayed {
            let _ = writeln!(text, "not replayed: {kind}, {traces} traces");
        }
        let different = self.different();
        for what in &different {
            let _ = writeln!(text, "DIFFERENT: {what}");
        }
        let _ = writeln!(text, "{equal} equal, {explained} explained, {} different", different.len());
        text
    }
}

#[test]
fn the_rooms_do_what_client_go_did_or_what_a_deviation_says() {
    let named = std::env::var_os("INFORMER_TRACES").map(PathBuf::from);
    let traces = trace::read_folder(named.as_deref().unwrap_or(&committed()));
    assert!(!traces.is_empty(), "the folder has no traces");
    let report = Report::of(&traces);
    // Not by `println!`, which the harness keeps to itself when a test passes.
    std::io::stdout().write_all(report.text().as_bytes()).expect("stdout");
    assert!(report.different().is_empty(), "{}", report.text());
    if named.is_none() {
        let found: Vec<_> = report
            .by_kind
            .iter()
            .map(|(kind, c)| (&**kind, [c.traces, c.equal, c.explained], c.hits.clone().into_iter().collect::<Vec<_>>()))
            .collect();
        let pinned: Vec<_> = PINNED.iter().map(|(kind, counts, hits)| (*kind, *counts, hits.to_vec())).collect();
        assert_eq!(found, pinned, "the counts of the committed traces are pinned");
        assert_eq!(report.not_replayed.values().sum::<usize>(), 0, "a committed trace is one that is replayed");
    }
}

/// What is recorded at a step is changed a little, one field of one step at a time, in a trace of each kind.
#[test]
fn a_changed_recording_is_a_difference() {
    let cases = [
        ("rfa-batch", "deltas"),
        ("rfa-batch", "synced"),
        ("rfa-batch", "in_initial_list"),
        ("rfa-batch", "items"),
        ("rfa-transform", "err"),
        ("rfa-replace-empty", "would_block"),
        ("wq-order", "key"),
        ("wq-order", "len"),
        ("wq-order", "processing"),
        ("wq-drain", "drain_returned"),
        ("wq-shutdown", "shutting_down"),
        ("dq-order", "key"),
        ("rl-basic", "num_requeues"),
        ("rlim-exp", "ns"),
        ("st-index-basic", "objs"),
        ("st-index-basic", "values"),
        ("st-index-basic", "keys_of_value"),
        ("st-index-by-object", "objs"),
        ("st-index-by-object", "err"),
        ("st-transaction", "keys"),
        ("st-transaction", "last_rv"),
        ("st-add-indexers", "indexers"),
        ("st-nil-object", "objs"),
        ("st-replace", "keys"),
    ];
    let traces = trace::read_folder(&committed());
    for (name, field) in cases {
        let original = traces.iter().find(|t| t.name == name).expect(name);
        let mut changed = 0;
        for at in 0..original.steps.len() {
            let mut trace = original.clone();
            let Some(value) = trace.steps[at].obs.get_mut(field) else { continue };
            *value = match value.take() {
                Value::Bool(b) => (!b).into(),
                Value::Number(n) => (n.as_i64().expect("whole") + 1).into(),
                Value::Array(mut list) if list.is_empty() => {
                    list.push("planted".into());
                    list.into()
                }
                Value::Array(mut list) => {
                    list.pop();
                    list.into()
                }
                _ => "planted".into(),
            };
            let found = Report::of(&[trace]);
            if found.different().is_empty() {
                // The one thing that may swallow it is a deviation.
                assert!(found.by_kind.values().any(|c| c.explained > 0), "{name}: a changed {field} at {at} went unnoticed");
            } else {
                changed += 1;
            }
        }
        assert!(changed > 0, "{name}: no change of {field} was noticed");
    }
}
