//! [`Server`]: what the owner of a server can do to it, and its options.

use super::{
    audit::{Audit, Record, Truth},
    faults::Fault,
    parse_version,
    requests::Request,
    resource::Resource,
    source::Source,
    state::{Close, Options, Shared},
    watch_cache::{Change, Op},
};
use crate::{
    flow::{AsKey, KeyError, KeyRef, Object, ObjectKey, Text},
    source::WatchEvent,
    sync::{
        Arc, Clock,
        call_out::{self, Panicked, Site},
    },
};
use std::{any::TypeId, fmt, time::Duration};

/// An embedded API server. Clones are handles to the same server; it has no thread and needs no shutdown.
///
/// *Blocks*: writes and administration wait for other writers only, lists and watches as their [`Source`] says.
#[derive(Clone)]
pub struct Server(pub(super) Arc<Shared>);

/// Options of a [`Server`].
#[derive(Clone, Debug)]
pub struct ServerBuilder {
    clock: Clock,
    options: Options,
    first_version: u64,
    seed: u64,
}

/// Why a write was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// An object of this name exists; update or delete it.
    #[error("{key} exists already; update it, or delete it first")]
    Exists {
        /// Which.
        key: ObjectKey,
    },
    /// There is no object of this name.
    #[error("{key} does not exist; create it")]
    NotFound {
        /// Which.
        key: ObjectKey,
    },
    /// The object has changed since the caller read it.
    #[error("{key} has version {current} and not {asked}; read it again and repeat the change")]
    Conflict {
        /// Which.
        key: ObjectKey,
        /// The version, or the uid, that the caller sent.
        asked: String,
        /// What the object has.
        current: String,
    },
    /// Name and namespace make no key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A method of the resource panicked; nothing was written.
    #[error("nothing was written: {0}")]
    Panicked(#[from] Panicked),
}

impl Server {
    /// A server with the options of a [`ServerBuilder`] as they are, on `clock`.
    pub fn new(clock: &Clock) -> Self {
        Self::builder(clock).build()
    }

    /// Options for a server on `clock`.
    pub fn builder(clock: &Clock) -> ServerBuilder {
        ServerBuilder {
            clock: clock.clone(),
            options: Options {
                cached: true,
                window: 102_400,
                bookmark_period: Duration::from_secs(60),
                page_life: Duration::from_secs(300),
                too_large_wait: Duration::from_secs(3),
                streams_states: true,
            },
            first_version: 1,
            seed: 0,
        }
    }

    /// The clock it lives by.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// A source of the objects of type `R`. Any number of sources and streams may be open at once.
    pub fn source<R: Resource>(&self) -> Source<R> {
        Source::new(self.clone())
    }

    // ---- objects ------------------------------------------------------------------------------------------------

    /// Stores a new object and gives it a uid and a version. What the object carried of them is ignored.
    ///
    /// # Errors
    /// `Exists`, `Key`, `Panicked`.
    pub fn create<R: Resource>(&self, object: R) -> Result<Object<R>, ServerError> {
        self.write(&key_of(&object)?, |key, current, version, rng| {
            if current.is_some() {
                return Err(ServerError::Exists { key: key.clone() });
            }
            let mut uid = [0; 16];
            rng.fill(&mut uid);
            // The marks of a random uuid.
            uid[6] = uid[6] & 0x0f | 0x40;
            uid[8] = uid[8] & 0x3f | 0x80;
            stored(key, object, version, &Text::uuid(uid)).map(|o| Some((Op::Added, o)))
        })
    }

    /// Replaces an object. With a version it must be the one that is stored, and so must a uid; without, whatever is
    /// stored is replaced. An update that changes nothing ([`Resource::unchanged`]) gives no new version.
    ///
    /// # Errors
    /// `NotFound`, `Conflict`, `Key`, `Panicked`.
    pub fn update<R: Resource>(&self, object: R) -> Result<Object<R>, ServerError> {
        self.write(&key_of(&object)?, |key, current, version, _| {
            let current = current.ok_or_else(|| ServerError::NotFound { key: key.clone() })?;
            let (old_version, old_uid) = (Object::version(current), Object::uid(current));
            let unchanged = call_out::call(Site::Source, || {
                let meta = object.meta();
                for (asked, current) in [(meta.version, &old_version), (meta.uid, &old_uid)] {
                    if !asked.is_empty() && asked != current.as_str() {
                        return Err((asked.to_owned(), current.to_string()));
                    }
                }
                let mut same = object.clone();
                same.set_version(&old_version);
                same.set_uid(&old_uid);
                Ok(same.unchanged(current))
            })?
            .map_err(|(asked, current)| ServerError::Conflict { key: key.clone(), asked, current })?;
            if unchanged {
                return Ok(None);
            }
            stored(key, object, version, &old_uid).map(|o| Some((Op::Modified, o)))
        })
    }

    /// Reads an object, changes it with `f` and writes it back, again from the start when somebody else wrote in
    /// between. `f` runs on this thread without any lock, perhaps several times.
    ///
    /// # Errors
    /// `NotFound`, `Key` (when `f` renamed it), `Panicked`.
    pub fn edit<R: Resource>(&self, key: impl AsKey, mut f: impl FnMut(&mut R)) -> Result<Object<R>, ServerError> {
        let key = object_key(key.as_key())?;
        loop {
            let current = self.get::<R>(&key).ok_or_else(|| ServerError::NotFound { key: key.clone() })?;
            let changed = call_out::call(Site::Source, || {
                let mut changed = R::clone(&current);
                f(&mut changed);
                changed.set_version(&Object::version(&current));
                changed
            })?;
            match self.update(changed) {
                Err(ServerError::Conflict { .. }) => {}
                other => return other,
            }
        }
    }

    /// Deletes an object; returns its last state, with the version of the deletion.
    ///
    /// # Errors
    /// `NotFound`, `Key`, `Panicked`.
    pub fn delete<R: Resource>(&self, key: impl AsKey) -> Result<Object<R>, ServerError> {
        self.write(&object_key(key.as_key())?, |key, current, version, _| {
            let current: &Object<R> = current.ok_or_else(|| ServerError::NotFound { key: key.clone() })?;
            let last = call_out::call(Site::Source, || R::clone(current))?;
            stored(key, last, version, &Object::uid(current)).map(|o| Some((Op::Deleted, o)))
        })
    }

    /// The object of this name. *Blocks*: briefly.
    pub fn get<R: Resource>(&self, key: impl AsKey) -> Option<Object<R>> {
        let key = object_key(key.as_key()).ok()?;
        self.0.collection::<R>(&mut self.0.lock()).get(&key).cloned()
    }

    /// Everything there is of `R`, with the server's version: the truth to compare a store with. *Blocks*: briefly.
    pub fn all<R: Resource>(&self) -> Truth<R> {
        let state = {
            let mut state = self.0.lock();
            let (version, seq) = (state.version, state.seq);
            self.0.collection::<R>(&mut state).now(version, seq)
        };
        Truth { version: state.version.to_string(), objects: state.objects.values().cloned().collect() }
    }

    /// The newest version.
    pub fn version(&self) -> String {
        self.0.lock().version.to_string()
    }

    /// Every change of `R` ever made. No trimming, compaction, restart or restore shortens it, so it grows as long as
    /// the server is written to.
    pub fn audit<R: Resource>(&self) -> Audit<R> {
        let log = self.0.collection::<R>(&mut self.0.lock()).log().to_vec();
        let record = |c: Arc<Change<R>>| Record { seq: c.seq, version: c.version, op: c.op, object: c.object.clone() };
        Audit { records: log.into_iter().map(record).collect() }
    }

    /// One write: `f` says what happens, given what is stored and the version that the change will have.
    fn write<R: Resource>(
        &self,
        key: &ObjectKey,
        f: impl FnOnce(&ObjectKey, Option<&Object<R>>, u64, &mut fastrand::Rng) -> Result<Option<(Op, Object<R>)>, ServerError>,
    ) -> Result<Object<R>, ServerError> {
        let mut turn = self.0.writing.take();
        let (before, version) = {
            let mut state = self.0.lock();
            let version = state.version + 1;
            (self.0.collection::<R>(&mut state).get(key).cloned(), version)
        };
        let Some((op, object)) = f(key, before.as_ref(), version, &mut turn)? else {
            return before.ok_or_else(|| ServerError::NotFound { key: key.clone() });
        };
        self.0.change(Some(TypeId::of::<R>()), |state| {
            // Read under the lock, so that times are in the order of versions.
            let at = self.0.clock.now();
            state.version = version;
            state.seq += 1;
            let change = Change { seq: state.seq, version, at, op, before, object: object.clone() };
            self.0.collection::<R>(state).publish(change);
        });
        Ok(object)
    }

    // ---- what happens to a server ----------------------------------------------------------------------------------

    /// The storage forgets its history. Exact lists of earlier versions are `Expired` from now on. Watches and pages of
    /// lists come from the server's memory and go on, until it is restarted; see [`Server::trim`] for 410s at once. (Of
    /// a server without a watch cache, watches expire as well.)
    pub fn compact(&self) {
        let cached = self.0.options.cached;
        self.0.change(None, |state| {
            state.compacted = state.version;
            if !cached {
                let floor = state.compacted.saturating_sub(1);
                state.collections.values_mut().for_each(|c| c.raise_floor(floor));
            }
        });
    }

    /// The watch cache forgets all changes up to now, as after a flood of them: a watch from an older version, and an
    /// open one that has not read them yet, is told `Expired`. Other open watches go on.
    pub fn trim(&self) {
        self.0.change(None, |state| state.collections.values_mut().for_each(|c| c.trim()));
    }

    /// The server process ends, taking its connections with it, and another begins at once. It knows no change from
    /// before its start, so only a watch from the newest version resumes; pages of lists expire if the storage was
    /// compacted.
    pub fn restart(&self, how: Close) {
        self.down(how);
        self.up();
    }

    /// The server process ends: connections end as said, and new ones are refused until [`Server::up`]. Writes through
    /// this handle still work: they stand for other servers of the cluster.
    pub fn down(&self, how: Close) {
        self.0.change(None, |state| {
            state.up = false;
            state.lines.values().for_each(|l| l.end(how));
        });
    }

    /// The server process begins, as [`Server::restart`] says. Does nothing when it is up.
    pub fn up(&self) {
        let cached = self.0.options.cached;
        self.0.change(None, |state| {
            if !std::mem::replace(&mut state.up, true) {
                state.started_at = state.version;
                let floor = if cached { state.version } else { state.compacted.saturating_sub(1) };
                state.collections.values_mut().for_each(|c| c.restart(floor));
            }
        });
    }

    /// Cuts every connection: streams and lists in flight fail with `Transport`. The server stays up.
    pub fn drop_connections(&self) {
        self.0.change(None, |state| state.lines.values().for_each(|l| l.end(Close::Cut)));
    }

    /// Ends every stream in order. The server stays up.
    pub fn close_connections(&self) {
        self.0.change(None, |state| {
            state.streams().for_each(|l| l.end(Close::Clean));
        });
    }

    /// The cluster is restored from a backup taken at `version`: the server restarts with the objects of then, and
    /// versions count on from there, so later ones are given a second time. False, and nothing happens, when `version`
    /// is newer than the newest or older than the last restore.
    pub fn restore(&self, version: &str) -> bool {
        let Some(version) = parse_version(version) else { return false };
        let _turn = self.0.writing.take();
        self.0.change(None, |state| {
            if version > state.version || version < state.restored {
                return false;
            }
            state.lines.values().for_each(|l| l.end(Close::Cut));
            for collection in state.collections.values_mut() {
                collection.restore(version, self.0.clock.now(), &mut state.seq);
            }
            state.version = version;
            state.restored = version;
            state.started_at = version;
            state.compacted = version;
            state.up = true;
            true
        })
    }

    // ---- faults and logs -------------------------------------------------------------------------------------------

    /// Adds faults to the script.
    pub fn faults(&self, faults: impl IntoIterator<Item = Fault>) {
        let faults: Vec<Fault> = faults.into_iter().collect();
        let mut state = self.0.lock();
        faults.into_iter().for_each(|f| state.faults.add(f));
    }

    /// Ends the script. What has struck an open stream stays with it.
    pub fn clear_faults(&self) {
        self.0.lock().faults.clear();
    }

    /// How many requests were struck by a fault.
    pub fn faults_struck(&self) -> u64 {
        self.0.lock().faults.struck()
    }

    /// Lies: sends `frame` on every open stream of `R`, after what the stream has still to deliver, whatever the
    /// history and the selection say.
    ///
    /// # Errors
    /// `Panicked`, when the frame could not be cloned.
    pub fn inject<R: Resource>(&self, frame: &WatchEvent<R>) -> Result<(), ServerError> {
        let of = TypeId::of::<R>();
        let lines: Vec<_> = {
            let state = self.0.lock();
            state.streams().filter(|l| l.of == of).cloned().collect()
        };
        for line in lines {
            let frame = call_out::call(Site::Source, || frame.clone())?;
            line.inject(frame);
        }
        self.0.change(Some(of), |_| ());
        Ok(())
    }

    /// Every request so far, oldest first.
    pub fn requests(&self) -> Vec<Request> {
        self.0.lock().requests()
    }

    /// [`Server::requests`], and forgets them. What comes of those still unanswered is not written down any more.
    pub fn take_requests(&self) -> Vec<Request> {
        self.0.lock().take_requests()
    }

    /// Watches that are open: neither ended by the server nor dropped by the watcher.
    pub fn open_streams(&self) -> usize {
        self.0.lock().streams().count()
    }
}

fn object_key(key: KeyRef<'_>) -> Result<ObjectKey, KeyError> {
    ObjectKey::new(key.namespace, key.name)
}

fn key_of<R: Resource>(object: &R) -> Result<ObjectKey, ServerError> {
    let key = call_out::call(Site::Source, || {
        let meta = object.meta();
        ObjectKey::new(meta.namespace, meta.name)
    })?;
    Ok(key?)
}

/// The object as it is stored.
fn stored<R: Resource>(key: &ObjectKey, mut value: R, version: u64, uid: &str) -> Result<Object<R>, ServerError> {
    let version = version.to_string();
    let value = call_out::call(Site::Source, || {
        value.set_version(&version);
        value.set_uid(uid);
        value
    })?;
    Ok(Object::with_key(key.clone(), &version, uid, value))
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.lock();
        f.debug_struct("Server").field("version", &state.version).field("up", &state.up).finish_non_exhaustive()
    }
}

impl ServerBuilder {
    /// How many changes of each resource the watch cache keeps for watches. 102,400 by default, as the real one at
    /// most.
    #[must_use]
    pub const fn window(mut self, changes: usize) -> Self {
        self.options.window = changes;
        self
    }

    /// How often an open watch gets a bookmark, besides the one 2 s before its end. A minute by default, as the real
    /// one.
    #[must_use]
    pub const fn bookmark_period(mut self, period: Duration) -> Self {
        self.options.bookmark_period = period;
        self
    }

    /// How long after its first page a list can be continued. 5 minutes by default, as the real one.
    #[must_use]
    pub const fn page_life(mut self, life: Duration) -> Self {
        self.options.page_life = life;
        self
    }

    /// How long a list, or a watch that begins with the state, waits for a version that is not reached yet. 3 s by default, as the real one.
    #[must_use]
    pub const fn too_large_wait(mut self, wait: Duration) -> Self {
        self.options.too_large_wait = wait;
        self
    }

    /// Whether there is a watch cache. Without one everything is read from storage: lists at any version come in
    /// pages, too large versions are refused at once and without advice, there are no bookmarks, and compaction expires
    /// watches. With one by default.
    #[must_use]
    pub const fn cached(mut self, yes: bool) -> Self {
        self.options.cached = yes;
        self
    }

    /// Whether a watch may begin with the state ([`crate::source::WatchParams::initial_events`]); without, that is
    /// refused. It may by default.
    #[must_use]
    pub const fn streams_states(mut self, yes: bool) -> Self {
        self.options.streams_states = yes;
        self
    }

    /// The version of the empty server; at least 1, the default.
    #[must_use]
    pub const fn first_version(mut self, version: u64) -> Self {
        self.first_version = if version == 0 { 1 } else { version };
        self
    }

    /// The seed of the uids. 0 by default.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The server.
    pub fn build(self) -> Server {
        Server(Arc::new(Shared::new(self.clock, self.options, self.first_version, self.seed)))
    }
}
