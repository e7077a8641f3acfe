//! Was what a handler was told legal? Judged afterwards, when everything is known: a [`Tape`] has every call of the
//! handler and every list that the reflector took; the [`History`](crate::etcd::History) has every change there was.
//!
//! Per key the history is a row of steps, each leaving the object there or gone. A tape is followed along it:
//!
//! * `Watch` is the very next step. One jump is silent: steps may be left out if a list was taken between the last of
//!   them and this one, and what that list showed is what the handler had (so there was nothing to tell).
//! * `Relist` and `Initial` may jump forwards, to what a list showed.
//! * `old` is what was given last; nothing is added twice, or changed or deleted without having been added.
//! * Nothing goes backwards, and in the end the handler has what exists.
//!
//! A step left out is an event *lost*, one told again an event *repeated*; whatever else does not fit is *wrong*.

use crate::etcd::{Moment, Step, Steps};
use informer::{
    flow::{Cause, Change, Deleted, Event, Object},
    informer::InformerEvent,
    reflector::{During, FailureKind, ReflectorEvent},
    source::SourceErrorKind,
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// One call of a handler.
#[derive(Clone, Debug)]
pub struct Told {
    pub key: String,
    pub cause: Cause,
    /// The version of `old`, or of what was last known of something deleted; `None` if there is none.
    pub old: Option<u64>,
    /// The version of the new state and the digest of its content; `None` when it is gone.
    pub now: Option<(u64, Option<u64>)>,
    /// The version of a deletion that was observed.
    pub gone: Option<u64>,
    pub added: bool,
}

/// What one informer told, in the order in which it told it.
#[derive(Default)]
pub struct Tape {
    pub told: Vec<Told>,
    heard: u64,
    /// The lists that were taken.
    pub lists: Vec<Moment>,
    era: u32,
    /// Lists by their reason, and failures by their kind.
    pub reasons: BTreeMap<String, usize>,
    pub failures: BTreeMap<String, usize>,
    /// Panics, refused objects, objects that could not be read, deletions of what was not there, versions that went back.
    pub oddities: Vec<String>,
    /// When a watch expired, until a list is asked for.
    expired: Option<Instant>,
    /// How long it took from each such answer to the list.
    pub to_list: Vec<Duration>,
}

/// What is falsified on its way to the judge, who must see it: every so many events one. Zero: none.
pub struct Planted {
    /// Not written down, as if it had been lost.
    pub lost: AtomicU64,
    /// Written down twice.
    pub repeated: AtomicU64,
    /// A change, written down with the content of before.
    pub stale: AtomicU64,
}

pub static PLANTED: Planted = Planted { lost: AtomicU64::new(0), repeated: AtomicU64::new(0), stale: AtomicU64::new(0) };

#[derive(Clone)]
pub struct Recorder(Arc<Mutex<Tape>>);

impl Recorder {
    pub fn beginning_in(era: u32) -> Self {
        Self(Arc::new(Mutex::new(Tape { era, ..Tape::default() })))
    }

    pub fn tape(&self) -> MutexGuard<'_, Tape> {
        self.0.lock().expect("nobody panics with it")
    }

    pub fn event<T>(&self, event: &Event<T>, digest: impl Fn(&T) -> Option<u64>) {
        let version = |o: &Object<T>| Object::version(o).to_string().parse().unwrap_or(0);
        let mut told =
            Told { key: event.key().as_str().to_owned(), cause: event.cause, old: None, now: None, gone: None, added: false };
        match &event.change {
            Change::Added(new) => {
                told.added = true;
                told.now = Some((version(new), digest(new)));
            }
            Change::Updated { old, new } => {
                told.old = Some(version(old));
                told.now = Some((version(new), digest(new)));
            }
            Change::Deleted(Deleted::Observed(last)) => told.gone = Some(version(last)),
            Change::Deleted(Deleted::Missed { last_known, .. }) => told.old = last_known.as_ref().map(version),
        }
        let mut tape = self.tape();
        tape.heard += 1;
        let heard = tape.heard;
        let due = |every: &AtomicU64| matches!(every.load(Ordering::Relaxed), n if n > 0 && heard.is_multiple_of(n));
        if due(&PLANTED.stale)
            && let (Change::Updated { old, .. }, Some((_, content))) = (&event.change, &mut told.now)
        {
            *content = digest(old);
        }
        if due(&PLANTED.repeated) {
            tape.told.push(told.clone());
        }
        if !due(&PLANTED.lost) {
            tape.told.push(told);
        }
    }

    pub fn hook(&self, event: &InformerEvent<'_>) {
        let mut tape = self.tape();
        match event {
            InformerEvent::Reflector(ReflectorEvent::Listed { version, .. }) => {
                let at = (tape.era, version.parse().unwrap_or(0));
                tape.lists.push(at);
            }
            InformerEvent::Reflector(ReflectorEvent::Era { .. }) => tape.era += 1,
            InformerEvent::Reflector(ReflectorEvent::Listing { reason, .. }) => {
                if let Some(at) = tape.expired.take() {
                    tape.to_list.push(at.elapsed());
                }
                *tape.reasons.entry(format!("{reason:?}")).or_default() += 1;
            }
            InformerEvent::Reflector(ReflectorEvent::Failed { during, kind, .. }) => {
                if matches!(during, During::Watch | During::Stream) && *kind == FailureKind::Source(SourceErrorKind::Expired) {
                    tape.expired = Some(Instant::now());
                }
                let kind = match kind {
                    FailureKind::Source(kind) => format!("{during:?}: {kind}"),
                    other => format!("{during:?}: {other:?}"),
                };
                *tape.failures.entry(kind).or_default() += 1;
            }
            InformerEvent::Reflector(
                e @ (ReflectorEvent::Skipped { .. } | ReflectorEvent::Backwards { .. } | ReflectorEvent::Refused { .. }),
            ) => tape.oddities.push(format!("{e:?}")),
            InformerEvent::Reflector(_) => {}
            other => tape.oddities.push(format!("{other:?}")),
        }
    }
}

/// What was wrong.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    pub events: usize,
    pub lost: Vec<String>,
    pub repeated: Vec<String>,
    pub wrong: Vec<String>,
}

impl Verdict {
    pub fn is_good(&self) -> bool {
        self.lost.is_empty() && self.repeated.is_empty() && self.wrong.is_empty()
    }
}

/// Where the handler is with one key.
#[derive(Default)]
struct Place {
    at: Option<usize>,
    holds: Option<u64>,
}

struct Judge<'a> {
    steps: &'a Steps,
    lists: &'a [Moment],
    places: HashMap<String, Place>,
    verdict: Verdict,
}

/// Judges a tape; `steps` must reach at least as far.
pub fn judge(tape: &Tape, steps: &Steps) -> Verdict {
    let mut lists = tape.lists.clone();
    lists.sort_unstable();
    let mut judge = Judge { steps, lists: &lists, places: HashMap::new(), verdict: Verdict::default() };
    for told in &tape.told {
        judge.event(told);
    }
    judge.verdict.events = tape.told.len();
    judge.verdict.wrong.extend(tape.oddities.iter().cloned());
    judge.end()
}

fn says(step: &Step, told: &Told) -> bool {
    match (told.now, step.now) {
        (Some((version, _)), Some(_)) => step.at.1 == version,
        (None, None) => told.gone.is_none_or(|v| v == step.at.1),
        _ => false,
    }
}

impl Judge<'_> {
    /// Whether a list was taken between this step and the next.
    fn shown(&self, row: &[Step], i: usize) -> bool {
        let (from, until) = (row[i].at, row.get(i + 1).map(|s| s.at));
        let first = self.lists.partition_point(|l| *l < from);
        self.lists.get(first).is_some_and(|l| until.is_none_or(|u| *l < u))
    }

    fn event(&mut self, told: &Told) {
        let mut place = self.places.remove(&told.key).unwrap_or_default();
        let what = format!("{told:?}, held {:?}", place.holds);
        let none = Vec::new();
        let row = self.steps.get(&told.key).unwrap_or(&none);
        match (told.added, place.holds) {
            (true, Some(_)) => self.verdict.repeated.push(format!("added twice: {what}")),
            (false, None) => self.verdict.wrong.push(format!("not held: {what}")),
            (false, Some(held)) if told.old.is_some_and(|old| old != held) => {
                self.verdict.wrong.push(format!("old is not what was held: {what}"));
            }
            _ => {}
        }
        let start = place.at.map_or(0, |i| i + 1);
        let found = (start..row.len()).find(|&i| says(&row[i], told) && (told.cause == Cause::Watch || self.shown(row, i)));
        match found {
            None if (0..start).any(|i| says(&row[i], told)) => self.verdict.repeated.push(format!("again: {what}")),
            None if told.cause != Cause::Watch && row.iter().any(|s| says(s, told)) => {
                self.verdict.wrong.push(format!("no list showed it: {what}"));
            }
            None => self.verdict.wrong.push(format!("never was: {what}")),
            Some(i) => {
                let silently = i > start && {
                    let before = &row[i - 1];
                    before.now.map(|_| before.at.1) == place.holds && self.shown(row, i - 1)
                };
                if told.cause == Cause::Watch && i > start && !silently {
                    let left: Vec<_> = row[start..i].iter().map(|s| s.at).collect();
                    self.verdict.lost.push(format!("{left:?} before {what}"));
                }
                if let (Some((_, Some(content))), Some(is)) = (told.now, row[i].now)
                    && content != is
                {
                    self.verdict.wrong.push(format!("other content: {what}"));
                }
                place.at = Some(i);
            }
        }
        place.holds = told.now.map(|(version, _)| version);
        self.places.insert(told.key.clone(), place);
    }

    fn end(mut self) -> Verdict {
        for (key, row) in self.steps {
            let is = row.last().and_then(|s| s.now.map(|_| s.at.1));
            let holds = self.places.get(key).and_then(|p| p.holds);
            if is != holds {
                self.verdict.lost.push(format!("{key}: is at {is:?}, the handler has {holds:?}"));
            }
        }
        self.verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps() -> Steps {
        let row = [(1, true), (3, true), (5, false), (7, true), (9, false), (11, true)];
        let row = row.into_iter().map(|(n, there)| Step { at: (0, n), now: there.then_some(n) }).collect();
        HashMap::from([("a/x".to_owned(), row)])
    }

    fn told(cause: Cause, old: Option<u64>, now: Option<u64>, gone: Option<u64>) -> Told {
        let added = now.is_some() && old.is_none();
        Told { key: "a/x".into(), cause, old, now: now.map(|v| (v, Some(v))), gone, added }
    }

    fn judged(lists: &[u64], told: Vec<Told>) -> (usize, usize, usize) {
        let lists = lists.iter().map(|&l| (0, l)).collect();
        let verdict = judge(&Tape { told, lists, ..Tape::default() }, &steps());
        (verdict.lost.len(), verdict.repeated.len(), verdict.wrong.len())
    }

    use Cause::{Initial, Relist, Watch};

    #[test]
    fn a_faithful_stream_is_good() {
        let all = vec![
            told(Initial, None, Some(1), None),
            told(Watch, Some(1), Some(3), None),
            told(Watch, None, None, Some(5)),
            told(Watch, None, Some(7), None),
            told(Watch, None, None, Some(9)),
            told(Watch, None, Some(11), None),
        ];
        assert_eq!(judged(&[2], all), (0, 0, 0));
    }

    #[test]
    fn a_change_left_out_is_lost_unless_a_list_explains_it() {
        let jump =
            || vec![told(Initial, None, Some(1), None), told(Watch, None, None, Some(5)), told(Watch, None, Some(11), None)];
        // Without a list between them, the second version, and then the coming and going, are lost.
        assert_eq!(judged(&[2], jump()), (2, 0, 0));
        // A list while it was gone explains the second jump. The first is not explained by a list that showed version 3,
        // because the handler would have had to be told of it.
        assert_eq!(judged(&[2, 4, 10], jump()), (1, 0, 0));
        let relist = vec![told(Initial, None, Some(1), None), told(Relist, Some(1), Some(7), None)];
        assert_eq!(judged(&[2, 8], relist.clone()), (1, 0, 0), "it ends at 7, and 11 is lost");
        assert_eq!(judged(&[2], relist), (1, 0, 1), "no list showed 7");
    }

    #[test]
    fn what_comes_again_or_does_not_fit_is_reported() {
        let last = || told(Initial, None, Some(11), None);
        assert_eq!(judged(&[12], vec![last()]), (0, 0, 0));
        assert_eq!(judged(&[12], vec![last(), last()]), (0, 2, 0), "added twice, and the same step again");
        assert_eq!(judged(&[12], vec![last(), told(Watch, Some(11), Some(11), None)]), (0, 1, 0));
        assert_eq!(judged(&[12], vec![told(Watch, Some(9), Some(11), None)]).2, 1, "not held");
        assert_eq!(judged(&[12], vec![]), (1, 0, 0));
        assert_eq!(judged(&[12], vec![told(Watch, None, Some(6), None)]), (1, 0, 1), "never was, and 11 is missing");
        let mut other = last();
        other.now = Some((11, Some(0)));
        assert_eq!(judged(&[12], vec![other]), (0, 0, 1), "other content");
    }
}
