//! [`Source`]: lists and the opening of watches, as a [`ListerWatcher`].

use super::{
    faults::{Break, Effect, When},
    parse_version,
    requests::{Answer, Asked},
    resource::Resource,
    selector::Selection,
    server::Server,
    state::{Call, Fate},
    stream::Stream,
    watch_cache,
};
use crate::{
    flow::{Meta, Object, ObjectKey},
    source::{
        ListEnd, ListParams, ListerWatcher, SourceError, SourceErrorKind, Undecodable, VersionMatch, WatchParams, WatchStream,
        compare_decimal,
    },
    sync::{
        Deadline, Instant, Stop, Wake, Woken,
        call_out::{self, Site},
    },
};
use std::{marker::PhantomData, ops::ControlFlow, time::Duration};

/// The objects of one resource of a [`Server`]. Clones ask the same server.
///
/// *Blocks*: a list while it waits for a version that is not reached yet, and both requests under a fault that delays
/// or withholds the answer; always on the server's clock, and until stop at most.
pub struct Source<R> {
    server: Server,
    patience: Option<Duration>,
    of: PhantomData<fn() -> R>,
}

impl<R: Resource> Source<R> {
    pub(super) fn new(server: Server) -> Self {
        Self { server, patience: None, of: PhantomData }
    }

    /// The same source, but for a list or the opening of a watch that takes longer than this: it gives up with
    /// [`SourceErrorKind::Timeout`], as a client over a network does. Without, it waits for ever.
    #[must_use]
    pub fn give_up_after(self, patience: Duration) -> Self {
        Self { patience: Some(patience), ..self }
    }

    /// The server behind it.
    pub fn server(&self) -> &Server {
        &self.server
    }
}

impl<R> Clone for Source<R> {
    fn clone(&self) -> Self {
        Self { server: self.server.clone(), ..*self }
    }
}

impl<R> std::fmt::Debug for Source<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("of", &std::any::type_name::<R>()).field("server", &self.server).finish()
    }
}

/// A step of a request that did not succeed.
type Refusal = SourceError;

fn refuse<A>(kind: SourceErrorKind, why: &str) -> Result<A, Refusal> {
    Err(SourceError::new(kind).with_context(why))
}

fn bad_request<A>(why: &str) -> Result<A, Refusal> {
    refuse(SourceErrorKind::Server { code: 400, reason: "BadRequest".to_owned(), retry_after: None }, why)
}

/// Where the next page begins: an opaque text for the caller.
struct Token {
    version: u64,
    begun: Instant,
    after: ObjectKey,
}

impl Token {
    fn write(&self) -> String {
        let text = format!("{} {} {}", self.version, self.begun.since_start().as_nanos(), self.after);
        text.bytes().map(|b| format!("{b:02x}")).collect()
    }

    fn read(text: &str) -> Option<Self> {
        let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
        let digits = digits?;
        if !digits.len().is_multiple_of(2) {
            return None;
        }
        let text = String::from_utf8(digits.chunks(2).map(|d| d[0] << 4 | d[1]).collect()).ok()?;
        let mut words = text.splitn(3, ' ');
        let version = parse_version(words.next()?)?;
        let begun = Instant::from_start(Duration::from_nanos(words.next()?.parse().ok()?));
        Some(Self { version, begun, after: words.next()?.parse().ok()? })
    }
}

/// The objects that a list is made from, and where in them it begins and ends.
struct Plan<R> {
    state: watch_cache::State<R>,
    after: Option<ObjectKey>,
    limit: Option<usize>,
    begun: Instant,
}

impl<R: Resource> Source<R> {
    /// Waits out what a fault does before the answer: its delay, or for ever. Says what is wrong with the answer.
    fn struck<'c>(&self, call: &'c Call, wake: &Wake) -> Result<&'c Effect, Refusal> {
        let Some(strike) = &call.strike else { return Ok(&Effect::Pass) };
        let hangs = strike.effect == Effect::Hang;
        if hangs || strike.delay.is_some() {
            let deadline = if hangs { Deadline::never() } else { strike.delay.unwrap_or_default().into() };
            self.wait_until(call, wake, deadline, || false)?;
        }
        match &strike.effect {
            Effect::Refuse(kind) => refuse(kind.clone(), "a fault of the script"),
            effect => Ok(effect),
        }
    }

    /// Waits until `ready`, which is asked under no lock, or the deadline; says which.
    fn wait_until(&self, call: &Call, wake: &Wake, deadline: Deadline, mut ready: impl FnMut() -> bool) -> Result<bool, Refusal> {
        let until = deadline.on(wake.clock());
        let given_up = self.patience.and_then(|p| wake.clock().now().checked_add(p));
        let too_long = given_up.filter(|g| until.is_none_or(|u| *g < u));
        let at = Deadline::from(too_long.or(until));
        call.shared.lock().wait_for(call.number, None, wake);
        let outcome = loop {
            let woken = wake.wait_until(at, || call.line.fate() != Fate::Open || ready());
            if call.line.fate() != Fate::Open {
                break refuse(SourceErrorKind::Transport, "the connection was cut");
            }
            match woken {
                None => break Ok(true),
                Some(Woken::Deadline) if too_long.is_some() => break refuse(SourceErrorKind::Timeout, "no answer in time"),
                Some(Woken::Deadline) => break Ok(false),
                Some(Woken::Stopped) => break refuse(SourceErrorKind::Stopped, "while waiting for the answer"),
                Some(Woken::Nudged) => {}
            }
        };
        let wake = call.shared.lock().stop_waiting(call.number);
        drop(wake);
        outcome
    }

    /// Finds the state to list.
    fn plan(&self, call: &Call, wake: &Wake, params: &ListParams) -> Result<Plan<R>, Refusal> {
        let shared = &call.shared;
        let now = shared.clock.now();
        let limit = params.limit.filter(|n| *n > 0).map(|n| n as usize);
        if let Some(token) = params.continue_token.as_deref().filter(|t| !t.is_empty()) {
            if params.version != VersionMatch::MostRecent {
                return bad_request("a version must not be sent together with a continue token");
            }
            let Some(token) = Token::read(token) else { return bad_request("the continue token is not one of this server's") };
            let mut state = shared.lock();
            let (newest, compacted) = (state.version, state.compacted);
            let expired = now.since(token.begun) >= shared.options.page_life || token.version > newest;
            let found = if expired { None } else { shared.collection::<R>(&mut state).at(token.version, compacted) };
            let Some(found) = found else {
                return refuse(SourceErrorKind::Expired, "the continue token is too old; list again from the first page");
            };
            return Ok(Plan { state: found, after: Some(token.after), limit, begun: token.begun });
        }
        let (wanted, exact) = match &params.version {
            VersionMatch::MostRecent | VersionMatch::Any => (None, false),
            VersionMatch::NotOlderThan(v) => (Some(v), false),
            VersionMatch::Exact(v) => (Some(v), true),
        };
        let wanted = match wanted.map(|v| parse_version(v)) {
            None => 0,
            Some(Some(v)) => v,
            Some(None) => return bad_request("the version is not a number"),
        };
        // An exact list comes from the storage, which every server reads.
        let seen = |call: &Call| if exact { shared.lock().version } else { call.seen(&shared.lock()) };
        if seen(call) < wanted {
            let cached = shared.options.cached;
            let patience = if cached { shared.options.too_large_wait } else { Duration::ZERO };
            if !self.wait_until(call, wake, patience.into(), || seen(call) >= wanted)? {
                let retry_after = cached.then_some(Duration::from_secs(1));
                return refuse(SourceErrorKind::TooLargeVersion { retry_after }, "the server has not seen this version");
            }
        }
        // Read from memory, a list at any version is cheap, and is never cut into pages.
        let limit = if params.version == VersionMatch::Any && shared.options.cached { None } else { limit };
        let mut state = shared.lock();
        let (newest, seq, compacted) = (state.version, state.seq, state.compacted);
        let cached = match params.version {
            VersionMatch::MostRecent => newest,
            _ => call.seen(&state),
        };
        let collection = shared.collection::<R>(&mut state);
        let found = if !exact {
            collection.of_cache(cached, newest, seq)
        } else if wanted == newest {
            collection.now(newest, seq)
        } else if let Some(found) = collection.at(wanted, compacted).filter(|_| wanted >= compacted) {
            found
        } else {
            return refuse(SourceErrorKind::Expired, "the version is older than the storage remembers");
        };
        if limit.is_some_and(|n| n < found.objects.len()) {
            collection.forget_pages(now, shared.options.page_life);
            collection.keep_for_pages(&found, now);
        }
        Ok(Plan { state: found, after: None, limit, begun: now })
    }

    fn answer_list(
        &self,
        call: &Call,
        stop: &Stop,
        params: &ListParams,
        sink: &mut dyn FnMut(Result<R, Undecodable>) -> ControlFlow<()>,
    ) -> Result<(ListEnd, usize), Refusal> {
        let wake = Wake::new(stop, &call.shared.clock);
        let effect = self.struck(call, &wake)?;
        let selection = Selection::parse::<R>(&params.scope)?;
        let plan = self.plan(call, &wake, params)?;

        let (mut items, mut last, mut more) = (0_usize, None, false);
        let from = plan.after.as_ref().map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        for (key, object) in plan.state.objects.range::<_, ObjectKey>((from, std::ops::Bound::Unbounded)) {
            if selection.excludes_namespace(key.namespace()) {
                continue;
            }
            if plan.limit.is_some_and(|n| items >= n) {
                // As the real server: a page follows when keys are left, even if none of them will be selected.
                more = true;
                break;
            }
            if stop.is_stopped() {
                return refuse(SourceErrorKind::Stopped, "in the middle of a list");
            }
            if call.line.fate() != Fate::Open {
                return refuse(SourceErrorKind::Transport, "the connection was cut in the middle of a list");
            }
            if let Effect::Break { when: When::Frames(n), how: Break::Fail(kind) } = effect
                && items as u64 >= *n
            {
                return refuse(kind.clone(), "a fault of the script, in the middle of a list");
            }
            let value: R = match call_out::call(Site::Source, || selection.matches(&**object).then(|| R::clone(object))) {
                Ok(None) => continue,
                Ok(Some(value)) => value,
                Err(panicked) => return Err(SourceError::caused_by(SourceErrorKind::Other, panicked)),
            };
            items += 1;
            last = Some(key);
            let item = match effect {
                Effect::Garble { at, key } if *at == items as u64 => Err(garbled(object, *key)),
                _ => Ok(value),
            };
            if sink(item).is_break() {
                return refuse(SourceErrorKind::Stopped, "the caller wants no more items");
            }
        }
        if let Effect::Break { when: When::Frames(_), how: Break::Fail(kind) } = effect {
            // The list was shorter than the fault: it breaks at its end.
            return refuse(kind.clone(), "a fault of the script, at the end of a list");
        }
        if !more {
            // From now on somebody may know this whole state.
            call.shared.collection::<R>(&mut call.shared.lock()).listed(params.scope.clone(), plan.state.seq);
        }
        let version = plan.state.version;
        let next = last.filter(|_| more).map(|after| Token { version, begun: plan.begun, after: after.clone() }.write());
        Ok((ListEnd { version: version.to_string(), continue_token: next }, items))
    }

    fn answer_watch(&self, call: &Call, stop: &Stop, params: &WatchParams) -> Result<(Selection, u64), Refusal> {
        let wake = Wake::new(stop, &call.shared.clock);
        self.struck(call, &wake)?;
        let selection = Selection::parse::<R>(&params.scope)?;
        if params.initial_events && !call.shared.options.streams_states {
            return refuse(SourceErrorKind::WatchListUnsupported, "sendInitialEvents is forbidden for watch");
        }
        let from = if params.from.is_empty() { Some(0) } else { parse_version(&params.from) };
        match from {
            Some(from) => Ok((selection, from)),
            // Unlike a list, which says 400.
            None => refuse(
                SourceErrorKind::Server { code: 500, reason: String::new(), retry_after: None },
                "the version to watch from is not a number",
            ),
        }
    }
}

/// What is left of an object that cannot be read.
pub(super) fn garbled<R>(object: &Object<R>, readable: bool) -> Undecodable {
    Undecodable {
        key: readable.then(|| Object::key(object).clone()),
        version: readable.then(|| Object::version(object).to_string()),
        why: "a fault of the script".to_owned(),
    }
}

impl<R: Resource> ListerWatcher for Source<R> {
    type Object = R;

    fn meta<'a>(&self, object: &'a R) -> Meta<'a> {
        object.meta()
    }

    fn labels(&self, object: &R, emit: &mut dyn FnMut(&str, &str)) {
        object.labels(emit);
    }

    fn list(
        &self,
        stop: &Stop,
        params: &ListParams,
        sink: &mut dyn FnMut(Result<R, Undecodable>) -> ControlFlow<()>,
    ) -> Result<ListEnd, SourceError> {
        let Some(call) = Call::begin::<R>(&self.server.0, Asked::List(params.clone())) else {
            return refuse(SourceErrorKind::ConnectionRefused, "the embedded server is down");
        };
        let outcome = self.answer_list(&call, stop, params, sink);
        call.answered(match &outcome {
            Ok((end, items)) => {
                Answer::Listed { version: end.version.clone(), items: *items, more: end.continue_token.is_some() }
            }
            Err(e) => answer_of(e),
        });
        outcome.map(|(end, _)| end)
    }

    fn watch(&self, stop: &Stop, params: &WatchParams) -> Result<Box<dyn WatchStream<R>>, SourceError> {
        let Some(call) = Call::begin::<R>(&self.server.0, Asked::Watch(params.clone())) else {
            return refuse(SourceErrorKind::ConnectionRefused, "the embedded server is down");
        };
        match self.answer_watch(&call, stop, params) {
            Ok((selection, from)) => {
                call.answered(Answer::Watched { frames: 0, ended: None });
                Ok(Box::new(Stream::<R>::open(call, params, selection, from)))
            }
            Err(e) => {
                call.answered(answer_of(&e));
                Err(e)
            }
        }
    }

    fn compare(&self, a: &str, b: &str) -> Option<std::cmp::Ordering> {
        compare_decimal(a, b)
    }

    fn supports_watch_list(&self) -> bool {
        true
    }
}

fn answer_of(error: &SourceError) -> Answer {
    match error.kind() {
        SourceErrorKind::Stopped => Answer::Stopped,
        kind => Answer::Failed(kind.clone()),
    }
}
