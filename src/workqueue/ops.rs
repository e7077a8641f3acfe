//! Operations on a queue, the sequential model of what they do, and the real thing behind the same words.
//!
//! The model is client-go's description word for word: an ordered list, a dirty set and a processing set, and a list of
//! delays. It knows nothing of slots, wake-ups or locks. Tests call one operation after another, the fuzz target too, the
//! checker of histories calls from several threads, and models have fixed lists of them.

use super::{ItemExponential, TryGetError, Work, WorkQueue};
use crate::sync::ManualClock;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

/// Times are in milliseconds. A held key is named by its place among those that the caller holds, counted round and
/// round.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Add(u8),
    AddAfter(u8, u16),
    AddRateLimited(u8),
    Forget(u8),
    Requeues(u8),
    Get,
    /// Takes a key, waiting for one.
    Wait,
    Done(u8),
    Retry(u8),
    RequeueAfter(u8, u16),
    Len,
    Advance(u16),
    Shutdown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Accepted(bool),
    Taken(u8),
    Empty,
    ShutDown,
    Number(usize),
    /// Queued, held, delays dropped, refused.
    Report(usize, usize, u64, u64),
    Nothing,
}

pub(super) const BASE_MS: u64 = 5;
pub(super) const MAX_MS: u64 = 40;

impl Op {
    /// Draws an operation from a source of bytes. Few keys and short times, so that they meet.
    pub(super) fn draw(byte: &mut dyn FnMut() -> u8) -> Self {
        match byte() % 32 {
            0..5 => Self::Add(byte() % 4),
            5..9 => Self::AddAfter(byte() % 4, (byte() % 32).into()),
            9 | 10 => Self::AddRateLimited(byte() % 4),
            11 => Self::Forget(byte() % 4),
            12 => Self::Requeues(byte() % 4),
            13..19 => Self::Get,
            19..23 => Self::Done(byte()),
            23 | 24 => Self::Retry(byte()),
            25 | 26 => Self::RequeueAfter(byte(), (byte() % 32).into()),
            27 => Self::Len,
            28..31 => Self::Advance((byte() % 24).into()),
            _ => match byte() % 4 {
                0 => Self::Shutdown,
                _ => Self::Len,
            },
        }
    }
}

/// Draws operations as long as there are bytes.
pub(super) fn program(bytes: &[u8]) -> Vec<Op> {
    let (mut left, mut ops) = (bytes.iter(), Vec::new());
    while !left.as_slice().is_empty() {
        ops.push(Op::draw(&mut || left.next().copied().unwrap_or(0)));
    }
    ops
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Model {
    queue: VecDeque<u8>,
    dirty: BTreeSet<u8>,
    processing: BTreeSet<u8>,
    /// Who holds which key.
    held: Vec<(usize, u8)>,
    /// Due time, number of the adding, key.
    delays: Vec<(u64, u64, u8)>,
    failures: BTreeMap<u8, u32>,
    now: u64,
    seq: u64,
    down: bool,
    delays_dropped: u64,
    refused: u64,
}

impl Model {
    /// What a lone caller does.
    pub(super) fn apply(&mut self, op: &Op) -> Answer {
        self.step(0, op).unwrap_or_else(|| panic!("{op:?} waits"))
    }

    /// What `op` of `caller` does and answers; `None` when it has to wait.
    pub(super) fn step(&mut self, caller: usize, op: &Op) -> Option<Answer> {
        self.fire();
        Some(match *op {
            Op::Add(k) => self.add_after(k, 0),
            Op::AddAfter(k, ms) => self.add_after(k, ms.into()),
            Op::AddRateLimited(k) => {
                let ms = self.when(k);
                self.add_after(k, ms)
            }
            Op::Forget(k) => {
                self.failures.remove(&k);
                Answer::Nothing
            }
            Op::Requeues(k) => Answer::Number(self.failures.get(&k).map_or(0, |n| *n as usize)),
            Op::Get | Op::Wait => match self.queue.pop_front() {
                Some(k) => {
                    self.dirty.remove(&k);
                    self.processing.insert(k);
                    self.held.push((caller, k));
                    Answer::Taken(k)
                }
                // A key that somebody else holds, and that is owed another round, will still come.
                None if self.down && !self.held.iter().any(|(by, k)| *by != caller && self.dirty.contains(k)) => Answer::ShutDown,
                None if matches!(op, Op::Wait) => return None,
                None => Answer::Empty,
            },
            Op::Done(i) => self.release(caller, i, |_, _| Answer::Nothing),
            Op::Retry(i) => self.release(caller, i, |m, k| {
                let ms = m.when(k);
                m.add_after(k, ms)
            }),
            Op::RequeueAfter(i, ms) => self.release(caller, i, |m, k| m.add_after(k, ms.into())),
            Op::Len => Answer::Number(self.queue.len()),
            Op::Advance(ms) => {
                self.now += u64::from(ms);
                Answer::Nothing
            }
            Op::Shutdown => {
                self.down = true;
                self.delays_dropped += std::mem::take(&mut self.delays).len() as u64;
                Answer::Report(self.queue.len(), self.held.len(), self.delays_dropped, self.refused)
            }
        })
    }

    fn when(&mut self, k: u8) -> u64 {
        if self.down {
            return 0;
        }
        let n = self.failures.entry(k).or_default();
        *n += 1;
        (BASE_MS << (*n - 1).min(20)).min(MAX_MS)
    }

    fn add_after(&mut self, k: u8, ms: u64) -> Answer {
        if self.down {
            self.refused += 1;
            return Answer::Accepted(false);
        }
        if ms == 0 {
            self.add(k);
        } else {
            let at = self.now + ms;
            match self.delays.iter().position(|d| d.2 == k) {
                Some(i) if self.delays[i].0 <= at => {}
                earlier_or_new => {
                    earlier_or_new.map(|i| self.delays.remove(i));
                    self.seq += 1;
                    self.delays.push((at, self.seq, k));
                }
            }
        }
        Answer::Accepted(true)
    }

    fn add(&mut self, k: u8) {
        if self.dirty.insert(k) && !self.processing.contains(&k) {
            self.queue.push_back(k);
        }
    }

    fn fire(&mut self) {
        self.delays.sort_unstable();
        while self.delays.first().is_some_and(|d| d.0 <= self.now) {
            let (_, _, k) = self.delays.remove(0);
            self.add(k);
        }
    }

    fn release(&mut self, caller: usize, i: u8, again: impl FnOnce(&mut Self, u8) -> Answer) -> Answer {
        let own: Vec<_> = (0..self.held.len()).filter(|&at| self.held[at].0 == caller).collect();
        if own.is_empty() {
            return Answer::Nothing;
        }
        let (_, k) = self.held.remove(own[usize::from(i) % own.len()]);
        let answer = again(self, k);
        self.processing.remove(&k);
        if self.dirty.contains(&k) {
            self.queue.push_back(k);
        }
        answer
    }
}

/// The real queue and its lone caller.
pub(super) struct Real {
    pub(super) clock: ManualClock,
    pub(super) queue: WorkQueue<u8>,
    held: Held,
}

/// What a caller holds.
pub(super) type Held = Vec<Work<u8>>;

impl Real {
    pub(super) fn new() -> Self {
        Self::with_limiter(BASE_MS, MAX_MS)
    }

    pub(super) fn with_limiter(base_ms: u64, max_ms: u64) -> Self {
        let clock = ManualClock::new();
        let limiter = ItemExponential::new(Duration::from_millis(base_ms), Duration::from_millis(max_ms));
        let queue = WorkQueue::builder().name("ops").clock(&clock).limiter(limiter).build();
        Self { clock, queue, held: Vec::new() }
    }

    pub(super) fn apply(&mut self, op: &Op) -> Answer {
        apply(&self.clock, &self.queue, &mut self.held, op)
    }

    /// Finishes everything that is held or queued, after a shut-down.
    pub(super) fn work_off(&mut self) {
        self.held.clear();
        while self.queue.get().is_some() {}
    }
}

/// Does `op` as the caller who holds `held`.
pub(super) fn apply(clock: &ManualClock, queue: &WorkQueue<u8>, held: &mut Held, op: &Op) -> Answer {
    let ms = |ms: u16| Duration::from_millis(ms.into());
    match *op {
        Op::Add(k) => Answer::Accepted(queue.add(k)),
        Op::AddAfter(k, d) => Answer::Accepted(queue.add_after(k, ms(d))),
        Op::AddRateLimited(k) => Answer::Accepted(queue.add_rate_limited(k)),
        Op::Forget(k) => {
            queue.forget(&k);
            Answer::Nothing
        }
        Op::Requeues(k) => Answer::Number(queue.requeues(&k) as usize),
        Op::Get => took(held, queue.try_get()),
        Op::Wait => took(held, queue.get().ok_or(TryGetError::ShutDown)),
        Op::Done(i) => release(held, i, |work| {
            Work::done(work);
            Answer::Nothing
        }),
        Op::Retry(i) => release(held, i, |work| Answer::Accepted(Work::retry(work))),
        Op::RequeueAfter(i, d) => release(held, i, |work| Answer::Accepted(Work::requeue_after(work, ms(d)))),
        Op::Len => Answer::Number(queue.len()),
        Op::Advance(d) => {
            clock.advance(ms(d));
            Answer::Nothing
        }
        Op::Shutdown => {
            let r = queue.shutdown();
            Answer::Report(r.queued, r.held, r.delays_dropped, r.refused)
        }
    }
}

fn took(held: &mut Held, answer: Result<Work<u8>, TryGetError>) -> Answer {
    match answer {
        Ok(work) => {
            let k = *work;
            held.push(work);
            Answer::Taken(k)
        }
        Err(TryGetError::Empty) => Answer::Empty,
        Err(TryGetError::ShutDown) => Answer::ShutDown,
    }
}

fn release(held: &mut Held, i: u8, end: impl FnOnce(Work<u8>) -> Answer) -> Answer {
    if held.is_empty() {
        return Answer::Nothing;
    }
    let i = usize::from(i) % held.len();
    end(held.remove(i))
}
