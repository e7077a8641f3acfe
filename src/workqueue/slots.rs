//! The keys a queue knows, found by key or by number.
//!
//! A key has a slot from its first `add` until nothing is owed to it: it is not queued, not held and waits for no
//! timer. Then the slot is empty and nothing of the key remains.

use super::{
    key::{After, Matcher},
    timer_heap::Timer,
};
use crate::sync::{Instant, ThreadId, call_out::KeyPanic};
use hashbrown::HashTable;

/// What is owed to one key.
///
/// | `held` | `next` | client-go        | in `ready` |
/// |--------|--------|------------------|------------|
/// | none   | none   | idle             | no         |
/// | none   | some   | dirty            | once       |
/// | some   | none   | processing       | no         |
/// | some   | some   | processing+dirty | no         |
pub(super) struct Slot<K> {
    hash: u64,
    /// What other keys are compared with; never handed out.
    key: K,
    /// The hand-out that is owed, with the key that will be handed out.
    pub(super) next: Option<K>,
    /// The timer after which a hand-out will be owed.
    pub(super) later: Option<(K, Timer<Instant>)>,
    /// Who has the key, until its `Work` is done.
    pub(super) held: Option<Held>,
}

pub(super) struct Held {
    /// The thread that took it.
    pub(super) by: ThreadId,
    /// Where it stands in the list of the keys held.
    pub(super) at: usize,
}

pub(super) struct Slots<K> {
    slots: Vec<Option<Slot<K>>>,
    free: Vec<usize>,
    /// Numbers of slots by the hash of their keys.
    table: HashTable<usize>,
}

/// Room kept for slots when none is in use.
const ROOM_KEPT: usize = 4096;

impl<K> Slots<K> {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), table: HashTable::new() }
    }

    /// The slot with this number. Numbers come from `ready`, `held`, timers and `Work`s, each of which keeps its slot in
    /// use.
    pub(super) fn get(&mut self, id: usize) -> &mut Slot<K> {
        self.slots[id].as_mut().expect("a slot that is referred to is in use")
    }

    /// The slot of a key; runs `Eq` of keys. Nothing has changed when that panicked.
    pub(super) fn find(&self, hash: u64, key: &K) -> Result<Option<usize>, KeyPanic>
    where
        K: Eq,
    {
        let mut matcher = Matcher::new(key);
        let found =
            self.table.find(hash, |&id| self.slots[id].as_ref().is_some_and(|slot| slot.hash == hash && matcher.is(&slot.key)));
        matcher.finish(found.copied())
    }

    pub(super) fn insert(&mut self, hash: u64, key: K) -> usize {
        let slot = Some(Slot { hash, key, next: None, later: None, held: None });
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[id] = slot;
                id
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        let slots = &self.slots;
        self.table.insert_unique(hash, id, |&id| slots[id].as_ref().map_or(0, |slot| slot.hash));
        id
    }

    /// Empties the slot when nothing is owed to its key any more. True when that gave back the room of a burst: no slot
    /// is in use then.
    pub(super) fn tidy(&mut self, id: usize, after: &mut After<K>) -> bool {
        let slot = self.get(id);
        if slot.next.is_some() || slot.later.is_some() || slot.held.is_some() {
            return false;
        }
        let hash = slot.hash;
        if let Ok(entry) = self.table.find_entry(hash, |&other| other == id) {
            entry.remove();
        }
        if let Some(slot) = self.slots[id].take() {
            after.discard(slot.key);
        }
        self.free.push(id);
        let burst_over = self.table.is_empty() && self.slots.len() > ROOM_KEPT;
        if burst_over {
            // Only as many keys as were let go can make this happen again.
            *self = Self::new();
        }
        burst_over
    }

    /// Takes every key out, when the queue itself goes.
    pub(super) fn take_all(&mut self, after: &mut After<K>) {
        for slot in std::mem::replace(self, Self::new()).slots.into_iter().flatten() {
            after.discard(slot.key);
            slot.next.into_iter().chain(slot.later.map(|(key, _)| key)).for_each(|key| after.discard(key));
        }
    }

    /// How many keys have a slot.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
}
