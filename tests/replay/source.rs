//! The source that gives the recorded answers again, one cursor over all of them, each as long after its request as it
//! once came.
//!
//! A request that the file cannot answer is a *problem*: it is put on record with what was asked and what the file has
//! at this place, and the request fails. [`Replay::problems`] has them all; a replay with problems is over.
//!
//! Where this crate keeps its position and client-go listed again, the file has the server's own history. A watch that
//! meets a recorded state is answered from it: first what lies between, at once, then, in the same stream, what the
//! watch after that state brought. Across a gap in the history the answer is a 410, and the state stays for the list.
//!
//! A state may be asked for in either form, whatever form client-go asked for: as a list, or as the beginning of a watch,
//! whose rest is then what the recorded watch after that state brought.

use super::{
    Answer, Frame, Ledger, Recording,
    recording::{End, Part, Place, State},
    text, version_of,
};
use informer::{
    flow::Meta,
    source::{
        ListEnd, ListParams, ListerWatcher, Next, Scope, SourceError, SourceErrorKind, Undecodable, VersionMatch, WatchEvent,
        WatchParams, WatchStream, compare_decimal,
    },
    sync::{Clock, Deadline, Instant, Stop, Wake, Woken},
};
use serde_json::Value;
use std::{
    cmp::Ordering,
    collections::VecDeque,
    fmt,
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// When answers come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As long after our request as after the recorded one.
    Recorded,
    /// At once: nothing waits but the watch that stays open.
    AtOnce,
}

/// In which form initial states may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As lists.
    Listed,
    /// As the beginning of a watch.
    Streamed,
}

/// A recording as a source. Clones are handles to the same one.
#[derive(Clone)]
pub struct Replay(Arc<Shared>);

struct Shared {
    clock: Clock,
    pace: Pace,
    form: Form,
    places: Vec<Place>,
    history: Vec<Part>,
    /// Which objects every request has to ask for.
    scope: Scope,
    /// The objects once every answer has been given.
    last: Vec<Value>,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// The place whose turn it is.
    cursor: usize,
    /// The page of it, when it is a state in pages.
    page: usize,
    /// The version that the caller has been brought to.
    position: String,
    /// Frames of the open stream still to come, its end included.
    coming: usize,
    lists: Vec<Instant>,
    watches: Vec<Instant>,
    expired: Vec<Instant>,
    problems: Vec<String>,
}

/// More are not told one by one.
const PROBLEMS: usize = 20;

enum Item {
    Event(Frame),
    /// The end of the state that the watch begins with.
    Mark(String),
    End(End),
}

/// What a list is answered.
enum Listed {
    Items(Vec<Value>, ListEnd),
    Refused(SourceErrorKind),
}

impl Replay {
    /// The answers of `recording`, given on `clock`.
    pub fn new(recording: Recording, clock: &Clock, pace: Pace) -> Self {
        Self::in_form(Form::Listed, recording, clock, pace)
    }

    /// As [`Replay::new`], with initial states in this form.
    pub fn in_form(form: Form, recording: Recording, clock: &Clock, pace: Pace) -> Self {
        let last = Ledger::expected(&recording).bodies.into_values().collect();
        let Recording { places, history, scope, .. } = recording;
        let clock = clock.clone();
        Self(Arc::new(Shared { clock, pace, form, places, history, scope, last, progress: Mutex::default() }))
    }

    /// Requests that the file could not answer, and streams that were closed before they had been read to their end.
    pub fn problems(&self) -> Vec<String> {
        self.0.progress().problems.clone()
    }

    /// True when every answer has been given to its end, and when there is a problem.
    pub fn is_over(&self) -> bool {
        let p = self.0.progress();
        !p.problems.is_empty() || (p.cursor == self.0.places.len() && p.coming == 0)
    }

    /// When an initial state was asked for; its further pages and probes do not count.
    pub fn lists(&self) -> Vec<Instant> {
        self.0.progress().lists.clone()
    }

    /// When a watch was asked for, without those that begin with a state.
    pub fn watches(&self) -> Vec<Instant> {
        self.0.progress().watches.clone()
    }

    /// When a watch was told that its version is too old.
    pub fn expired(&self) -> Vec<Instant> {
        self.0.progress().expired.clone()
    }

    /// The last version served, by an object, a bookmark or a state.
    pub fn position(&self) -> String {
        self.0.progress().position.clone()
    }
}

impl Shared {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn delay(&self, recorded: Duration) -> Duration {
        if self.pace == Pace::Recorded { recorded } else { Duration::ZERO }
    }

    fn at(&self, asked: Instant, recorded: Duration) -> Instant {
        asked.checked_add(self.delay(recorded)).unwrap_or(asked)
    }

    /// Waits for the moment of an answer.
    fn wait_until(&self, stop: &Stop, at: Instant) -> Result<(), SourceError> {
        match Wake::new(stop, &self.clock).wait(Deadline::at(at)) {
            Woken::Stopped => Err(SourceErrorKind::Stopped.into()),
            Woken::Nudged | Woken::Deadline => Ok(()),
        }
    }

    /// Puts on record that the file has no answer to this.
    fn problem(&self, p: &mut Progress, asked: &dyn fmt::Display) -> SourceError {
        let has = match self.places.get(p.cursor) {
            None => "its end".to_owned(),
            Some(place) if p.page > 0 => format!("page {} of {place}", p.page + 1),
            Some(place) => place.to_string(),
        };
        let at = self.clock.now().since_start().as_millis();
        let what = format!("{at} ms: the file cannot answer {asked}; here it has {has}");
        if p.problems.len() < PROBLEMS {
            p.problems.push(what.clone());
        }
        SourceError::new(SourceErrorKind::Other).with_context(what)
    }

    /// The answer to a list, and how long it takes; the cursor moves.
    fn list(&self, params: &ListParams) -> Result<(Duration, Listed), SourceError> {
        let mut p = self.progress();
        let p = &mut *p;
        let asked = Asked(params);
        if params.continue_token.is_none() && p.page == 0 {
            // A silent watch is probed like this, at any time; it moves nothing.
            if matches!(&params.version, VersionMatch::NotOlderThan(v) if *v == p.position) && params.limit == Some(1) {
                let end = ListEnd { version: p.position.clone(), continue_token: None };
                return Ok((Duration::ZERO, Listed::Items(Vec::new(), end)));
            }
            p.lists.push(self.clock.now());
        }
        if params.scope != self.scope {
            return Err(self.problem(p, &asked));
        }
        let first = p.cursor == 0;
        let fits = |place: &Place| first || asked.version() == place.version;
        match self.places.get(p.cursor) {
            None => {
                let end = ListEnd { version: p.position.clone(), continue_token: None };
                Ok((Duration::ZERO, Listed::Items(self.last.clone(), end)))
            }
            Some(place @ Place { answer: Answer::State(state), .. }) => {
                let page = &state.pages[p.page];
                // A page is asked with the token of the one before; the whole that is asked because a page had
                // expired must not be cut into pages again.
                let fits = params.continue_token == page.token
                    && if p.page == 0 { fits(place) } else { page.token.is_some() || params.limit.is_none() };
                if !fits {
                    return Err(self.problem(p, &asked));
                }
                let answer = match &page.answer {
                    Err(kind) => Listed::Refused(kind.clone()),
                    Ok(page) => {
                        let end = ListEnd { version: page.version.clone(), continue_token: page.next.clone() };
                        Listed::Items(page.items.clone(), end)
                    }
                };
                p.page += 1;
                if p.page == state.pages.len() {
                    (p.cursor, p.page) = (p.cursor + 1, 0);
                    state.version().clone_into(&mut p.position);
                }
                Ok((page.after, answer))
            }
            Some(place @ Place { answer: Answer::Refused { list: true, after, kind }, .. }) if fits(place) => {
                p.cursor += 1;
                Ok((*after, Listed::Refused(kind.clone())))
            }
            Some(_) => Err(self.problem(p, &asked)),
        }
    }

    /// The answer to a watch; the cursor moves. Times count from now.
    fn watch(&self, params: &WatchParams) -> Result<Watched, SourceError> {
        let mut p = self.progress();
        let p = &mut *p;
        let WatchParams { from, bookmarks, initial_events, scope, .. } = params;
        let what = if *initial_events { "a streamed state" } else { "a watch" };
        let asked = format!("{what} ({from:?}, bookmarks {bookmarks}, {scope:?})");
        if *initial_events {
            p.lists.push(self.clock.now());
            let welcome = self.form == Form::Streamed && *scope == self.scope && *bookmarks;
            let answer = if welcome { self.streamed(p, from) } else { None };
            return answer.ok_or_else(|| self.problem(p, &asked));
        }
        p.watches.push(self.clock.now());
        if *scope != self.scope || !bookmarks {
            return Err(self.problem(p, &asked));
        }
        let Some(place) = self.places.get(p.cursor) else {
            let ours = *from == p.position;
            return if ours { Ok((Duration::ZERO, Ok(Opened::default()))) } else { Err(self.problem(p, &asked)) };
        };
        let fits = place.version == *from && p.page == 0;
        match &place.answer {
            Answer::Watch(_) if fits => {
                let opened = self.open(p, p.cursor, VecDeque::new());
                p.cursor += 1;
                Ok(opened)
            }
            Answer::Refused { after, kind, .. } if fits => {
                if *kind == SourceErrorKind::Expired {
                    p.expired.push(self.clock.now());
                }
                p.cursor += 1;
                Ok((*after, Err(kind.clone())))
            }
            Answer::State(state) if fits && p.cursor > 0 && !self.history.is_empty() => {
                let (opened, moved) = self.through_history(p, from, state);
                p.cursor += moved;
                Ok(opened)
            }
            _ => Err(self.problem(p, &asked)),
        }
    }

    /// The state at the cursor as the beginning of a watch, and in the same stream the recorded watch after it. `None`
    /// when there is no state, or of another version.
    fn streamed(&self, p: &mut Progress, from: &str) -> Option<Watched> {
        let began = |items: &mut dyn Iterator<Item = &Value>, after: Duration, version: &str| {
            let objects = items.map(|o| (after, Item::Event(Frame::Added(o.clone()))));
            let mut all: VecDeque<_> = objects.collect();
            all.push_back((after, Item::Mark(version.to_owned())));
            all
        };
        let Some(place) = self.places.get(p.cursor) else {
            let items = began(&mut self.last.iter(), Duration::ZERO, &p.position.clone());
            p.coming = items.len();
            return Some((Duration::ZERO, Ok(Opened { items })));
        };
        let fits = (p.cursor == 0 || place.version == from) && p.page == 0;
        match &place.answer {
            Answer::State(state) if fits => {
                let after: Duration = state.pages.iter().map(|page| page.after).sum();
                let mut items = began(&mut state.items(), after, state.version());
                let follows = matches!(self.places.get(p.cursor + 1), Some(Place { answer: Answer::Watch(_), .. }));
                let (_, rest) = self.open(p, p.cursor + 1, VecDeque::new());
                let rest = rest.map_or_else(|_| VecDeque::new(), |opened| opened.items);
                items.extend(rest.into_iter().map(|(since, item)| (after + since, item)));
                p.coming = items.len();
                p.cursor += 1 + usize::from(follows);
                Some((Duration::ZERO, Ok(Opened { items })))
            }
            Answer::Refused { list: true, after, kind } if fits => {
                p.cursor += 1;
                Some((*after, Err(kind.clone())))
            }
            _ => None,
        }
    }

    /// The stream of the recorded watch at `place`, after what `before` holds.
    fn open(&self, p: &mut Progress, place: usize, before: VecDeque<(Duration, Item)>) -> Watched {
        let mut items = before;
        let mut opened = Duration::ZERO;
        if let Some(Answer::Watch(watch)) = self.places.get(place).map(|p| &p.answer) {
            items.extend(watch.frames.iter().map(|(after, frame)| (*after, Item::Event(frame.clone()))));
            items.extend(watch.end.iter().map(|(after, end)| (*after, Item::End(end.clone()))));
            opened = watch.opened;
        }
        p.coming = items.len();
        (opened, Ok(Opened { items }))
    }

    /// What a watch from `from` is answered where the file has `state` next, and by how much the cursor moves.
    fn through_history(&self, p: &mut Progress, from: &str, state: &State) -> (Watched, usize) {
        let newer = |a: &str, b: &str| compare_decimal(a, b) == Some(Ordering::Greater);
        let gap = self.history.iter().any(|part| newer(&part.from, from) && !newer(&part.from, state.version()));
        if gap {
            let expired = End::Reported(SourceErrorKind::Expired);
            p.coming = 1;
            return ((Duration::ZERO, Ok(Opened { items: VecDeque::from([(Duration::ZERO, Item::End(expired))]) })), 0);
        }
        let between = |e: &&Frame| newer(e.version(), from) && !newer(e.version(), state.version());
        let events = self.history.iter().flat_map(|part| &part.events).filter(between);
        let events = events.map(|e| (Duration::ZERO, Item::Event(e.clone()))).collect();
        let follows = matches!(self.places.get(p.cursor + 1), Some(Place { answer: Answer::Watch(_), .. }));
        let (_, stream) = self.open(p, p.cursor + 1, events);
        ((Duration::ZERO, stream), 1 + usize::from(follows))
    }
}

/// A list request, in words.
struct Asked<'a>(&'a ListParams);

impl Asked<'_> {
    /// As `resourceVersion` would say it.
    fn version(&self) -> &str {
        match &self.0.version {
            VersionMatch::MostRecent => "",
            VersionMatch::Any => "0",
            VersionMatch::NotOlderThan(v) | VersionMatch::Exact(v) => v,
        }
    }
}

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ListParams { version, limit, continue_token, scope } = self.0;
        write!(f, "a list ({version:?}, limit {limit:?}, continue {continue_token:?}, {scope:?})")
    }
}

/// What a watch is answered, and after which time.
type Watched = (Duration, Result<Opened, SourceErrorKind>);

/// What a stream is going to bring, each counted from its request.
#[derive(Default)]
struct Opened {
    items: VecDeque<(Duration, Item)>,
}

struct Stream {
    shared: Arc<Shared>,
    stop: Stop,
    asked: Instant,
    opened: Opened,
    over: bool,
}

impl Stream {
    /// What is due by now.
    fn due(&mut self) -> Option<Next<Value>> {
        let (after, _) = self.opened.items.front()?;
        if self.shared.clock.now() < self.shared.at(self.asked, *after) {
            return None;
        }
        let (_, item) = self.opened.items.pop_front()?;
        let mut p = self.shared.progress();
        p.coming -= 1;
        Some(match item {
            Item::Event(frame) => {
                frame.version().clone_into(&mut p.position);
                Next::Event(match frame {
                    Frame::Added(o) => WatchEvent::Added(o),
                    Frame::Modified(o) => WatchEvent::Modified(o),
                    Frame::Deleted(o) => WatchEvent::Deleted(o),
                    Frame::Bookmark(version) => WatchEvent::Bookmark { version, initial_events_end: false },
                })
            }
            Item::Mark(version) => {
                version.clone_into(&mut p.position);
                Next::Event(WatchEvent::Bookmark { version, initial_events_end: true })
            }
            Item::End(end) => {
                self.over = true;
                match end {
                    End::Clean => Next::End,
                    End::Cut => Next::Failed(SourceErrorKind::Transport.into()),
                    End::Reported(kind) => {
                        if kind == SourceErrorKind::Expired {
                            p.expired.push(self.shared.clock.now());
                        }
                        Next::Failed(kind.into())
                    }
                }
            }
        })
    }
}

impl WatchStream<Value> for Stream {
    fn next(&mut self, wake: &Wake, deadline: Deadline) -> Next<Value> {
        let given_up = deadline.on(&self.shared.clock);
        loop {
            if wake.is_stopped() {
                return Next::Stopped;
            }
            if self.over {
                return Next::End;
            }
            if let Some(next) = self.due() {
                return next;
            }
            if given_up.is_some_and(|at| self.shared.clock.now() >= at) {
                return Next::Deadline;
            }
            let next = self.opened.items.front().map(|(after, _)| self.shared.at(self.asked, *after));
            match wake.wait(Deadline::from(next.into_iter().chain(given_up).min())) {
                Woken::Stopped => return Next::Stopped,
                Woken::Nudged => return Next::Woken,
                Woken::Deadline => {}
            }
        }
    }

    fn ready(&mut self) -> Option<Next<Value>> {
        if self.over { None } else { self.due() }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let left = self.opened.items.len();
        if left > 0 && !self.stop.is_stopped() {
            let mut p = self.shared.progress();
            p.coming = 0;
            drop(self.shared.problem(&mut p, &format_args!("the closing of a stream with {left} frames to come")));
        }
    }
}

impl ListerWatcher for Replay {
    type Object = Value;

    fn meta<'a>(&self, object: &'a Value) -> Meta<'a> {
        Meta {
            namespace: text(object, "namespace"),
            name: text(object, "name"),
            version: version_of(object),
            uid: text(object, "uid"),
        }
    }

    fn labels(&self, object: &Value, emit: &mut dyn FnMut(&str, &str)) {
        for (name, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
            emit(name, value.as_str().unwrap_or(""));
        }
    }

    fn list(
        &self,
        stop: &Stop,
        params: &ListParams,
        sink: &mut dyn FnMut(Result<Value, Undecodable>) -> ControlFlow<()>,
    ) -> Result<ListEnd, SourceError> {
        let asked = self.0.clock.now();
        let (after, answer) = self.0.list(params)?;
        self.0.wait_until(stop, self.0.at(asked, after))?;
        match answer {
            Listed::Refused(kind) => Err(kind.into()),
            Listed::Items(items, end) => {
                for item in items {
                    if sink(Ok(item)).is_break() {
                        return Err(SourceErrorKind::Stopped.into());
                    }
                }
                Ok(end)
            }
        }
    }

    fn watch(&self, stop: &Stop, params: &WatchParams) -> Result<Box<dyn WatchStream<Value>>, SourceError> {
        let asked = self.0.clock.now();
        let (after, answer) = self.0.watch(params)?;
        let opened = answer.map(|opened| Stream { shared: self.0.clone(), stop: stop.clone(), asked, opened, over: false });
        self.0.wait_until(stop, self.0.at(asked, after))?;
        Ok(Box::new(opened.map_err(SourceError::new)?))
    }

    fn compare(&self, a: &str, b: &str) -> Option<Ordering> {
        compare_decimal(a, b)
    }

    fn supports_watch_list(&self) -> bool {
        self.0.form == Form::Streamed
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = self.0.progress();
        write!(f, "Replay(at place {} of {}, {} problems)", p.cursor, self.0.places.len(), p.problems.len())
    }
}
