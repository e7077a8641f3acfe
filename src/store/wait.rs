//! Waiting for the store to be as somebody wants it: for a version, for a condition.
//!
//! # Protocol
//! What is waited for is a property of what is published, so nothing is handed from the publisher to a waiter but "look
//! again". A waiter looks first, and comes here only when what it sees is not enough.
//!
//! | waiter | publisher |
//! |---|---|
//! | 1 put its handle on the list, count itself in `waiting` | a publish |
//! | 2 fence (SeqCst) | b fence (SeqCst) |
//! | 3 look at what is published: enough? | c read `waiting` (Relaxed): nobody? go on |
//! | 4 park, from 3 when woken; leave the list at the end | d wake everybody on the list |
//!
//! Of the two fences one comes first. If the waiter's does, c sees it counted, and d finds its handle on the list: the
//! count is raised after the handle was put there, under the list's lock. If the publisher's does, 3 sees what was
//! published in a. A wake that comes between 3 and 4 is kept by the parking place. So publishing costs one fence and one
//! load as long as nobody waits. (`store/wait_model.rs`, `whoever_waits_is_told_of_what_is_published`.)
//!
//! The end is published in the same way. A waiter reads it *before* it looks, so what was published last still counts.
//!
//! # What is waited for by a name of the source
//! A version is reached when what is published is that version or, by the source's own order, a later one, of the era in
//! which the wait began: versions of another era prove nothing (`WaitError::EraReset`). An era is known by the number of
//! the publication that begins it, which is announced before it is published: whoever sees the publication sees the
//! announcement, and whoever has seen only earlier publications knows that theirs have a smaller number.

use crate::sync::{
    Clock, Deadline, Door, Instant, Mutex, Once, Unparker, WaitError, Weak,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
    call_out::{self, Site},
    keep, park, unparker,
};
use std::{cmp, fmt};

/// Whoever keeps the store's source knows why nothing comes.
pub(crate) trait Reason: Send + Sync {
    /// Why there is nothing new, when something is known to be wrong.
    fn reason(&self) -> Option<String>;
}

/// The order of two versions of one era, as far as there is one.
pub(crate) type Compare = Box<dyn Fn(&str, &str) -> Option<cmp::Ordering> + Send + Sync>;

/// Those who wait for publications of one store.
pub(crate) struct Waits {
    /// Names the store in the answer of a wait that timed out.
    name: String,
    clock: Clock,
    /// Contains what it calls.
    compare: Compare,
    reason: Once<Weak<dyn Reason>>,
    /// How many are on the list.
    waiting: AtomicUsize,
    ended: AtomicBool,
    /// The number of the publication that began the current era; 0 in the first.
    era: AtomicU64,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    next: u64,
    waiters: Vec<(u64, Unparker)>,
}

impl Waits {
    /// Nobody. `name` and `clock` are the informer's.
    pub(crate) fn new(name: &str, clock: &Clock, compare: Compare) -> Self {
        Self {
            name: name.to_owned(),
            clock: clock.clone(),
            compare,
            reason: Once::new(),
            waiting: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            era: AtomicU64::new(0),
            list: Mutex::default(),
        }
    }

    /// Who is asked for the reason when a wait times out.
    pub(crate) fn ask(&self, whom: Weak<dyn Reason>) {
        self.reason.set(whom).ok();
    }

    /// Does `publish`, and tells whoever waits when something was published. *Blocks*: briefly, when somebody
    /// waits; else it costs one fence and one load.
    pub(crate) fn publish<R>(&self, publish: impl FnOnce() -> Option<R>) -> Option<R> {
        if !keep("wait: told after it is published") {
            self.tell();
            return publish();
        }
        let published = publish()?;
        self.tell();
        Some(published)
    }

    /// Publication number `seq`, which comes next, begins a new era of versions.
    pub(crate) fn era_begins(&self, seq: u64) {
        self.era.store(seq, Ordering::Relaxed);
    }

    /// Whether an era began with a publication after number `seq`. Ask after looking at what is published.
    pub(crate) fn era_began_after(&self, seq: u64) -> bool {
        self.era.load(Ordering::Relaxed) > seq
    }

    /// Nothing will be published any more. Waiters that do not see by now what they wait for get `Stopped`.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.tell();
    }

    fn tell(&self) {
        if keep("wait: the publisher's fence") {
            fence(Ordering::SeqCst);
        }
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let all: Vec<Unparker> = self.list.lock().waiters.iter().map(|(_, waiter)| waiter.clone()).collect();
        for waiter in all {
            waiter.unpark();
        }
    }

    /// Now, on the informer's clock.
    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The source's order of two versions of one era. The source's code runs in it, contained.
    pub(super) fn compare(&self, a: &str, b: &str) -> Option<cmp::Ordering> {
        (self.compare)(a, b)
    }

    /// Whether a store at version `now` has reached `wanted`, both of one era.
    pub(crate) fn reaches(&self, now: &str, wanted: &str) -> bool {
        now == wanted || matches!((self.compare)(now, wanted), Some(cmp::Ordering::Greater | cmp::Ordering::Equal))
    }

    /// Waits until `look` has an answer. It is asked at once, and after every publication, with no lock held; it may be
    /// the user's, and panic. `missing` says what has not happened when the deadline passes.
    ///
    /// # Errors
    /// `Timeout`, `Stopped`, `WouldDeadlock`; and what `look` answers.
    pub(crate) fn wait<R>(
        &self,
        deadline: Deadline,
        mut look: impl FnMut() -> Option<Result<R, WaitError>>,
        missing: impl FnOnce() -> String,
    ) -> Result<R, WaitError> {
        if !matches!(call_out::inside(), None | Some(Site::Handler | Site::Reconcile)) {
            return Err(WaitError::WouldDeadlock);
        }
        if let Some(answer) = look() {
            return answer;
        }
        let at = deadline.on(&self.clock);
        let _door = Door::enter(&self.clock);
        let _place = self.stand_in_line();
        let mut passed = false;
        loop {
            let ended = keep("wait: the end is read before the look") && self.ended.load(Ordering::Acquire);
            if let Some(answer) = look() {
                return answer;
            }
            if ended || !keep("wait: the end is read before the look") && self.ended.load(Ordering::Relaxed) {
                return Err(WaitError::Stopped);
            }
            if passed {
                let last_error = self.reason.get().and_then(Weak::upgrade).and_then(|whom| whom.reason());
                return Err(WaitError::Timeout { missing: vec![format!("{}: {}", self.name, missing())], last_error });
            }
            park(&self.clock, at);
            passed = at.is_some_and(|at| self.clock.now() >= at);
        }
    }

    fn stand_in_line(&self) -> Place<'_> {
        let ticket = {
            let mut list = self.list.lock();
            list.next += 1;
            let ticket = list.next;
            list.waiters.push((ticket, unparker()));
            // The publisher may see the count before the handle only if it then waits for this lock.
            self.waiting.fetch_add(1, Ordering::Relaxed);
            ticket
        };
        if keep("wait: the waiter's fence") {
            fence(Ordering::SeqCst);
        }
        Place(self, ticket)
    }
}

impl fmt::Debug for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waits for {} ({})", self.name, self.waiting.load(Ordering::Relaxed))
    }
}

/// A place on the list; given up when dropped, also while unwinding.
struct Place<'w>(&'w Waits, u64);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut list = self.0.list.lock();
        list.waiters.retain(|(ticket, _)| *ticket != self.1);
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
