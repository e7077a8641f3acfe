//! Operations on a queue, the sequential model of what they do, and the real thing behind the same words.
//!
//! The model is client-go's description word for word: an ordered list, a dirty set and a processing set, and a list of
//! delays. It knows nothing of slots, wake-ups or locks.

use super::{ItemExponential, TryGetError, Work, WorkQueue};
use crate::sync::ManualClock;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

/// Times are in milliseconds. A held key is named by its place among those held, counted round and round.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Add(u8),
    AddAfter(u8, u16),
    AddRateLimited(u8),
    Forget(u8),
    Requeues(u8),
    Get,
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

#[derive(Default)]
pub(super) struct Model {
    queue: VecDeque<u8>,
    dirty: BTreeSet<u8>,
    processing: BTreeSet<u8>,
    held: Vec<u8>,
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
    pub(super) fn apply(&mut self, op: &Op) -> Answer {
        self.fire();
        match *op {
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
            Op::Get => match self.queue.pop_front() {
                Some(k) => {
                    self.dirty.remove(&k);
                    self.processing.insert(k);
                    self.held.push(k);
                    Answer::Taken(k)
                }
                None if self.down => Answer::ShutDown,
                None => Answer::Empty,
            },
            Op::Done(i) => self.release(i, |_, _| Answer::Nothing),
            Op::Retry(i) => self.release(i, |m, k| {
                let ms = m.when(k);
                m.add_after(k, ms)
            }),
            Op::RequeueAfter(i, ms) => self.release(i, |m, k| m.add_after(k, ms.into())),
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
        }
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

    fn release(&mut self, i: u8, again: impl FnOnce(&mut Self, u8) -> Answer) -> Answer {
        if self.held.is_empty() {
            return Answer::Nothing;
        }
        let k = self.held.remove(usize::from(i) % self.held.len());
        let answer = again(self, k);
        self.processing.remove(&k);
        if self.dirty.contains(&k) {
            self.queue.push_back(k);
        }
        answer
    }
}

/// The real queue, on one thread.
pub(super) struct Real {
    pub(super) clock: ManualClock,
    pub(super) queue: WorkQueue<u8>,
    held: Vec<Work<u8>>,
}

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
        let ms = |ms: u16| Duration::from_millis(ms.into());
        match *op {
            Op::Add(k) => Answer::Accepted(self.queue.add(k)),
            Op::AddAfter(k, d) => Answer::Accepted(self.queue.add_after(k, ms(d))),
            Op::AddRateLimited(k) => Answer::Accepted(self.queue.add_rate_limited(k)),
            Op::Forget(k) => {
                self.queue.forget(&k);
                Answer::Nothing
            }
            Op::Requeues(k) => Answer::Number(self.queue.requeues(&k) as usize),
            Op::Get => match self.queue.try_get() {
                Ok(work) => {
                    let k = *work;
                    self.held.push(work);
                    Answer::Taken(k)
                }
                Err(TryGetError::Empty) => Answer::Empty,
                Err(TryGetError::ShutDown) => Answer::ShutDown,
            },
            Op::Done(i) => self.release(i, |work| {
                Work::done(work);
                Answer::Nothing
            }),
            Op::Retry(i) => self.release(i, |work| Answer::Accepted(Work::retry(work))),
            Op::RequeueAfter(i, d) => self.release(i, |work| Answer::Accepted(Work::requeue_after(work, ms(d)))),
            Op::Len => Answer::Number(self.queue.len()),
            Op::Advance(d) => {
                self.clock.advance(ms(d));
                Answer::Nothing
            }
            Op::Shutdown => {
                let r = self.queue.shutdown();
                Answer::Report(r.queued, r.held, r.delays_dropped, r.refused)
            }
        }
    }

    /// Finishes everything that is held or queued, after a shut-down.
    pub(super) fn work_off(&mut self) {
        self.held.clear();
        while self.queue.get().is_some() {}
    }

    fn release(&mut self, i: u8, end: impl FnOnce(Work<u8>) -> Answer) -> Answer {
        if self.held.is_empty() {
            return Answer::Nothing;
        }
        let i = usize::from(i) % self.held.len();
        end(self.held.remove(i))
    }
}
