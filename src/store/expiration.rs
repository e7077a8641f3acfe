//! [`ExpirationStore`]: values that end by themselves.
//!
//! A value is stored with the instant until which it lives. Reads look at the clock and pass over what has expired, so
//! they take no lock and need nobody to clean up. What takes the expired out is the writes: each looks at one page of the
//! tree, the next one in a row that begins anew at its end, so no list of deadlines is kept and a store of n values is gone
//! through within about n/16 writes; and [`ExpirationStore::evict`], which goes through all of it. What is taken out is
//! what is stored then and has expired then, in the writer's turn: a value that was put again in time stays.

use super::{Indexer, Stored, WriteError, indexer, table::Draft};
use crate::sync::{
    Arc, Clock, Instant,
    atomic::{AtomicU64, Ordering::Relaxed},
};
use std::{borrow::Borrow, fmt, hash::Hash, ops::Deref, time::Duration};

/// Values by key, each for a time. Clones are handles to the same store.
///
/// *Blocks*: as [`Indexer`].
///
/// client-go: `ExpirationCache` (`NewTTLStore`), whose reads take one lock, and which lists the keys of what has expired.
pub struct ExpirationStore<K: Send + Sync + 'static, V: Send + Sync + 'static> {
    items: Indexer<K, Timed<V>>,
    clock: Clock,
    keep: Duration,
    /// The hash at which the next write looks for what has expired.
    hand: Arc<AtomicU64>,
}

struct Timed<V> {
    value: V,
    /// The last instant of its life; none when the clock has no such instant.
    until: Option<Instant>,
}

impl<V> Timed<V> {
    fn lives(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now <= until)
    }
}

/// A value of an [`ExpirationStore`], with its key. It stays as it is, whatever the clock says later.
pub struct Unexpired<K, V>(Stored<K, Timed<V>>);

impl<K, V> Unexpired<K, V> {
    /// The key.
    pub fn key(this: &Self) -> &K {
        Stored::key(&this.0)
    }

    /// The last instant at which reads find it; none when it never ends.
    pub fn until(this: &Self) -> Option<Instant> {
        this.0.until
    }
}

impl<K, V> Deref for Unexpired<K, V> {
    type Target = V;
    fn deref(&self) -> &V {
        &self.0.value
    }
}

impl<K, V> Clone for Unexpired<K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Unexpired<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {:?}", Self::key(self), **self)
    }
}

impl<K, V> ExpirationStore<K, V>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// An empty store on this clock. A value lives for `keep` after it was put, that instant included; `Duration::MAX` is
    /// for ever.
    pub fn new(clock: &Clock, keep: Duration) -> Self {
        Self { items: Indexer::new(), clock: clock.clone(), keep, hand: Arc::default() }
    }

    /// Puts a value under a key, for the store's time from now on. client-go: `Add`, `Update`.
    ///
    /// # Errors
    /// `Key`, `Reentrant`.
    pub fn put(&self, key: K, value: V) -> Result<(), WriteError> {
        self.put_for(key, value, self.keep)
    }

    /// Puts a value under a key, for a time of its own. client-go: an `ExpirationPolicy`.
    ///
    /// # Errors
    /// As [`ExpirationStore::put`].
    pub fn put_for(&self, key: K, value: V, keep: Duration) -> Result<(), WriteError> {
        let now = self.clock.now();
        let new = self.items.record(key, Timed { value, until: now.checked_add(keep) })?;
        self.items.write(|draft| {
            let swept = sweep(draft, now, &self.hand);
            let (changed, outcome) = indexer::put(draft, &new);
            (swept || changed, outcome)
        })??;
        Ok(())
    }

    /// Takes a key out. client-go: `Delete`.
    ///
    /// # Errors
    /// As [`ExpirationStore::put`].
    pub fn delete<Q>(&self, key: &Q) -> Result<(), WriteError>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.items.delete(key).map(drop)
    }

    /// Puts these in the place of everything, at once, all for the store's time from now on. client-go: `Replace`.
    ///
    /// # Errors
    /// As [`ExpirationStore::put`]; then nothing was changed.
    pub fn replace(&self, all: impl IntoIterator<Item = (K, V)>) -> Result<(), WriteError> {
        let until = self.clock.now().checked_add(self.keep);
        // No index, so nothing is refused.
        self.items.replace(all.into_iter().map(|(key, value)| (key, Timed { value, until }))).map(drop)
    }

    /// What is stored under the key and lives. client-go: `GetByKey`.
    pub fn get<Q>(&self, key: &Q) -> Option<Unexpired<K, V>>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.items.get(key).filter(|stored| stored.lives(self.clock.now())).map(Unexpired)
    }

    /// Everything that lives, as of one instant, in no order. client-go: `List`.
    pub fn all(&self) -> Vec<Unexpired<K, V>> {
        let (now, all) = (self.clock.now(), self.items.snapshot());
        all.iter().filter(|stored| stored.lives(now)).cloned().map(Unexpired).collect()
    }

    /// How many values are kept, those included that have expired and were not taken out yet.
    pub fn kept(&self) -> usize {
        self.items.len()
    }

    /// Takes out all that has expired: how many those were. Takes as long as the store is large.
    ///
    /// # Errors
    /// `Reentrant`.
    pub fn evict(&self) -> Result<usize, WriteError> {
        let now = self.clock.now();
        self.items.write(|draft| {
            let late: Vec<_> = draft.next.items.iter().filter(|stored| !stored.lives(now)).cloned().collect();
            late.iter().for_each(|stored| draft.remove(stored));
            (!late.is_empty(), late.len())
        })
    }
}

/// Takes out what has expired of one page: whether there was something.
fn sweep<K, V>(draft: &mut Draft<'_, Stored<K, Timed<V>>>, now: Instant, hand: &AtomicU64) -> bool
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    // Only a writer in its turn moves the hand.
    let Some((page, range)) = draft.next.items.page(hand.load(Relaxed)) else { return false };
    hand.store(range.next().unwrap_or(0), Relaxed);
    let late: Vec<_> = page.entries().iter().map(|kept| kept.get()).filter(|stored| !stored.lives(now)).cloned().collect();
    late.iter().for_each(|stored| draft.remove(stored));
    !late.is_empty()
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Clone for ExpirationStore<K, V> {
    fn clone(&self) -> Self {
        let Self { items, clock, keep, hand } = self;
        Self { items: items.clone(), clock: clock.clone(), keep: *keep, hand: hand.clone() }
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> fmt::Debug for ExpirationStore<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expiring {:?} of {:?}", self.items, self.keep)
    }
}
