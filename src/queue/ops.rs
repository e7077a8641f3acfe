//! Operations on a queue, the sequential model of what they do, and the real thing behind the same words.
//!
//! The model is a plain list, what one caller has taken of it, and two bits. It knows nothing of locks, buffers or
//! wake-ups. Tests draw from it one call after another, the fuzz target too, the checker of histories calls from several
//! threads, and models have fixed lists of it.

use super::{Closed, RealFifo, Taken};
use crate::{
    flow::{Deleted, Delta, DeltaSink, Object, ObjectKey, SinkError},
    sync::{Deadline, Synced, WaitError},
};
use std::{collections::VecDeque, time::Duration};

/// A delta: its number, by which it is known again, and its sort.
pub(super) type Item = (u32, Sort);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Sort {
    Added,
    Updated,
    Deleted,
    Missed,
    Bookmark,
    Whole,
    WholeButIncomplete,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// A batch.
    Put(Vec<Item>),
    /// Takes so many, without waiting.
    Take(u8),
    /// Takes so many, waiting. Not to be called by who has some.
    Wait(u8),
    /// Moves out what was taken.
    UseUp,
    Commit,
    /// Drops what was taken.
    Abandon,
    Close,
    Len,
    IsClosed,
    HasSynced,
    /// Asks whether it is synced in the form that waits, with a deadline that has passed.
    AskSynced,
    Uncommitted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Accepted,
    Refused,
    /// What was taken, and whether the queue was not synced then.
    Taken(Vec<Item>, bool),
    /// Nothing to take now.
    Empty,
    Closed,
    Items(Vec<Item>),
    Number(usize),
    Is(bool),
    /// Not synced, and never will be.
    Never,
    /// The caller has nothing taken, or is told nothing.
    Nothing,
}

impl Op {
    /// Draws an operation from a source of bytes. New deltas are numbered from `next` on.
    pub(super) fn draw(byte: &mut dyn FnMut() -> u8, next: &mut u32) -> Self {
        match byte() % 20 {
            0..7 => {
                let items = (0..byte() % 5).map(|_| {
                    *next += 1;
                    (*next, Sort::draw(byte()))
                });
                Self::Put(items.collect())
            }
            7..12 => Self::Take(byte() % 6),
            12 => Self::UseUp,
            13..16 => Self::Commit,
            16 => Self::Abandon,
            17 => match byte() % 8 {
                0 => Self::Close,
                1..5 => Self::IsClosed,
                _ => Self::Uncommitted,
            },
            18 => Self::Len,
            _ => match byte() % 2 {
                0 => Self::HasSynced,
                _ => Self::AskSynced,
            },
        }
    }
}

impl Sort {
    fn draw(byte: u8) -> Self {
        match byte % 16 {
            0..4 => Self::Added,
            4..6 => Self::Updated,
            6..8 => Self::Deleted,
            8 => Self::Missed,
            9..13 => Self::Bookmark,
            13..15 => Self::Whole,
            _ => Self::WholeButIncomplete,
        }
    }

    fn is_whole(self) -> bool {
        matches!(self, Self::Whole | Self::WholeButIncomplete)
    }
}

/// Draws operations as long as there are bytes.
pub(super) fn program(bytes: &[u8]) -> Vec<Op> {
    let (mut left, mut next, mut ops) = (bytes.iter(), 0, Vec::new());
    while !left.as_slice().is_empty() {
        ops.push(Op::draw(&mut || left.next().copied().unwrap_or(0), &mut next));
    }
    ops
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Model {
    queued: VecDeque<Item>,
    out: Option<Out>,
    closed: bool,
    synced: bool,
    uncommitted: usize,
}

/// What one caller has taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Out {
    by: usize,
    left: Vec<Item>,
    /// Its commit makes the queue synced.
    initial: bool,
}

impl Model {
    /// What `op` of `caller` does and answers; `None` when it has to wait.
    pub(super) fn step(&mut self, caller: usize, op: &Op) -> Option<Answer> {
        let own = self.out.as_ref().is_some_and(|out| out.by == caller);
        Some(match op {
            Op::Put(items) if self.closed && !items.is_empty() => Answer::Refused,
            Op::Put(items) => {
                self.queued.extend(items);
                Answer::Accepted
            }
            Op::Take(_) | Op::Wait(_) if self.closed => Answer::Closed,
            Op::Take(_) if self.out.is_some() || self.queued.is_empty() => Answer::Empty,
            Op::Wait(_) if self.out.is_some() || self.queued.is_empty() => return None,
            Op::Take(max) | Op::Wait(max) => {
                let n = self.queued.len().min(usize::from(*max).max(1));
                let left: Vec<_> = self.queued.drain(..n).collect();
                let initial = !self.synced && left.iter().any(|(_, sort)| sort.is_whole());
                self.out = Some(Out { by: caller, left: left.clone(), initial });
                Answer::Taken(left, !self.synced)
            }
            Op::UseUp | Op::Commit | Op::Abandon if !own => Answer::Nothing,
            Op::UseUp => Answer::Items(self.out.as_mut().map(|out| std::mem::take(&mut out.left)).unwrap_or_default()),
            Op::Commit => {
                self.synced |= self.out.take().is_some_and(|out| out.initial);
                Answer::Nothing
            }
            Op::Abandon => {
                self.out = None;
                self.uncommitted += 1;
                Answer::Nothing
            }
            Op::Close => {
                self.closed = true;
                Answer::Number(std::mem::take(&mut self.queued).len())
            }
            Op::Len => Answer::Number(self.queued.len()),
            Op::IsClosed => Answer::Is(self.closed),
            Op::HasSynced => Answer::Is(self.synced),
            // What is out may still make it synced.
            Op::AskSynced if self.closed && !self.synced && !self.out.as_ref().is_some_and(|out| out.initial) => Answer::Never,
            Op::AskSynced => Answer::Is(self.synced),
            Op::Uncommitted => Answer::Number(self.uncommitted),
        })
    }
}

fn delta((n, sort): Item) -> Delta<u32> {
    let key = || ObjectKey::new("ns", &n.to_string()).unwrap_or_else(|e| panic!("{n}: {e}"));
    let object = || Object::with_key(key(), &n.to_string(), "", n);
    match sort {
        Sort::Added => Delta::Added(object()),
        Sort::Updated => Delta::Updated(object()),
        Sort::Deleted => Delta::Deleted(Deleted::Observed(object())),
        Sort::Missed => Delta::Deleted(Deleted::Missed { key: key(), last_known: None }),
        Sort::Bookmark => Delta::Bookmark { version: n.to_string() },
        Sort::Whole | Sort::WholeButIncomplete => Delta::ReplacedAll {
            version: n.to_string(),
            objects: vec![],
            kept: vec![],
            complete: sort == Sort::Whole,
            new_era: false,
        },
    }
}

fn item(delta: &Delta<u32>) -> Item {
    let number = |text: &str| text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
    match delta {
        Delta::Added(o) => (**o, Sort::Added),
        Delta::Updated(o) => (**o, Sort::Updated),
        Delta::Deleted(Deleted::Observed(o)) => (**o, Sort::Deleted),
        Delta::Deleted(Deleted::Missed { key, .. }) => (number(key.name()), Sort::Missed),
        Delta::Bookmark { version } => (number(version), Sort::Bookmark),
        Delta::ReplacedAll { version, complete, .. } => {
            (number(version), if *complete { Sort::Whole } else { Sort::WholeButIncomplete })
        }
    }
}

/// One caller of the real queue.
pub(super) struct Real<'q> {
    queue: &'q RealFifo<u32>,
    taken: Option<Taken<'q, u32>>,
}

impl<'q> Real<'q> {
    pub(super) fn new(queue: &'q RealFifo<u32>) -> Self {
        Self { queue, taken: None }
    }

    pub(super) fn apply(&mut self, op: &Op) -> Answer {
        match op {
            Op::Put(items) => {
                let mut batch: Vec<_> = items.iter().copied().map(delta).collect();
                match self.queue.apply(&mut batch) {
                    Ok(()) => {
                        assert!(batch.is_empty(), "what is accepted is taken out");
                        Answer::Accepted
                    }
                    Err(SinkError::Closed) => {
                        assert_eq!(batch.iter().map(item).collect::<Vec<_>>(), *items, "a refused batch is left whole");
                        Answer::Refused
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            Op::Take(max) => match self.queue.try_take((*max).into()) {
                Ok(Some(taken)) => self.took(taken),
                Ok(None) => Answer::Empty,
                Err(Closed) => Answer::Closed,
            },
            Op::Wait(max) => match self.queue.take((*max).into()) {
                Ok(taken) => self.took(taken),
                Err(Closed) => Answer::Closed,
            },
            Op::UseUp => match &mut self.taken {
                Some(taken) => Answer::Items(taken.drain().map(|d| item(&d)).collect()),
                None => Answer::Nothing,
            },
            Op::Commit => {
                if let Some(taken) = self.taken.take() {
                    taken.commit();
                }
                Answer::Nothing
            }
            Op::Abandon => {
                self.taken = None;
                Answer::Nothing
            }
            Op::Close => Answer::Number(self.queue.close()),
            Op::Len => Answer::Number(self.queue.len()),
            Op::IsClosed => Answer::Is(self.queue.is_closed()),
            Op::HasSynced => Answer::Is(self.queue.has_synced()),
            Op::AskSynced => match self.queue.wait_synced(Deadline::from(Duration::ZERO)) {
                Ok(()) => Answer::Is(true),
                Err(WaitError::Stopped) => Answer::Never,
                Err(_) => Answer::Is(false),
            },
            Op::Uncommitted => Answer::Number(usize::try_from(self.queue.uncommitted()).unwrap_or(usize::MAX)),
        }
    }

    fn took(&mut self, taken: Taken<'q, u32>) -> Answer {
        let answer = Answer::Taken(taken.deltas().map(item).collect(), taken.is_initial());
        self.taken = Some(taken);
        answer
    }
}
