//! Deadlines, the earliest first, equal ones in the order of their adding.
//!
//! Each entry can be taken out of the middle: a key has one timer at most, and an earlier deadline replaces it. So the
//! entries number the keys that wait, however often they were added. Kept as a B-tree, where taking out of the middle
//! costs what taking the first does.

use std::collections::BTreeMap;

/// Names an entry: its deadline, and a number that makes it the only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timer<I> {
    pub(super) at: I,
    seq: u64,
}

pub(super) struct TimerHeap<I, T> {
    entries: BTreeMap<Timer<I>, T>,
    seq: u64,
    /// The first deadline, beside the tree because everybody looks at it.
    next: Option<I>,
}

impl<I: Ord + Copy, T> TimerHeap<I, T> {
    pub(super) const fn new() -> Self {
        Self { entries: BTreeMap::new(), seq: 0, next: None }
    }

    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<I> {
        self.next
    }

    /// Adds an entry.
    pub(super) fn arm(&mut self, at: I, what: T) -> Timer<I> {
        self.seq += 1;
        let timer = Timer { at, seq: self.seq };
        self.entries.insert(timer, what);
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
        timer
    }

    /// Takes an entry out.
    pub(super) fn disarm(&mut self, timer: Timer<I>) -> Option<T> {
        let what = self.entries.remove(&timer);
        self.look();
        what
    }

    /// Takes the earliest entry out when its deadline is `now` or before.
    pub(super) fn pop_due(&mut self, now: I) -> Option<T> {
        if self.next? > now {
            return None;
        }
        let what = self.entries.pop_first().map(|(_, what)| what);
        self.look();
        what
    }

    /// Takes everything out, in order.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = T> + use<I, T> {
        self.next = None;
        std::mem::take(&mut self.entries).into_values()
    }

    fn look(&mut self) {
        self.next = self.entries.first_key_value().map(|(timer, _)| timer.at);
    }
}
