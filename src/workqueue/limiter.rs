//! How long a failed key waits: [`Limiter`] and those at hand.
//!
//! A limiter is called without a lock held and contained, as any user code. Those here keep keys in a table of their
//! own, so they treat them as the queue does: hashed and cloned before the lock, dropped after it, compared under it. A
//! panic of a key goes on to the caller; the table is whole then.

use super::key::{Matcher, discard};
use crate::sync::{
    Clock, Instant, Mutex,
    atomic::{AtomicUsize, Ordering},
};
use hashbrown::{DefaultHashBuilder, HashTable};
use std::{
    fmt,
    hash::{BuildHasher, Hash},
    time::Duration,
};

/// Decides how long a failed key waits. client-go: `TypedRateLimiter`.
///
/// Called by any number of threads at once. A panic is contained by the queue.
pub trait Limiter<K>: Send + Sync {
    /// Counts a failure of the key and says how long it waits now.
    fn when(&self, key: &K) -> Duration;

    /// The key is in order again: its failures no longer count.
    fn forget(&self, key: &K);

    /// Failures counted since the key was last forgotten.
    fn requeues(&self, key: &K) -> u32;
}

/// What [`WorkQueue::builder`](super::WorkQueue::builder) takes when nothing else is said: [`ItemExponential`] from 5 ms
/// to 1000 s and [`Bucket`] of 10 a second with a burst of 100, the longer of both. client-go:
/// `DefaultTypedControllerRateLimiter`.
pub fn default_controller<K: Hash + Eq + Clone + Send + 'static>(clock: &Clock) -> MaxOf<K> {
    let exponential = ItemExponential::new(Duration::from_millis(5), Duration::from_secs(1000));
    MaxOf::new([Box::new(exponential) as Box<dyn Limiter<K>>, Box::new(Bucket::new(10.0, 100, clock))])
}

/// Waits `base` after a key's first failure and twice as long after each further one, at most `max`. client-go:
/// `TypedItemExponentialFailureRateLimiter`.
///
/// Keeps a number for each key until it is forgotten.
pub struct ItemExponential<K> {
    base: Duration,
    max: Duration,
    failures: Table<K, u32>,
}

impl<K> ItemExponential<K> {
    /// From `base` to `max`.
    pub fn new(base: Duration, max: Duration) -> Self {
        Self { base, max, failures: Table::new() }
    }

    fn wait(&self, failures: u32) -> Duration {
        let factor = 1u128.checked_shl(failures).unwrap_or(u128::MAX);
        let nanos = self.base.as_nanos().saturating_mul(factor);
        if nanos >= self.max.as_nanos() { self.max } else { duration(nanos) }
    }
}

impl<K: Hash + Eq + Clone + Send> Limiter<K> for ItemExponential<K> {
    fn when(&self, key: &K) -> Duration {
        let before = self.failures.update(key, 0, |n| std::mem::replace(n, n.saturating_add(1)));
        self.wait(before)
    }

    fn forget(&self, key: &K) {
        self.failures.remove(key);
    }

    fn requeues(&self, key: &K) -> u32 {
        self.failures.get(key).unwrap_or(0)
    }
}

impl<K> fmt::Debug for ItemExponential<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemExponential").field("base", &self.base).field("max", &self.max).finish_non_exhaustive()
    }
}

/// One bucket of tokens for all keys: `burst` at once, then `qps` a second. client-go: `TypedBucketRateLimiter`.
///
/// Each failure takes a token, on credit when there is none, and waits until that token is there. A key that waits for
/// its token already takes no second one; it is told what is left of its wait (client-go sells it another, and everybody
/// behind it waits longer). The debt has no limit: many keys failing at once wait for long, by design.
pub struct Bucket<K> {
    clock: Clock,
    /// Between two tokens; `None` when none is ever added.
    interval: Option<Duration>,
    /// How far the account may be ahead of the clock without anybody waiting.
    allowance: Duration,
    account: Mutex<Account>,
    waiting: Table<K, Instant>,
    /// The size of `waiting` at which the waits that are over are taken out.
    sweep_at: AtomicUsize,
}

struct Account {
    /// When the bucket is full again.
    full_at: Instant,
    /// Tokens that are left when none is ever added.
    rest: u32,
}

const SWEEP_FROM: usize = 64;

impl<K> Bucket<K> {
    /// A full bucket on `clock`. When `qps` is 0 or not a number no token is ever added, and keys beyond the burst wait
    /// for ever, as all do when `burst` is 0. Infinite `qps` never makes anybody wait.
    pub fn new(qps: f64, burst: u32, clock: &Clock) -> Self {
        let filled = qps > 0.0 && (burst > 0 || qps.is_infinite());
        let interval = filled.then(|| Duration::try_from_secs_f64(1.0 / qps).ok()).flatten();
        Self {
            clock: clock.clone(),
            interval,
            allowance: interval.unwrap_or_default().saturating_mul(burst),
            account: Mutex::new(Account { full_at: clock.now(), rest: burst }),
            waiting: Table::new(),
            sweep_at: AtomicUsize::new(SWEEP_FROM),
        }
    }

    /// Takes a token; how long until it is there.
    fn reserve(&self, now: Instant) -> Duration {
        let mut account = self.account.lock();
        let Some(interval) = self.interval else {
            let there = account.rest > 0;
            account.rest = account.rest.saturating_sub(1);
            return if there { Duration::ZERO } else { Duration::MAX };
        };
        let Some(full_at) = account.full_at.max(now).checked_add(interval) else { return Duration::MAX };
        account.full_at = full_at;
        full_at.since(now).saturating_sub(self.allowance)
    }

    /// How many keys it keeps, for tests.
    #[cfg(test)]
    pub(super) fn waiting_keys(&self) -> usize {
        self.waiting.len()
    }

    fn sweep(&self, now: Instant) {
        if self.waiting.len() >= self.sweep_at.load(Ordering::Relaxed) {
            let left = self.waiting.retain(|until| *until > now);
            self.sweep_at.store(SWEEP_FROM.max(2 * left), Ordering::Relaxed);
        }
    }
}

impl<K: Hash + Eq + Clone + Send> Limiter<K> for Bucket<K> {
    fn when(&self, key: &K) -> Duration {
        let now = self.clock.now();
        match self.waiting.get(key) {
            Some(until) if until > now => return until.since(now),
            _ => {}
        }
        let wait = self.reserve(now);
        if let Some(until) = now.checked_add(wait)
            && until > now
        {
            self.waiting.update(key, until, |at| *at = until);
            self.sweep(now);
        }
        wait
    }

    fn forget(&self, _key: &K) {}

    fn requeues(&self, _key: &K) -> u32 {
        0
    }
}

impl<K> fmt::Debug for Bucket<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("interval", &self.interval).finish_non_exhaustive()
    }
}

/// The longest wait of several limiters. Each counts every failure. client-go: `TypedMaxOfRateLimiter`.
pub struct MaxOf<K> {
    limiters: Box<[Box<dyn Limiter<K>>]>,
}

impl<K> MaxOf<K> {
    /// Of these; of none, keys never wait.
    pub fn new(limiters: impl IntoIterator<Item = Box<dyn Limiter<K>>>) -> Self {
        Self { limiters: limiters.into_iter().collect() }
    }
}

impl<K> Limiter<K> for MaxOf<K> {
    fn when(&self, key: &K) -> Duration {
        self.limiters.iter().map(|l| l.when(key)).max().unwrap_or_default()
    }

    fn forget(&self, key: &K) {
        self.limiters.iter().for_each(|l| l.forget(key));
    }

    fn requeues(&self, key: &K) -> u32 {
        self.limiters.iter().map(|l| l.requeues(key)).max().unwrap_or(0)
    }
}

impl<K> fmt::Debug for MaxOf<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaxOf").field("limiters", &self.limiters.len()).finish()
    }
}

/// Stands in for a queue's limiter while that one is dropped.
pub(super) struct Unlimited;

impl<K> Limiter<K> for Unlimited {
    fn when(&self, _key: &K) -> Duration {
        Duration::ZERO
    }

    fn forget(&self, _key: &K) {}

    fn requeues(&self, _key: &K) -> u32 {
        0
    }
}

fn duration(nanos: u128) -> Duration {
    u64::try_from(nanos).map_or(Duration::MAX, Duration::from_nanos)
}

/// A value for each key.
struct Table<K, V> {
    hasher: DefaultHashBuilder,
    rows: Mutex<HashTable<Row<K, V>>>,
}

struct Row<K, V> {
    hash: u64,
    key: K,
    value: V,
}

impl<K, V> Table<K, V> {
    fn new() -> Self {
        Self { hasher: DefaultHashBuilder::default(), rows: Mutex::new(HashTable::new()) }
    }

    fn len(&self) -> usize {
        self.rows.lock().len()
    }

    /// Keeps the rows whose values pass; how many that are.
    fn retain(&self, mut keep: impl FnMut(&V) -> bool) -> usize {
        let (gone, left): (Vec<_>, _) = {
            let mut rows = self.rows.lock();
            let gone = rows.extract_if(|row| !keep(&row.value)).collect();
            rows.shrink_to_fit(|row| row.hash);
            (gone, rows.len())
        };
        for row in gone {
            discard(row.key);
        }
        left
    }
}

impl<K, V> Drop for Table<K, V> {
    fn drop(&mut self) {
        self.retain(|_| false);
    }
}

impl<K: Hash + Eq + Clone, V: Copy> Table<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        let hash = self.hasher.hash_one(key);
        let mut matcher = Matcher::new(key);
        let found = {
            let rows = self.rows.lock();
            rows.find(hash, |row| row.hash == hash && matcher.is(&row.key)).map(|row| row.value)
        };
        matcher.finish(found).unwrap_or_else(|panic| panic.resume())
    }

    fn remove(&self, key: &K) {
        let hash = self.hasher.hash_one(key);
        let mut matcher = Matcher::new(key);
        let row = {
            let mut rows = self.rows.lock();
            let entry = rows.find_entry(hash, |row| row.hash == hash && matcher.is(&row.key));
            entry.ok().map(|entry| entry.remove().0)
        };
        if let Some(row) = matcher.finish(row).unwrap_or_else(|panic| panic.resume()) {
            discard(row.key);
        }
    }

    /// Changes the value of a key, which begins as `first`.
    fn update<R>(&self, key: &K, first: V, change: impl FnOnce(&mut V) -> R) -> R {
        let (hash, copy) = (self.hasher.hash_one(key), key.clone());
        let mut matcher = Matcher::new(key);
        let (changed, unused) = {
            let mut rows = self.rows.lock();
            let found = rows.find_mut(hash, |row| row.hash == hash && matcher.is(&row.key));
            match (found, matcher.finish(())) {
                (_, Err(panic)) => (Err(panic), Some(copy)),
                (Some(row), Ok(())) => (Ok(change(&mut row.value)), Some(copy)),
                (None, Ok(())) => {
                    let row = Row { hash, key: copy, value: first };
                    let mut entry = rows.insert_unique(hash, row, |row| row.hash);
                    (Ok(change(&mut entry.get_mut().value)), None)
                }
            }
        };
        unused.map(discard);
        changed.unwrap_or_else(|panic| panic.resume())
    }
}
