//! An informer behind a replay, on a clock that is moved by hand.

use super::{Form, Ledger, Pace, Recording, Replay, Told};
use informer::{
    flow::{Change, Deleted, Event, Object},
    informer::{Engine, InformerEvent, SharedInformer},
    reflector::{InitialState, ReflectorEvent},
    sync::{Instant, ManualClock, Stop, Synced},
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// What came of a replay.
pub struct Outcome {
    /// What the handler was told, and what was stored in the end.
    pub ledger: Ledger,
    /// What the handler was told, in order, and when.
    pub told: Vec<(Instant, String, Told)>,
    /// The store's version in the end.
    pub version: String,
    /// Whether handler and informer were synced in the end.
    pub synced: bool,
    /// What the informer reported besides failures of the source: nothing of it may happen.
    pub reports: Vec<String>,
    /// Version by key, as the server had it in the end.
    pub truth: BTreeMap<String, String>,
    /// What the source was asked.
    pub replay: Replay,
}

/// How far the clock is moved at once.
const STEP: Duration = Duration::from_secs(1);
/// For how long nothing more may happen after the last answer.
const AFTERWARDS: Duration = Duration::from_secs(10);
/// Longer than any backoff that our own waits may add to what was recorded.
const PATIENCE: Duration = Duration::from_secs(600);

/// Replays `recording` to an informer with one handler until every answer has been given, and somewhat longer.
///
/// # Errors
/// What the informer answered when it was built, run or joined.
pub fn run(recording: Recording, engine: Engine) -> Result<Outcome, Box<dyn Error>> {
    run_in(Form::Listed, recording, engine)
}

/// As [`run`], with initial states in this form.
///
/// # Errors
/// As [`run`].
pub fn run_in(form: Form, recording: Recording, engine: Engine) -> Result<Outcome, Box<dyn Error>> {
    let clock = ManualClock::new();
    let (pages_of, limit, truth) = (recording.pages_of, recording.length + PATIENCE, recording.truth.clone());
    let scope = recording.scope.clone();
    let replay = Replay::in_form(form, recording, &clock, Pace::Recorded);
    let reports: Arc<Mutex<Vec<String>>> = Arc::default();
    let told: Arc<Mutex<Vec<(Instant, String, Told)>>> = Arc::default();

    let mut builder = SharedInformer::builder(replay.clone())
        .name("replay")
        .scope(scope)
        .initial(match form {
            Form::Streamed => InitialState::Streamed,
            Form::Listed if pages_of.is_some() => InitialState::MostRecent,
            Form::Listed => InitialState::Any,
        })
        .relist_spread(Duration::ZERO)
        .seed(1)
        .engine(engine)
        .clock(&clock)
        .observe({
            let reports = reports.clone();
            move |e| reports.lock().unwrap_or_else(PoisonError::into_inner).extend(alarm(e))
        });
    if let Some(n) = pages_of {
        builder = builder.page_size(n);
    }
    let informer = builder.build()?;
    let registration = informer.on({
        let (told, clock) = (told.clone(), clock.clock());
        move |e: &Event<Value>| {
            let what = (clock.now(), e.key().to_string(), told_of(e));
            told.lock().unwrap_or_else(PoisonError::into_inner).push(what);
        }
    })?;

    let stop = Stop::with_clock(&clock);
    let running = informer.spawn(&stop)?;
    while !replay.is_over() && clock.now().since_start() < limit {
        clock.advance(STEP);
    }
    clock.advance(AFTERWARDS);
    let synced = informer.has_synced() && registration.has_synced();
    stop.stop();
    running.join()?;

    let told = std::mem::take(&mut *told.lock().unwrap_or_else(PoisonError::into_inner));
    let reports = std::mem::take(&mut *reports.lock().unwrap_or_else(PoisonError::into_inner));
    let stored = informer.store().snapshot();
    let mut ledger = Ledger::default();
    for (_, key, what) in &told {
        ledger.story.entry(key.clone()).or_default().push(what.clone());
    }
    ledger.bodies = stored.objects().map(|o| (Object::key(o).to_string(), Value::clone(o))).collect();
    Ok(Outcome { ledger, told, version: stored.version().to_owned(), synced, reports, truth, replay })
}

impl Outcome {
    /// In what it is not as `expected`, or not the server's truth; empty when it is both.
    pub fn differences(&self, expected: &Ledger) -> Vec<String> {
        let mut all = self.replay.problems();
        all.extend(self.reports.iter().cloned());
        if !self.replay.is_over() {
            all.push(format!("the recording was not asked for to its end: {:?}", self.replay));
        }
        if !self.synced {
            all.push("the informer or its handler is not synced".to_owned());
        }
        if self.version != self.replay.position() {
            all.push(format!("the store is at {}, the source told up to {}", self.version, self.replay.position()));
        }
        let (stored, truth) = (self.ledger.versions(), &self.truth);
        if stored != *truth {
            let which = stored.iter().filter(|(k, v)| truth.get(*k) != Some(v)).map(|(k, v)| format!("{k}@{v}"));
            let lacking = truth.iter().filter(|(k, v)| stored.get(*k) != Some(v)).map(|(k, v)| format!("{k}@{v}"));
            let (which, lacking) = (which.collect::<Vec<_>>().join(", "), lacking.collect::<Vec<_>>().join(", "));
            all.push(format!("stored is not what the server had: [{which}] too many, [{lacking}] missing"));
        }
        all.extend(self.ledger.differences(expected));
        all
    }

    /// From each 410 to the list that followed it.
    pub fn waits(&self) -> Vec<Duration> {
        let lists = self.replay.lists();
        let next = |at: &Instant| lists.iter().find(|l| *l >= at).map(|l| l.since(*at));
        self.replay.expired().iter().filter_map(next).collect()
    }
}

/// An event that no replay may bring about, in words.
fn alarm(event: &InformerEvent<'_>) -> Option<String> {
    match event {
        InformerEvent::Reflector(
            e @ (ReflectorEvent::Era { .. }
            | ReflectorEvent::Skipped { .. }
            | ReflectorEvent::Backwards { .. }
            | ReflectorEvent::Refused { .. }),
        ) => Some(format!("{e:?}")),
        InformerEvent::Reflector(_) => None,
        other => Some(format!("{other:?}")),
    }
}

fn told_of(event: &Event<Value>) -> Told {
    let version = |o: &Object<Value>| Object::version(o).to_string();
    let cause = event.cause;
    match &event.change {
        Change::Added(o) => Told::Added { version: version(o), cause },
        Change::Updated { old, new } => Told::Updated { from: version(old), to: version(new), cause },
        Change::Deleted(Deleted::Observed(o)) => Told::Deleted { version: Some(version(o)), cause },
        Change::Deleted(Deleted::Missed { .. }) => Told::Deleted { version: None, cause },
    }
}
