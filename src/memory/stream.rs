//! [`Stream`]: one open watch.
//!
//! It reads the log of its collection from a position of its own, a chunk at a time; what it has taken is on the line
//! and survives trimming, but not a cut. Between the chunks it looks at its clock: end of the watch, bookmarks, faults.
//!
//! States: *open*; *silent* (a fault: only a cut gets through, as on a half-open line); *over* (the end was told). A
//! watch that begins with the state first waits for its version, then has the mark behind the state to deliver.

use super::{
    faults::{Break, Effect, When},
    requests::Ended,
    resource::Resource,
    selector::Selection,
    source::garbled,
    state::{Call, Fate},
    watch_cache::{Change, Op, Pulled, Reader},
};
use crate::{
    flow::Object,
    source::{Next, Scope, SourceError, SourceErrorKind, WatchEvent, WatchParams, WatchStream},
    sync::{
        Arc, Deadline, Instant, Wake, Woken,
        atomic::Ordering,
        call_out::{self, Panicked, Site},
    },
};
use std::{any::TypeId, collections::VecDeque, time::Duration};

/// Changes taken from the log under one hold of the lock.
const CHUNK: usize = if cfg!(test) { 3 } else { 128 };
/// How long before its end a watch gets its last bookmark.
const BEFORE_END: Duration = Duration::from_secs(2);
/// What a watch of no stated length lasts.
const UNSTATED: Duration = Duration::from_secs(1800);

/// What is to be delivered next.
enum Item<R> {
    /// Part of the state that a watch begins with.
    State(Object<R>),
    Change(Arc<Change<R>>),
}

/// How far a watch is that begins with the state.
#[derive(Clone, Copy)]
enum Beginning {
    /// The state must not be older than this, and the server has until then to get there.
    Awaited { version: u64, until: Option<Instant> },
    /// The state has been taken: its version, and the last change in it. A mark follows it.
    Taken { version: u64, seq: u64 },
    /// That is behind it.
    Over,
}

pub(super) struct Stream<R: Resource> {
    call: Call,
    selection: Selection,
    scope: Scope,
    bookmarks: bool,
    beginning: Beginning,
    reader: Reader,
    /// Everything up to this version has been taken from the log.
    reached: u64,
    taken: VecDeque<Item<R>>,
    /// A bookmark is due once everything up to this version has been delivered.
    mark: Option<u64>,
    opened: Instant,
    next_mark: Option<Instant>,
    last_mark: Option<Instant>,
    /// Objects delivered; bookmarks do not count.
    objects: u64,
    expired: bool,
    silent: bool,
    over: bool,
}

impl<R: Resource> Stream<R> {
    pub(super) fn open(call: Call, params: &WatchParams, selection: Selection, from: u64) -> Self {
        let shared = call.shared.clone();
        let opened = shared.clock.now();
        let lasts = if params.timeout.is_zero() { UNSTATED } else { params.timeout };
        let ends = opened.checked_add(lasts);
        let marked = params.bookmarks && shared.options.cached;
        let mut state = shared.lock();
        let newest = state.version;
        let collection = shared.collection::<R>(&mut state);
        // Whoever asks from nowhere gets the state as well, without a mark.
        let whole = params.initial_events || from == 0;
        // The most recent state is that of the storage; a server whose memory is behind waits for it.
        let from = if params.initial_events && params.from.is_empty() { newest } else { from };
        let expired = !whole && from < collection.floor();
        let reader = collection.reader(from, ends);
        drop(state);
        let patience = if shared.options.cached { shared.options.too_large_wait } else { Duration::ZERO };
        let until = opened.checked_add(patience);
        let mut stream = Self {
            selection,
            scope: params.scope.clone(),
            bookmarks: params.bookmarks && params.initial_events,
            beginning: if whole { Beginning::Awaited { version: from, until } } else { Beginning::Over },
            reader,
            reached: from,
            taken: VecDeque::new(),
            mark: None,
            opened,
            next_mark: if marked { opened.checked_add(shared.options.bookmark_period) } else { None },
            last_mark: lasts.checked_sub(BEFORE_END).filter(|d| marked && !d.is_zero()).and_then(|d| opened.checked_add(d)),
            objects: 0,
            expired,
            silent: false,
            over: false,
            call,
        };
        if whole {
            stream.begin(from);
        }
        stream
    }

    /// What can be had now. When there is nothing, `wake` is poked once there may be.
    fn poll(&mut self, wake: Option<&Wake>) -> Option<Next<R>> {
        loop {
            if self.over {
                return Some(Next::End);
            }
            match self.call.line.fate() {
                Fate::Open => {}
                Fate::Cut => return Some(self.fail(SourceErrorKind::Transport, "the connection was cut")),
                Fate::Closed => return Some(self.end()),
            }
            let now = self.call.shared.clock.now();
            if let Some(broken) = self.strike(now) {
                return Some(broken);
            }
            if self.silent {
                self.wait_for(wake);
                return None;
            }
            if self.expired {
                return Some(self.fail(SourceErrorKind::Expired, "too old a version to watch from"));
            }
            if let Beginning::Awaited { version, until } = self.beginning
                && !self.begin(version)
            {
                if until.is_some_and(|at| now >= at) {
                    let retry_after = self.call.shared.options.cached.then_some(Duration::from_secs(1));
                    let kind = SourceErrorKind::TooLargeVersion { retry_after };
                    return Some(self.fail(kind, "the server has not seen this version"));
                }
                if let Some(wake) = wake {
                    // Any write moves the version on, also one of another resource.
                    let mut state = self.call.shared.lock();
                    state.wait_for(self.call.number, None, wake);
                    if self.call.seen(&state) >= version {
                        continue;
                    }
                }
                return None;
            }
            if let Beginning::Taken { version, seq } = self.beginning
                && self.taken.is_empty()
            {
                self.beginning = Beginning::Over;
                if self.bookmarks && self.effect() != Some(&Effect::NoEndMark) {
                    // From now on somebody may know this whole state.
                    self.call.shared.collection::<R>(&mut self.call.shared.lock()).listed(self.scope.clone(), seq);
                    return Some(self.deliver(bookmark(version, true)));
                }
            }
            if let Some(item) = self.taken.pop_front() {
                match self.frame(&item) {
                    Ok(None) => continue,
                    Ok(Some(frame)) => return Some(self.deliver(frame)),
                    Err(panicked) => {
                        let error = SourceError::caused_by(SourceErrorKind::Other, panicked);
                        return Some(self.over(Ended::Failed(SourceErrorKind::Other), Next::Failed(error)));
                    }
                }
            }
            if self.mark.take_if(|m| *m <= self.reached).is_some() {
                return Some(self.deliver(bookmark(self.reached, false)));
            }
            if self.pull(now, wake) {
                continue;
            }
            if self.reader.ends.is_some_and(|at| now >= at) {
                return Some(self.end());
            }
            if let Some(frame) = self.call.line.take_injected() {
                return Some(self.deliver(frame));
            }
            if self.mark.is_none_or(|m| m > self.reached) {
                return None;
            }
        }
    }

    /// Takes the state, if the server has reached this version.
    fn begin(&mut self, version: u64) -> bool {
        let shared = self.call.shared.clone();
        let mut state = shared.lock();
        let seen = self.call.seen(&state);
        if seen < version {
            return false;
        }
        let (newest, seq) = (state.version, state.seq);
        let collection = shared.collection::<R>(&mut state);
        let whole = collection.of_cache(seen, newest, seq);
        self.beginning = Beginning::Taken { version: seen, seq: whole.seq };
        self.taken.extend(whole.objects.values().cloned().map(Item::State));
        self.reader = collection.reader(seen, self.reader.ends);
        self.reached = seen;
        true
    }

    fn effect(&self) -> Option<&Effect> {
        self.call.strike.as_ref().map(|s| &s.effect)
    }

    /// Takes the next chunk from the log. True when there was one, or the watch turned out to be over.
    fn pull(&mut self, now: Instant, wake: Option<&Wake>) -> bool {
        let shared = self.call.shared.clone();
        let mut state = shared.lock();
        if self.call.line.fate() != Fate::Open {
            // Ended since it was looked at: what was written after the end must not be seen.
            return true;
        }
        let newest = self.call.seen(&state);
        let taken = &mut self.taken;
        let collection = shared.collection::<R>(&mut state);
        let pulled = collection.pull(&mut self.reader, newest, CHUNK, |c| taken.push_back(Item::Change(c.clone())));
        let found = match pulled {
            Pulled::Some => {
                if let Some(Item::Change(last)) = self.taken.back() {
                    self.reached = last.version;
                }
                true
            }
            Pulled::CaughtUp => {
                self.reached = self.reached.max(newest);
                if let Some(wake) = wake {
                    state.wait_for(self.call.number, Some(TypeId::of::<R>()), wake);
                }
                false
            }
            Pulled::Expired => {
                self.expired = true;
                true
            }
        };
        drop(state);
        // A watch from a version that the server has not reached gets no bookmark.
        if self.take_due_mark(now) && newest >= self.reader.from {
            self.mark = Some(newest);
        }
        found
    }

    fn take_due_mark(&mut self, now: Instant) -> bool {
        let mut due = false;
        if self.next_mark.is_some_and(|at| now >= at) {
            due = true;
            self.next_mark = now.checked_add(self.call.shared.options.bookmark_period);
        }
        if self.last_mark.is_some_and(|at| now >= at) {
            due = true;
            self.last_mark = None;
        }
        due
    }

    /// Applies the fault that struck this watch, when it is due.
    fn strike(&mut self, now: Instant) -> Option<Next<R>> {
        let strike = self.call.strike.as_ref()?;
        let due = |when: &When| match when {
            When::Frames(n) => self.objects >= *n,
            When::After(d) => now.since(self.opened) >= *d,
        };
        match &strike.effect {
            Effect::Break { when, how } if due(when) => match how.clone() {
                Break::Fail(kind) => Some(self.fail(kind, "a fault of the script")),
                Break::Clean => Some(self.end()),
            },
            Effect::Silence { when } if due(when) => {
                self.silent = true;
                None
            }
            _ => None,
        }
    }

    /// What the watcher sees of a change, if anything. Calls user code.
    fn frame(&self, item: &Item<R>) -> Result<Option<WatchEvent<R>>, Panicked> {
        let selected = |o: &Object<R>| self.selection.matches(&**o);
        let frame = call_out::call(Site::Source, || match item {
            Item::State(o) => selected(o).then(|| (o, WatchEvent::Added(R::clone(o)))),
            Item::Change(change) => {
                let o = &change.object;
                let was = change.before.as_ref().filter(|o| selected(o));
                let is = change.op != Op::Deleted && selected(o);
                match (was, is) {
                    (None, false) => None,
                    (None, true) => Some((o, WatchEvent::Added(R::clone(o)))),
                    (Some(_), true) => Some((o, WatchEvent::Modified(R::clone(o)))),
                    (Some(_), false) if change.op == Op::Deleted => Some((o, WatchEvent::Deleted(R::clone(o)))),
                    (Some(was), false) => {
                        // It left the selection: its last selected state, with the version of the change.
                        let mut last = R::clone(was);
                        last.set_version(&change.version.to_string());
                        Some((o, WatchEvent::Deleted(last)))
                    }
                }
            }
        })?;
        Ok(frame.map(|(object, frame)| match self.effect() {
            Some(Effect::Garble { at, key }) if *at == self.objects + 1 => {
                let deleted = matches!(frame, WatchEvent::Deleted(_));
                WatchEvent::Undecodable { object: garbled(object, *key), deleted }
            }
            _ => frame,
        }))
    }

    fn deliver(&mut self, frame: WatchEvent<R>) -> Next<R> {
        self.objects += u64::from(!matches!(frame, WatchEvent::Bookmark { .. }));
        self.call.line.frames.fetch_add(1, Ordering::Relaxed);
        Next::Event(frame)
    }

    fn fail(&mut self, kind: SourceErrorKind, why: &str) -> Next<R> {
        let error = SourceError::new(kind.clone()).with_context(why);
        self.over(Ended::Failed(kind), Next::Failed(error))
    }

    fn end(&mut self) -> Next<R> {
        self.over(Ended::Clean, Next::End)
    }

    fn over(&mut self, how: Ended, last: Next<R>) -> Next<R> {
        self.over = true;
        self.call.ended(how);
        last
    }

    fn wait_for(&self, wake: Option<&Wake>) {
        if let Some(wake) = wake {
            self.call.shared.lock().wait_for(self.call.number, Some(TypeId::of::<R>()), wake);
        }
    }

    /// When this stream has to look at its clock again.
    fn timer(&self) -> Option<Instant> {
        let fault = self.call.strike.as_ref().and_then(|s| match s.effect {
            Effect::Break { when: When::After(d), .. } | Effect::Silence { when: When::After(d) } => self.opened.checked_add(d),
            _ => None,
        });
        if self.silent {
            return None;
        }
        let too_late = match self.beginning {
            Beginning::Awaited { until, .. } => until,
            Beginning::Taken { .. } | Beginning::Over => None,
        };
        [self.reader.ends, self.next_mark, self.last_mark, too_late, fault].into_iter().flatten().min()
    }
}

impl<R: Resource> WatchStream<R> for Stream<R> {
    fn next(&mut self, wake: &Wake, deadline: Deadline) -> Next<R> {
        let limit = deadline.on(wake.clock());
        loop {
            let at = [limit, self.timer()].into_iter().flatten().min();
            let mut found = None;
            let woken = wake.wait_until(Deadline::from(at), || {
                found = self.poll(Some(wake));
                found.is_some()
            });
            let registered = self.call.shared.lock().stop_waiting(self.call.number);
            drop(registered);
            match (found, woken) {
                (Some(next), _) => return next,
                (None, Some(Woken::Stopped)) => return Next::Stopped,
                (None, Some(Woken::Nudged)) => return Next::Woken,
                (None, _) => {
                    if limit.is_some_and(|l| wake.clock().now() >= l) {
                        return Next::Deadline;
                    }
                }
            }
        }
    }

    fn ready(&mut self) -> Option<Next<R>> {
        if self.over { None } else { self.poll(None) }
    }
}

fn bookmark<R>(version: u64, initial_events_end: bool) -> WatchEvent<R> {
    WatchEvent::Bookmark { version: version.to_string(), initial_events_end }
}

impl<R: Resource> Drop for Stream<R> {
    fn drop(&mut self) {
        if !self.over {
            self.call.ended(Ended::Dropped);
        }
    }
}
