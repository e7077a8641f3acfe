//! [`ReadYourWrites`]: what was written to the source and is not in the store yet, laid over the store.
//!
//! # When a note counts
//! Whoever has written hands in what the source answered. It is a *note* on one key, and it counts until the store has
//! caught up with it. The store has caught up with a written object when it is at that object's version or a later one, by
//! the source's own order: then the store knows what became of the object, be it there, changed or gone. So an answer that
//! comes late, behind the event of its own write or behind the deletion that followed, changes nothing: it neither takes the
//! cache back nor brings a deleted object to life again. A note of a deletion counts until the object is gone, or what is
//! stored under its key is newer than what was deleted.
//!
//! Where versions have no order, a note counts until what the store has under its key has changed; that may be an event
//! from before the write, and then reads go back for a moment.
//!
//! A note counts no more in a new era of versions, after its time, and when it is the oldest of too many.
//!
//! # Order of looks
//! A read looks at the notes first and at the store afterwards. A note that was taken away because the store had caught up
//! is missed only by a read that then sees a store which has: the lock orders the two, and so do the Release and Acquire
//! of the count where a read finds that there are no notes and takes no lock.
//!
//! The lock is short, and nothing of the user's runs under it: comparing versions and dropping objects come after.

use super::{IndexError, IndexRef, Snapshot, StoreReader};
use crate::{
    flow::{AsKey, KeyRef, Object, ObjectKey},
    sync::{
        Arc, Instant, Mutex,
        atomic::{
            AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};
use hashbrown::{Equivalent, HashMap};
use std::{
    borrow::Borrow,
    cmp::Ordering,
    collections::BTreeMap,
    fmt,
    hash::{Hash, Hasher},
    time::Duration,
};

/// Reads a store together with what was written and has not come back yet. Clones are handles to the same notes.
///
/// A controller that creates an object and looks for it in its cache a moment later does not find it there, and creates
/// another one. Hand it the answers of its writes, and it finds them. *Blocks*: briefly, with none of the user's
/// code under it; reads take no lock while there are no notes.
///
/// client-go: `MutationCache`. There a look at a new object takes it away, a deletion may be returned as an object, and a
/// version that is not a number panics.
pub struct ReadYourWrites<T>(Arc<Inner<T>>);

struct Inner<T> {
    store: StoreReader<T>,
    keep: Duration,
    most: usize,
    /// How many notes there are, so that a read need not lock when there is none.
    len: AtomicUsize,
    notes: Mutex<Notes<T>>,
}

struct Notes<T> {
    by_key: HashMap<ObjectKey, Note<T>>,
    /// Oldest first.
    order: BTreeMap<u64, ObjectKey>,
    next: u64,
}

struct Note<T> {
    id: u64,
    what: What<T>,
    /// What the store had under the key when the note was made, and the number of its publication.
    stored: Option<Object<T>>,
    seq: u64,
    until: Option<Instant>,
}

enum What<T> {
    Written(Object<T>),
    /// In its last state known.
    Deleted(Object<T>),
}

impl<T> Clone for What<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Written(o) => Self::Written(o.clone()),
            Self::Deleted(o) => Self::Deleted(o.clone()),
        }
    }
}

impl<T> Clone for Note<T> {
    fn clone(&self) -> Self {
        let Self { id, what, stored, seq, until } = self;
        Self { id: *id, what: what.clone(), stored: stored.clone(), seq: *seq, until: *until }
    }
}

impl<T> Note<T> {
    fn object(&self) -> &Object<T> {
        match &self.what {
            What::Written(o) | What::Deleted(o) => o,
        }
    }
}

impl<T: 'static> ReadYourWrites<T> {
    /// Over this store, with room for 1,000 notes, each for five minutes.
    pub fn new(store: StoreReader<T>) -> Self {
        Self::with_limits(store, 1000, Duration::from_secs(300))
    }

    /// Over this store. A note is dropped `keep` after it was made (on the informer's clock), and the oldest one when
    /// there are more than `most`.
    pub fn with_limits(store: StoreReader<T>, most: usize, keep: Duration) -> Self {
        let notes = Notes { by_key: HashMap::new(), order: BTreeMap::new(), next: 0 };
        Self(Arc::new(Inner { store, keep, most, len: AtomicUsize::new(0), notes: Mutex::new(notes) }))
    }

    /// The store below.
    pub fn store(&self) -> &StoreReader<T> {
        &self.0.store
    }

    /// Notes what the source answered to a write: the object as it is now. False when it is not needed, because the store
    /// or a note has something at least as new; a deletion noted of the same object (by uid) is newer than any write.
    pub fn wrote(&self, object: Object<T>) -> bool {
        self.note(What::Written(object))
    }

    /// Notes that an object was deleted; `last` is its last state known, best the one that the source answered. False when
    /// it is not needed, as for [`ReadYourWrites::wrote`].
    pub fn deleted(&self, last: Object<T>) -> bool {
        self.note(What::Deleted(last))
    }

    /// The object, as it was written or as it is stored; none when it was deleted. client-go: `GetByKey`.
    pub fn get(&self, key: &impl AsKey) -> Option<Object<T>> {
        if self.0.len.load(Acquire) == 0 {
            return self.0.store.get(key);
        }
        let noted = self.0.noted(key);
        let now = self.0.store.snapshot();
        match noted.filter(|note| self.0.counts_or_goes(note, &now)) {
            None => now.object(key).cloned(),
            Some(Note { what: What::Written(object), .. }) => Some(object),
            Some(_) => None,
        }
    }

    /// Every object, written or stored, in no order.
    pub fn all(&self) -> Vec<Object<T>> {
        let (notes, now) = self.0.all_that_count();
        let mut found: Vec<_> = now.objects().filter(|o| !notes.contains_key(Object::key(o))).cloned().collect();
        found.extend(written(notes));
        found
    }

    /// The objects with `value` in an index, in no order: those that are stored and were not written since, and those
    /// written for which `has` says that the index would emit the value. client-go: `ByIndex`.
    ///
    /// `has` runs on this thread; a panic in it is the caller's.
    ///
    /// # Errors
    /// As [`Snapshot::by_index`].
    pub fn by_index<I, Q>(&self, index: &I, value: &Q, mut has: impl FnMut(&T) -> bool) -> Result<Vec<Object<T>>, IndexError>
    where
        I: IndexRef + ?Sized,
        I::Value: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let (notes, now) = self.0.all_that_count();
        let mut found: Vec<_> = now.by_index(index, value)?.filter(|o| !notes.contains_key(Object::key(o))).cloned().collect();
        found.extend(written(notes).filter(|object| has(object)));
        Ok(found)
    }

    /// How many notes there are, those included with which the store may have caught up meanwhile.
    pub fn pending(&self) -> usize {
        self.0.len.load(Relaxed)
    }

    fn note(&self, what: What<T>) -> bool {
        let inner = &*self.0;
        let (What::Written(object) | What::Deleted(object)) = &what;
        let key = Object::key(object).clone();
        let mut note = Note { id: 0, what, stored: None, seq: 0, until: inner.until() };
        loop {
            let before = inner.noted(&key);
            let now = inner.store.snapshot();
            let before = before.filter(|note| inner.counts_or_goes(note, &now));
            (note.stored, note.seq) = (now.object(&key).cloned(), now.seq());
            inner.learn(before.as_ref(), &mut note);
            if !inner.counts(&note, &now) || before.as_ref().is_some_and(|before| inner.stays(before, &note)) {
                return false;
            }
            match inner.put(&key, note, before.map(|note| note.id)) {
                // What was noted may have a `Drop` of the user's, which runs here, after the lock.
                Ok(_replaced) => return true,
                // Somebody else has noted something meanwhile; which is the newer one?
                Err(again) => note = *again,
            }
        }
    }
}

fn written<T>(notes: HashMap<ObjectKey, Note<T>>) -> impl Iterator<Item = Object<T>> {
    notes.into_values().filter_map(|note| match note.what {
        What::Written(object) => Some(object),
        What::Deleted(_) => None,
    })
}

/// Whether both have a uid, and the same.
fn same_uid<T>(a: &Object<T>, b: &Object<T>) -> bool {
    let (a, b) = (Object::uid(a), Object::uid(b));
    !a.is_empty() && a == b
}

impl<T: 'static> Inner<T> {
    fn until(&self) -> Option<Instant> {
        self.store.waits().and_then(|waits| waits.now().checked_add(self.keep))
    }

    fn compare(&self, a: &Object<T>, b: &Object<T>) -> Option<Ordering> {
        self.compare_texts(&Object::version(a), &Object::version(b))
    }

    fn compare_texts(&self, a: &str, b: &str) -> Option<Ordering> {
        if a.is_empty() || b.is_empty() {
            return None;
        }
        if a == b { Some(Ordering::Equal) } else { self.store.waits()?.compare(a, b) }
    }

    fn noted(&self, key: &impl AsKey) -> Option<Note<T>> {
        let look = Look { key: key.as_key(), hash: key.key_hash() };
        self.notes.lock().by_key.get(&look).cloned()
    }

    /// Whether a note tells more than the store. Calls the source's comparison.
    fn counts(&self, note: &Note<T>, now: &Snapshot<T>) -> bool {
        let Some(waits) = self.store.waits() else { return false };
        if waits.era_began_after(note.seq) || note.until.is_some_and(|until| waits.now() > until) {
            return false;
        }
        let object = note.object();
        let stored = now.object(Object::key(object));
        let unchanged = match (stored, &note.stored) {
            (None, None) => true,
            (Some(a), Some(b)) => Object::ptr_eq(a, b),
            _ => false,
        };
        let reached = self.compare_texts(now.version(), &Object::version(object));
        match (&note.what, stored, reached) {
            (What::Written(_), _, Some(reached)) => reached == Ordering::Less,
            (What::Written(_), Some(stored), None) if Object::same_version(stored, object) => false,
            (What::Written(_), _, None) => unchanged,
            (What::Deleted(_), None, Some(reached)) => reached == Ordering::Less,
            (What::Deleted(_), None, None) => unchanged,
            (What::Deleted(last), Some(stored), _) => {
                let another = !Object::uid(stored).is_empty() && !Object::uid(last).is_empty() && !same_uid(stored, last);
                match self.compare(stored, last) {
                    // An earlier object of this name is gone as well.
                    Some(Ordering::Less) => true,
                    Some(Ordering::Equal) => !another,
                    Some(Ordering::Greater) => false,
                    None => !another && unchanged,
                }
            }
        }
    }

    /// A deletion is of the last state known of its object.
    fn learn(&self, before: Option<&Note<T>>, note: &mut Note<T>) {
        if let (Some(What::Written(newer)), What::Deleted(last)) = (before.map(|before| &before.what), &note.what)
            && same_uid(newer, last)
            && self.compare(last, newer) == Some(Ordering::Less)
        {
            note.what = What::Deleted(newer.clone());
        }
    }

    /// Whether `before` is at least as new as `note`, which is about the same key.
    fn stays(&self, before: &Note<T>, note: &Note<T>) -> bool {
        let order = self.compare(note.object(), before.object());
        match (&before.what, &note.what) {
            (What::Written(_), _) => order == Some(Ordering::Less),
            (What::Deleted(_), What::Written(_)) => {
                same_uid(before.object(), note.object()) || matches!(order, Some(Ordering::Less | Ordering::Equal))
            }
            (What::Deleted(_), What::Deleted(_)) => order == Some(Ordering::Less),
        }
    }

    /// [`Inner::counts`]; a note that does not is taken away.
    fn counts_or_goes(&self, note: &Note<T>, now: &Snapshot<T>) -> bool {
        let counts = self.counts(note, now);
        if !counts {
            let gone = self.take(note);
            drop(gone);
        }
        counts
    }

    fn take(&self, note: &Note<T>) -> Option<Note<T>> {
        let mut notes = self.notes.lock();
        let key = Object::key(note.object());
        if notes.by_key.get(key).is_none_or(|there| there.id != note.id) {
            return None;
        }
        notes.order.remove(&note.id);
        let gone = notes.by_key.remove(key);
        self.len.store(notes.by_key.len(), Release);
        gone
    }

    /// Puts a note in the place of the one with this id, or of none, and returns what it takes away; the note itself when
    /// there is another one by now.
    fn put(&self, key: &ObjectKey, mut note: Note<T>, expected: Option<u64>) -> Result<[Option<Note<T>>; 2], Box<Note<T>>> {
        let mut notes = self.notes.lock();
        let there = notes.by_key.get(key).map(|there| there.id);
        if there.is_some() && there != expected {
            return Err(Box::new(note));
        }
        notes.next += 1;
        note.id = notes.next;
        notes.order.insert(note.id, key.clone());
        let replaced = notes.by_key.insert(key.clone(), note);
        if let Some(replaced) = &replaced {
            notes.order.remove(&replaced.id);
        }
        let oldest = if notes.by_key.len() > self.most { notes.order.pop_first() } else { None };
        let pushed_out = oldest.and_then(|(_, key)| notes.by_key.remove(&key));
        self.len.store(notes.by_key.len(), Release);
        Ok([replaced, pushed_out])
    }

    /// The notes that count, and the store that they were compared with.
    fn all_that_count(&self) -> (HashMap<ObjectKey, Note<T>>, Snapshot<T>) {
        let mut notes: HashMap<_, _> = if self.len.load(Acquire) == 0 {
            HashMap::new()
        } else {
            self.notes.lock().by_key.iter().map(|(key, note)| (key.clone(), note.clone())).collect()
        };
        let now = self.store.snapshot();
        notes.retain(|_, note| self.counts_or_goes(note, &now));
        (notes, now)
    }
}

/// A borrowed key as the notes look it up.
struct Look<'a> {
    key: KeyRef<'a>,
    hash: u64,
}

impl Hash for Look<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // As `ObjectKey` does.
        state.write_u64(self.hash);
    }
}

impl Equivalent<ObjectKey> for Look<'_> {
    fn equivalent(&self, key: &ObjectKey) -> bool {
        key.as_key() == self.key
    }
}

impl<T> Clone for ReadYourWrites<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for ReadYourWrites<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} notes over {:?}", self.0.len.load(Relaxed), self.0.store)
    }
}
