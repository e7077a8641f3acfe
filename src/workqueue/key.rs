//! Keys are user code: hashing, cloning, comparing and dropping one may panic, and three of the four may do anything.
//!
//! So a key is hashed and cloned before the lock ([`prepare`]) and dropped after it ([`After`]). Only `Eq` runs under
//! the lock; [`Matcher`] carries its panic out, and whoever looked something up with it changes nothing then.

use crate::sync::{
    Unparker,
    call_out::{self, KeyPanic, Panicked, Site},
};
use hashbrown::DefaultHashBuilder;
use std::hash::{BuildHasher, Hash};

/// The hash of a key and a second key: one stays in the table, one is handed out. Called without a lock.
pub(super) fn prepare<K: Hash + Clone>(hasher: &DefaultHashBuilder, key: &K) -> Result<(u64, K), Panicked> {
    call_out::call(Site::Key, || (hasher.hash_one(key), key.clone()))
}

/// Drops a key, contained; says whether that went well. Called without a lock.
pub(super) fn discard<K>(key: K) -> bool {
    // Most keys cannot panic here, and many have nothing to drop.
    !std::mem::needs_drop::<K>() || call_out::call(Site::Key, || drop(key)).is_ok()
}

/// Looks for a key by `Eq`. After the first panic it matches nothing any more.
pub(super) struct Matcher<'a, K> {
    key: &'a K,
    panic: Option<KeyPanic>,
}

impl<'a, K: Eq> Matcher<'a, K> {
    pub(super) fn new(key: &'a K) -> Self {
        Self { key, panic: None }
    }

    pub(super) fn is(&mut self, other: &K) -> bool {
        self.panic.is_none()
            && call_out::key_cmp(|| self.key == other).unwrap_or_else(|panic| {
                self.panic = Some(panic);
                false
            })
    }

    /// What was found, unless a comparison panicked.
    pub(super) fn finish<T>(self, found: T) -> Result<T, KeyPanic> {
        self.panic.map_or(Ok(found), Err)
    }
}

/// What a critical section leaves to be done after the lock: threads to wake, panics to put on record, keys to drop.
pub(super) struct After<K> {
    pub(super) wake: Vec<Unparker>,
    pub(super) panics: Vec<KeyPanic>,
    /// As many as an ordinary operation leaves behind; the others go to `many`, which then allocates.
    few: [Option<K>; 2],
    many: Vec<K>,
}

impl<K> After<K> {
    pub(super) const fn new() -> Self {
        Self { wake: Vec::new(), panics: Vec::new(), few: [None, None], many: Vec::new() }
    }

    /// Keeps a key to be dropped after the lock.
    pub(super) fn discard(&mut self, key: K) {
        match self.few.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(key),
            None => self.many.push(key),
        }
    }

    /// Does it all, without a lock; returns how many panics of keys there were.
    pub(super) fn carry_out(self) -> u64 {
        let mut panics = self.panics.len() as u64;
        for thread in self.wake {
            thread.unpark();
        }
        self.panics.into_iter().for_each(KeyPanic::contain);
        for key in self.few.into_iter().flatten().chain(self.many) {
            panics += u64::from(!discard(key));
        }
        panics
    }
}
