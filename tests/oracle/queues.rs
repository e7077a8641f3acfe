//! [`WorkQueue`] as the peer's queues, delaying and rate-limited ones included, and limiters on their own.
//!
//! The peer is done by key; here whoever holds a key has a [`Work`]. A map from key to work stands between: a `done`
//! without a work is nothing.

use crate::trace::{Deviation, Replay, Room, Seen, Trace, text_of};
use informer::{
    sync::{Deadline, ManualClock, WaitError},
    workqueue::{ItemExponential, Limiter, TryGetError, Work, WorkQueue},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::mpsc::{Receiver, TryRecvError, channel},
    thread,
    time::Duration,
};

pub fn replay(trace: &Trace) -> Result<Replay, &'static str> {
    if trace.config["order"] == "lifo" {
        return Err("workqueue, with an order of its own");
    }
    Ok(Replay {
        room: Box::new(Queue::new()),
        deviations: &[DONE_WITHOUT_WORK, DRAIN_TO_THE_END],
        // `dirty` is how the peer does it; there are no metrics yet.
        hidden: &["dirty", "metrics"],
        in_our_words: |_| {},
    })
}

pub fn replay_limiter(trace: &Trace) -> Result<Replay, &'static str> {
    if trace.config["limiter"] != "item_exponential" {
        return Err("rate_limiter, other than item_exponential");
    }
    let [base, max] = ["base_ns", "max_ns"].map(|name| trace.config[name].as_u64().expect(name));
    let limiter = ItemExponential::new(Duration::from_nanos(base), Duration::from_nanos(max));
    let room = Box::new(LimiterAlone(limiter));
    Ok(Replay { room, deviations: &[DELAYS_SATURATE], hidden: &[], in_our_words: |_| {} })
}

/// The peer's delay can come out negative when it is larger than a number can be; ours is then the largest.
const DELAYS_SATURATE: Deviation = Deviation {
    name: "delays saturate",
    expected: |trace, _, seen| {
        if seen.get("ns").and_then(Value::as_i64).is_some_and(|ns| ns < 0) {
            seen.insert("ns".to_owned(), trace.config["max_ns"].clone());
        }
    },
};

/// A `done` of a key that nobody holds is nothing; the peer queues the key once more when it waits already. From the
/// first such step on, the peer's own rules with that one changed say what is expected, where they unchanged say what
/// was recorded.
const DONE_WITHOUT_WORK: Deviation = Deviation {
    name: "done without work is nothing",
    expected: |trace, at, seen| {
        if (0..=at).all(|i| !is_odd(trace, i)) {
            return;
        }
        let (theirs, ours) = (Plain::theirs().seen_at(trace, at), Plain::default().seen_at(trace, at));
        if theirs.iter().any(|(name, value)| seen.get(name) != Some(value)) {
            return;
        }
        for name in theirs.keys() {
            seen.remove(name);
        }
        seen.extend(ours);
    },
};

/// A `done` of a key that waits and is not held.
fn is_odd(trace: &Trace, at: usize) -> bool {
    let has = |set: &str| {
        let before = at.checked_sub(1).and_then(|before| trace.steps[before].obs[set].as_array());
        before.is_some_and(|keys| keys.iter().any(|k| k == trace.steps[at].key()))
    };
    trace.steps[at].op == "done" && has("dirty") && !has("processing")
}

/// A drain waits for everything that was accepted; the peer's waits for what is in process and may leave keys behind.
const DRAIN_TO_THE_END: Deviation = Deviation {
    name: "a drain is a drain to the end",
    expected: |trace, at, seen| {
        let Some(returned) = seen.get_mut("drain_returned") else { return };
        let (mut queue, mut begun, mut theirs, mut ours) = (Plain::default(), false, false, false);
        for i in 0..=at {
            queue.step(trace, i);
            begun |= trace.steps[i].op == "shutdown_with_drain";
            let cut_short = trace.steps[i].op == "shutdown";
            theirs |= begun && (cut_short || queue.processing.is_empty());
            ours |= begun && (cut_short || (queue.processing.is_empty() && queue.dirty.is_empty()));
        }
        if *returned == theirs {
            *returned = ours.into();
        }
    },
};

/// The peer's queue by its rules: an ordered list, two sets, and delays.
#[derive(Default)]
struct Plain {
    /// Whether a `done` of a key that is not held counts, as it does with the peer.
    odd_done_counts: bool,
    ready: VecDeque<String>,
    dirty: BTreeSet<String>,
    processing: BTreeSet<String>,
    /// Due time and key.
    delays: BTreeSet<(i64, String)>,
    now: i64,
    down: bool,
}

impl Plain {
    fn theirs() -> Self {
        Self { odd_done_counts: true, ..Self::default() }
    }

    /// What can be seen of it after the steps up to `at`.
    fn seen_at(mut self, trace: &Trace, at: usize) -> Seen {
        for i in 0..at {
            self.step(trace, i);
        }
        let mut out = self.step(trace, at).unwrap_or_default();
        out.extend(seen([("len", self.ready.len().into()), ("processing", json!(self.processing))]));
        out
    }

    /// What a `get` answers; nothing for other steps.
    fn step(&mut self, trace: &Trace, at: usize) -> Option<Seen> {
        let step = &trace.steps[at];
        let ms = || step.args["ms"].as_i64().expect("ms");
        match &*step.op {
            "add" => self.add(step.key()),
            "add_after" if self.down => {}
            "add_after" if ms() <= 0 => self.add(step.key()),
            "add_after" => {
                let due = self.now + ms();
                let waits = self.delays.iter().find(|(_, key)| key == step.key()).cloned();
                if waits.as_ref().is_none_or(|(at, _)| due < *at) {
                    self.delays.retain(|(_, key)| key != step.key());
                    self.delays.insert((due, step.key().to_owned()));
                }
            }
            "step_clock" => {
                self.now += ms();
                while self.delays.first().is_some_and(|(due, _)| *due <= self.now) {
                    let key = self.delays.pop_first().map(|(_, key)| key).unwrap_or_default();
                    self.add(&key);
                }
            }
            "done" => {
                let key = step.key();
                if (self.processing.remove(key) || self.odd_done_counts) && self.dirty.contains(key) {
                    self.ready.push_back(key.to_owned());
                }
            }
            "get" => {
                let Some(key) = self.ready.pop_front() else {
                    let down = seen([("key", "".into()), ("shutdown", true.into())]);
                    return Some(if self.down { down } else { seen([("would_block", true.into())]) });
                };
                self.dirty.remove(&key);
                self.processing.insert(key.clone());
                return Some(seen([("key", key.into()), ("shutdown", false.into())]));
            }
            "shutdown" | "shutdown_with_drain" => {
                self.down = true;
                self.delays.clear();
            }
            other => panic!("{}: {other} has no plain rule yet", trace.name),
        }
        None
    }

    fn add(&mut self, key: &str) {
        if !self.down && self.dirty.insert(key.to_owned()) && !self.processing.contains(key) {
            self.ready.push_back(key.to_owned());
        }
    }
}

fn seen<const N: usize>(fields: [(&str, Value); N]) -> Seen {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

struct Queue {
    clock: ManualClock,
    queue: WorkQueue<String>,
    held: BTreeMap<String, Work<String>>,
    now_ms: u64,
    drain: Option<Drain>,
}

/// A drain on its own thread, whose end is waited for only when nothing can hold it up any more.
struct Drain {
    ended: Receiver<Result<(), WaitError>>,
    returned: bool,
}

impl Queue {
    fn new() -> Self {
        let clock = ManualClock::new();
        let limiter = ItemExponential::new(Duration::from_millis(5), Duration::from_secs(1));
        let queue = WorkQueue::builder().name("replay").clock(&clock).limiter(limiter).build();
        Self { clock, queue, held: BTreeMap::new(), now_ms: 0, drain: None }
    }

    fn begin_drain(&mut self) {
        let (end, ended) = channel();
        let queue = self.queue.clone();
        thread::spawn(move || end.send(queue.drain(Deadline::never()).map(drop)));
        // The step that shuts down is the one that begins the drain.
        while !self.queue.is_shut_down() {
            thread::yield_now();
        }
        self.drain = Some(Drain { ended, returned: false });
    }

    /// Whether the drain that was begun has returned: it must have when one begun now would at once, or when it was
    /// cut short.
    fn drain_returned(&mut self, cut_short: bool) -> Option<bool> {
        let drain = self.drain.as_mut()?;
        if !drain.returned {
            let queue = self.queue.clone();
            let probe = thread::spawn(move || queue.drain(Duration::ZERO)).join().expect("a drain does not panic");
            drain.returned = if probe.is_ok() || cut_short {
                let end = drain.ended.recv_timeout(Duration::from_secs(20)).expect("the drain returns");
                assert_eq!(end.is_ok(), !cut_short, "how the drain ended: {end:?}");
                true
            } else {
                drain.ended.try_recv() != Err(TryRecvError::Empty)
            };
        }
        Some(drain.returned)
    }
}

impl Room for Queue {
    fn step(&mut self, trace: &Trace, at: usize) -> Seen {
        let step = &trace.steps[at];
        let mut out = Seen::new();
        match &*step.op {
            "add" => {
                self.queue.add(step.key().to_owned());
            }
            "add_after" => {
                let ms = step.args["ms"].as_i64().expect("ms");
                // A negative duration does not exist here: whoever computes one has what is due already.
                let delay = Duration::from_millis(ms.try_into().unwrap_or(0));
                self.queue.add_after(step.key().to_owned(), delay);
            }
            "add_rate_limited" => {
                self.queue.add_rate_limited(step.key().to_owned());
            }
            "forget" => self.queue.forget(&step.key().to_owned()),
            "get" => match self.queue.try_get() {
                Ok(work) => {
                    out.extend(seen([("key", (*work).clone().into()), ("shutdown", false.into())]));
                    let twice = self.held.insert((*work).clone(), work);
                    assert!(twice.is_none(), "{twice:?} was handed out while it was held");
                }
                Err(TryGetError::Empty) => out.extend(seen([("would_block", true.into())])),
                Err(TryGetError::ShutDown) => out.extend(seen([("key", "".into()), ("shutdown", true.into())])),
            },
            "done" => drop(self.held.remove(step.key())),
            "step_clock" => {
                let ms = step.args["ms"].as_u64().expect("ms");
                self.clock.advance(Duration::from_millis(ms));
                self.now_ms += ms;
                out.extend(seen([("now_ms", self.now_ms.into())]));
            }
            "shutdown" => {
                self.queue.shutdown();
            }
            "shutdown_with_drain" => self.begin_drain(),
            other => panic!("the operation {other} is unknown"),
        }
        if let Some(returned) = self.drain_returned(step.op == "shutdown") {
            out.extend(seen([("drain_returned", returned.into())]));
        }
        if step.obs.contains_key("num_requeues") {
            out.extend(seen([("num_requeues", self.queue.requeues(&step.key().to_owned()).into())]));
        }
        out.extend(seen([
            ("len", self.queue.len().into()),
            ("processing", self.held.keys().cloned().collect::<Vec<_>>().into()),
            ("shutting_down", self.queue.is_shut_down().into()),
        ]));
        out
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.queue.shutdown();
        if thread::panicking() {
            return;
        }
        if let Some(drain) = self.drain.as_ref().filter(|drain| !drain.returned) {
            drain.ended.recv_timeout(Duration::from_secs(20)).expect("the drain returns").ok();
        }
    }
}

struct LimiterAlone(ItemExponential<String>);

impl Room for LimiterAlone {
    fn step(&mut self, trace: &Trace, at: usize) -> Seen {
        let step = &trace.steps[at];
        let key = text_of(&step.args["key"]).to_owned();
        let mut out = Seen::new();
        match &*step.op {
            "when" => {
                let ns = u64::try_from(self.0.when(&key).as_nanos()).expect("less than 584 years");
                out.extend(seen([("ns", ns.into())]));
            }
            "forget" => self.0.forget(&key),
            other => panic!("the operation {other} is unknown"),
        }
        out.extend(seen([("num_requeues", self.0.requeues(&key).into())]));
        out
    }
}
