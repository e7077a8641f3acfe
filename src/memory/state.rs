//! What the server, its sources and its streams share.
//!
//! # Locks
//! Writers take the `writing` turn and hold it while they call methods of the resource (user code); nobody else takes
//! it. The `state` mutex guards everything else; no user code, no wake-up and no wait happens under it. A writer
//! publishes under it and wakes the waiting streams after it.
//!
//! # No lost wake-ups
//! A reader that finds nothing leaves its `Wake` in `waiting` before it lets go of the lock under which it looked. A
//! writer publishes and takes the wakes under one hold of the same lock. So either the reader saw the change, or the
//! writer sees the wake; and a poke that comes before the reader sleeps is remembered by the `Wake`.

use super::{
    faults::{Effect, Script, Strike},
    requests::{Answer, Asked, Ended, Request},
    resource::Resource,
    watch_cache::{AnyCollection, Collection},
};
use crate::{
    source::{SourceErrorKind, WatchEvent},
    sync::{
        Arc, Clock, Mutex, Turn, Wake,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};
use std::{
    any::{Any, TypeId, type_name},
    collections::{BTreeMap, HashMap, VecDeque},
    time::Duration,
};

#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) cached: bool,
    pub(super) window: usize,
    pub(super) bookmark_period: Duration,
    pub(super) page_life: Duration,
    pub(super) too_large_wait: Duration,
    pub(super) streams_states: bool,
}

pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) options: Options,
    pub(super) writing: Turn<fastrand::Rng>,
    state: Mutex<State>,
}

/// What a request in flight, or an open stream, shares with the server.
pub(super) struct Line {
    fate: AtomicU8,
    pub(super) frames: AtomicU64,
    pub(super) of: TypeId,
    is_stream: bool,
    /// Frames that were not written but are to be told.
    injected: Mutex<VecDeque<Box<dyn Any + Send>>>,
}

/// What became of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Open,
    Cut,
    Closed,
}

impl Line {
    pub(super) fn fate(&self) -> Fate {
        match self.fate.load(Ordering::Acquire) {
            0 => Fate::Open,
            1 => Fate::Cut,
            _ => Fate::Closed,
        }
    }

    /// The first fate stays.
    pub(super) fn end(&self, how: Close) {
        let fate = match how {
            Close::Cut => 1,
            Close::Clean => 2,
        };
        // Fails when the line has ended already, and then nothing is to be done.
        let _first = self.fate.compare_exchange(0, fate, Ordering::AcqRel, Ordering::Acquire);
    }

    pub(super) fn inject<R: Resource>(&self, frame: WatchEvent<R>) {
        self.injected.lock().push_back(Box::new(frame));
    }

    pub(super) fn take_injected<R: Resource>(&self) -> Option<WatchEvent<R>> {
        let frame = self.injected.lock().pop_front()?;
        frame.downcast().ok().map(|f| *f)
    }
}

/// How connections end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// The line breaks: streams fail with `Transport`.
    Cut,
    /// In order: streams end.
    Clean,
}

pub(super) struct State {
    pub(super) version: u64,
    pub(super) seq: u64,
    pub(super) compacted: u64,
    /// Versions before this belong to a past that was lost in a restore.
    pub(super) restored: u64,
    /// The version at which the server process began.
    pub(super) started_at: u64,
    pub(super) up: bool,
    pub(super) collections: HashMap<TypeId, Box<dyn AnyCollection>>,
    waiting: BTreeMap<u64, (Option<TypeId>, Wake)>,
    pub(super) lines: BTreeMap<u64, Arc<Line>>,
    requests: BTreeMap<u64, Request>,
    last_request: u64,
    pub(super) faults: Script,
}

impl Shared {
    pub(super) fn new(clock: Clock, options: Options, first_version: u64, seed: u64) -> Self {
        let state = State {
            version: first_version,
            seq: 0,
            compacted: 0,
            restored: 0,
            started_at: first_version,
            up: true,
            collections: HashMap::new(),
            waiting: BTreeMap::new(),
            lines: BTreeMap::new(),
            requests: BTreeMap::new(),
            last_request: 0,
            faults: Script::default(),
        };
        Self { clock, options, writing: Turn::new(fastrand::Rng::with_seed(seed)), state: Mutex::new(state) }
    }

    pub(super) fn lock(&self) -> crate::sync::MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The collection of `R`, made on first use.
    pub(super) fn collection<'a, R: Resource>(&self, state: &'a mut State) -> &'a mut Collection<R> {
        let floor = if self.options.cached { state.started_at } else { state.compacted.saturating_sub(1) };
        let window = if self.options.cached { self.options.window } else { usize::MAX };
        let any = state.collections.entry(TypeId::of::<R>()).or_insert_with(|| Box::new(Collection::<R>::new(floor, window)));
        any.as_any_mut().downcast_mut().expect("collections are kept by their type")
    }

    /// Changes the state and wakes whoever waits for changes of `of`, or everybody, after the lock.
    pub(super) fn change<A>(&self, of: Option<TypeId>, f: impl FnOnce(&mut State) -> A) -> A {
        let (answer, wakes) = {
            let mut state = self.lock();
            let answer = f(&mut state);
            let concerned = |waits_for: Option<TypeId>| of.is_none() || waits_for.is_none() || waits_for == of;
            let wakes: Vec<Wake> = state.waiting.values().filter(|(t, _)| concerned(*t)).map(|(_, w)| w.clone()).collect();
            (answer, wakes)
        };
        for wake in wakes {
            wake.poke();
        }
        answer
    }
}

impl State {
    /// Has `wake` poked when something changes that `number` waits for.
    pub(super) fn wait_for(&mut self, number: u64, of: Option<TypeId>, wake: &Wake) {
        self.waiting.entry(number).or_insert_with(|| (of, wake.clone()));
    }

    pub(super) fn stop_waiting(&mut self, number: u64) -> Option<Wake> {
        self.waiting.remove(&number).map(|(_, w)| w)
    }
}

impl State {
    /// The watches that are open.
    pub(super) fn streams(&self) -> impl Iterator<Item = &Arc<Line>> {
        self.lines.values().filter(|l| l.is_stream)
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.requests.values().map(|r| self.up_to_date(r.clone())).collect()
    }

    pub(super) fn take_requests(&mut self) -> Vec<Request> {
        let requests = std::mem::take(&mut self.requests);
        requests.into_values().map(|r| self.up_to_date(r)).collect()
    }

    /// An open watch counts its frames on its line.
    fn up_to_date(&self, mut request: Request) -> Request {
        if let (Answer::Watched { frames, ended: None }, Some(line)) = (&mut request.answer, self.lines.get(&request.number)) {
            *frames = line.frames.load(Ordering::Relaxed);
        }
        request
    }
}

/// A request that is being answered. Dropped when the answer is complete, or the stream is gone.
pub(super) struct Call {
    pub(super) shared: Arc<Shared>,
    pub(super) number: u64,
    pub(super) line: Arc<Line>,
    pub(super) strike: Option<Strike>,
}

impl Call {
    /// Lets a request in. `None` when nobody is there.
    pub(super) fn begin<R: Resource>(shared: &Arc<Shared>, asked: Asked) -> Option<Self> {
        let at = shared.clock.now();
        let of = TypeId::of::<R>();
        let mut state = shared.lock();
        state.last_request += 1;
        let number = state.last_request;
        let strike = if state.up { state.faults.strike(of, &asked, at) } else { None };
        let is_stream = matches!(asked, Asked::Watch(_));
        let answer = if state.up { Answer::Pending } else { Answer::Failed(SourceErrorKind::ConnectionRefused) };
        state.requests.insert(number, Request { number, at, resource: type_name::<R>(), asked, answer });
        if !state.up {
            return None;
        }
        let line =
            Arc::new(Line { fate: AtomicU8::new(0), frames: AtomicU64::new(0), of, is_stream, injected: Mutex::default() });
        state.lines.insert(number, line.clone());
        Some(Self { shared: shared.clone(), number, line, strike })
    }

    /// The newest version that the server has seen which answers this.
    pub(super) fn seen(&self, state: &State) -> u64 {
        match self.strike.as_ref().map(|s| &s.effect) {
            Some(Effect::Behind(n)) => state.version.saturating_sub(*n).max(state.restored).max(1),
            _ => state.version,
        }
    }

    /// Writes down what came of it.
    pub(super) fn answered(&self, answer: Answer) {
        if let Some(request) = self.shared.lock().requests.get_mut(&self.number) {
            request.answer = answer;
        }
    }

    /// Writes down how the stream ended, and takes it off the open ones.
    pub(super) fn ended(&self, how: Ended) {
        let frames = self.line.frames.load(Ordering::Relaxed);
        let (line, wake) = {
            let mut state = self.shared.lock();
            if let Some(request) = state.requests.get_mut(&self.number)
                && matches!(request.answer, Answer::Pending | Answer::Watched { ended: None, .. })
            {
                request.answer = Answer::Watched { frames, ended: Some(how) };
            }
            (state.lines.remove(&self.number), state.stop_waiting(self.number))
        };
        drop((line, wake));
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let gone = {
            let mut state = self.shared.lock();
            (state.lines.remove(&self.number), state.stop_waiting(self.number))
        };
        drop(gone);
    }
}
