//! [`Taken`]: what a consumer has of the queue, until it says that it is done.

use super::RealFifo;
use crate::flow::Delta;
use std::{collections::VecDeque, fmt};

/// Deltas taken from a queue. Process them, publish what came of it, then [`Taken::commit`].
///
/// Dropped without commit (a panic, an early return) it counts as failed: the queue reports it and goes on with what
/// is behind; the deltas are lost, and what they would have done is healed by the next whole state.
#[must_use = "dropped without commit, the deltas count as failed"]
pub struct Taken<'q, T> {
    queue: &'q RealFifo<T>,
    deltas: VecDeque<Delta<T>>,
    count: usize,
    initial: bool,
    committed: bool,
}

/// A [`Taken`] was dropped without commit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Uncommitted {
    /// The queue's name.
    pub queue: String,
    /// How many deltas had been taken.
    pub deltas: usize,
    /// Those of them that were still in the `Taken`.
    pub left: usize,
}

impl<'q, T> Taken<'q, T> {
    pub(super) fn new(queue: &'q RealFifo<T>, deltas: VecDeque<Delta<T>>, initial: bool) -> Self {
        Self { queue, count: deltas.len(), deltas, initial, committed: false }
    }

    /// What is left of the deltas, oldest first.
    pub fn deltas(&self) -> impl ExactSizeIterator<Item = &Delta<T>> {
        self.deltas.iter()
    }

    /// Moves the deltas out, oldest first.
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = Delta<T>> {
        self.deltas.drain(..)
    }

    /// The deltas, to be taken from the front.
    pub(crate) fn queue_mut(&mut self) -> &mut VecDeque<Delta<T>> {
        &mut self.deltas
    }

    /// Whether it was taken before the queue was synced. client-go: `isInInitialList`.
    pub fn is_initial(&self) -> bool {
        self.initial
    }

    /// All is processed and published. Makes the queue synced when a whole state was among it. *Blocks*: briefly.
    pub fn commit(mut self) {
        self.committed = true;
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        let deltas = std::mem::take(&mut self.deltas);
        let report = || Uncommitted { queue: self.queue.name_of(), deltas: self.count, left: deltas.len() };
        let committed = if self.committed { Ok(()) } else { Err(report()) };
        self.queue.end(deltas, committed);
    }
}

impl<T> fmt::Debug for Taken<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taken").field("deltas", &self.count).field("left", &self.deltas.len()).finish_non_exhaustive()
    }
}
