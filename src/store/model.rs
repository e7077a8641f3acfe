//! loom models of the version cell and of what is freed behind it: a value that a reader has reached is not dropped under it, whatever comes in between,
//! and every value is dropped in the end. Beside each stand the places that it must not survive the loss of.

use super::{
    Gauge,
    cell::{Held, VersionCell},
    node::Entry,
    reclaim::{Freed, Item},
    table::Table,
    version::{Snap, Version},
};
use crate::sync::{
    Arc, Clock,
    atomic::{AtomicUsize, Ordering},
    prove::{self, Reached, Watched},
    spawn,
};

/// A value that tells loom when it is made, read and dropped.
struct Value {
    touched: Arc<Watched>,
    alive: Arc<()>,
}

impl Value {
    fn read(&self) {
        self.touched.read();
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.touched.write();
        debug_assert!(Arc::strong_count(&self.alive) > 1, "whoever made it keeps a count");
    }
}

fn make(alive: &Arc<()>) -> Held<Value> {
    let touched = Arc::new(Watched::default());
    touched.write();
    Held::new(Value { touched, alive: alive.clone() })
}

/// How a model ends that lets a reader touch what was dropped.
const FREED: &str = "Causality violation|killed by a signal";

/// How a reader reads.
#[derive(Clone, Copy)]
enum Read {
    /// For one call.
    Peek,
    /// With a handle of its own, which outlives the step.
    Load,
}

impl Read {
    fn from(self, cell: &VersionCell<Value>) {
        match self {
            Self::Peek => cell.peek(Value::read),
            Self::Load => cell.load().read(),
        }
    }
}

static KEPT: Reached = Reached::new();

/// One publisher, one reader that reads once.
fn world(read: Read, publications: usize) {
    world_of(read, 1, publications);
}

/// One publisher, one reader that reads some times.
fn world_of(read: Read, times: usize, publications: usize) {
    let alive = Arc::new(());
    let cell = Arc::new(VersionCell::new(make(&alive)));
    let reader = {
        let cell = cell.clone();
        spawn(&Clock::real(), "reader", move || (0..times).for_each(|_| read.from(&cell))).unwrap()
    };
    for _ in 0..publications {
        let before = cell.publish(make(&alive));
        before.read();
        drop(before);
        if cell.retired() > 0 {
            KEPT.count();
        }
    }
    reader.join().unwrap();
    drop(cell);
    assert_eq!(Arc::strong_count(&alive), 1, "every value is dropped once");
}

#[test]
fn a_value_is_not_dropped_while_it_is_lent() {
    prove::model("cell: publish against peek", Some(3), || world(Read::Peek, 1));
    if prove::intact() {
        assert!(KEPT.get() > 0, "no value was ever kept for its reader");
    }
    for place in ["cell: the reader's fence", "cell: the writer's fence", "cell: the slot is cleared"] {
        prove::rejects(place, FREED, Some(3), || world(Read::Peek, 1));
    }
}

#[test]
fn a_value_is_not_dropped_while_somebody_holds_it() {
    prove::model("cell: publish against load", Some(3), || world(Read::Load, 1));
    prove::rejects("cell: a handle is given up", FREED, Some(3), || world(Read::Load, 1));
    prove::rejects("cell: the last handle fences", FREED, Some(3), || world(Read::Load, 1));
}

/// B-120: a writer that sees an old content of a slot frees what is read. Here nothing exchanges the content of a slot, so
/// no look at one can fail and be weaker for it: both looks are loads behind a fence. The reader reads twice and the writer
/// publishes twice, so each slot has several contents to be mistaken for the last.
#[test]
fn b_120_an_old_content_of_a_slot_frees_nothing_that_is_read() {
    prove::model("cell: two publications against two peeks", Some(3), || world_of(Read::Peek, 2, 2));
    for place in ["cell: the reader's fence", "cell: the writer's fence", "cell: the slot is filled", "cell: the slot is cleared"]
    {
        prove::rejects(place, FREED, Some(3), || world_of(Read::Peek, 2, 2));
    }
}

/// As above, but the replaced value has its last handle on a third thread.
fn handed_on() {
    let alive = Arc::new(());
    let cell = Arc::new(VersionCell::new(make(&alive)));
    let reader = {
        let cell = cell.clone();
        spawn(&Clock::real(), "reader", move || Read::Peek.from(&cell)).unwrap()
    };
    let before = cell.publish(make(&alive));
    let keeper = spawn(&Clock::real(), "keeper", move || drop(before)).unwrap();
    keeper.join().unwrap();
    reader.join().unwrap();
    drop(cell);
    assert_eq!(Arc::strong_count(&alive), 1, "every value is dropped once");
}

#[test]
fn a_value_that_was_lent_may_be_dropped_by_anybody() {
    prove::model("cell: publish against peek, dropped elsewhere", Some(3), handed_on);
    prove::rejects("cell: the slot is cleared", FREED, Some(3), || handed_on());
}

#[test]
fn what_was_kept_is_dropped_by_a_later_publication() {
    prove::model("cell: two publications against peek", Some(3), || world(Read::Peek, 2));
    prove::rejects("cell: the reader's fence", FREED, Some(3), || world(Read::Peek, 2));
}

/// Two threads read, and the second may have the slot of the first, which has ended: what the publisher finds in it then
/// must be ordered after the first one's use of the first value.
fn slot_handed_on() {
    let alive = Arc::new(());
    let cell = Arc::new(VersionCell::new(make(&alive)));
    let readers = [(); 2].map(|()| {
        let cell = cell.clone();
        spawn(&Clock::real(), "reader", move || Read::Peek.from(&cell)).unwrap()
    });
    drop(cell.publish(make(&alive)));
    for reader in readers {
        reader.join().unwrap();
    }
    drop(cell);
    assert_eq!(Arc::strong_count(&alive), 1, "every value is dropped once");
}

#[test]
fn a_slot_goes_to_the_next_thread_together_with_what_the_last_one_did() {
    prove::model("cell: publish against peeks of two threads", Some(3), slot_handed_on);
    for place in ["cell: a slot is given back", "cell: a slot is claimed", "cell: the list of slots is walked"] {
        prove::rejects(place, FREED, Some(3), || slot_handed_on());
    }
}

/// The publisher may find the slot filled with the second value, and must be ordered after the reader's use of the first.
#[test]
fn a_reader_that_reads_again_is_done_with_what_it_read_before() {
    prove::model("cell: publish against two peeks", Some(3), || world_of(Read::Peek, 2, 1));
    prove::rejects("cell: the slot is filled", FREED, Some(3), || world_of(Read::Peek, 2, 1));
}

/// An object of a store that tells loom when it is made, read and dropped. (Its own count is std's, which loom does not
/// see; what the store does between the last reader and the drop is seen.)
#[derive(Clone)]
struct Stored(Arc<Value>);

impl Stored {
    fn make(alive: &Arc<()>) -> Self {
        let touched = Arc::new(Watched::default());
        touched.write();
        Self(Arc::new(Value { touched, alive: alive.clone() }))
    }
}

impl Entry for Stored {
    fn hash(&self) -> u64 {
        7
    }

    const MARKS: bool = true;
}

impl Item for Stored {
    fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

/// Puts the one object of a store, and frees what that replaced, if nobody has it.
fn put(table: &mut Table<Stored>, alive: &Arc<()>) {
    let mut draft = table.draft();
    let old = draft.next.items.iter().next().cloned();
    assert!(draft.put(old.as_ref(), &Stored::make(alive)).is_ok());
    drop(old);
    drop(draft.publish(usize::MAX));
}

fn read(version: &Version<Stored>) {
    version.items.iter().for_each(|stored| stored.0.read());
}

static PINNED: Reached = Reached::new();

/// A reader of one kind against a writer that replaces the only object.
fn replaced_while_read(how: Read) {
    let alive = Arc::new(());
    let mut table = Table::<Stored>::new(Vec::new()).unwrap();
    put(&mut table, &alive);
    let core = table.core().clone();
    let reader = spawn(&Clock::real(), "reader", move || match how {
        Read::Peek => core.cell.peek(read),
        Read::Load => read(Snap::current(&core).version()),
    })
    .unwrap();
    put(&mut table, &alive);
    if table.gauge().versions > 0 {
        PINNED.count();
    }
    reader.join().unwrap();
    let mut freed = Freed::default();
    table.reclaim(usize::MAX, &mut freed);
    drop(freed);
    assert_eq!(table.gauge(), Gauge::default(), "nobody reads any more");
    assert_eq!(Arc::strong_count(&alive), 2, "the current object is left");
    drop(table);
    assert_eq!(Arc::strong_count(&alive), 1, "and goes with the store");
}

#[test]
fn what_a_step_replaced_is_not_freed_while_it_is_lent() {
    prove::model("store: put against peek", Some(2), || replaced_while_read(Read::Peek));
    if prove::intact() {
        assert!(PINNED.get() > 0, "no version was ever kept for its reader");
    }
    for place in ["cell: the reader's fence", "cell: the writer's fence", "cell: the slot is cleared"] {
        prove::rejects(place, FREED, Some(2), || replaced_while_read(Read::Peek));
    }
}

#[test]
fn what_a_step_replaced_is_not_freed_while_somebody_has_its_version() {
    prove::model("store: put against a snapshot", Some(2), || replaced_while_read(Read::Load));
    prove::rejects("cell: a handle is given up", FREED, Some(2), || replaced_while_read(Read::Load));
}

/// The last holder of an older version lets go while the writer goes; a reader stays.
fn the_last_two() {
    let alive = Arc::new(());
    let mut table = Table::<Stored>::new(Vec::new()).unwrap();
    put(&mut table, &alive);
    let core = table.core().clone();
    let held = Snap::current(&core);
    put(&mut table, &alive);
    let holder = spawn(&Clock::real(), "holder", move || {
        read(held.version());
        drop(held);
    })
    .unwrap();
    drop(table);
    holder.join().unwrap();
    assert_eq!(Arc::strong_count(&alive), 2, "the older object went with its version");
    core.cell.peek(read);
    drop(core);
    assert_eq!(Arc::strong_count(&alive), 1, "the last one frees the rest");
}

#[test]
fn between_a_writer_that_goes_and_a_snapshot_that_goes_nothing_is_left_behind() {
    prove::model("store: the writer goes against the last snapshot", Some(3), the_last_two);
    let places = [
        "store: a snapshot that goes says so",
        "store: a writer that goes asks who has gone",
        "store: whoever frees looks again when asked meanwhile",
    ];
    for place in places {
        prove::rejects(place, "went with its version", Some(3), || the_last_two());
    }
}

static NUDGED: Reached = Reached::new();

/// A snapshot goes while the writer looks for those that have gone; another one stays.
fn goes_while_looked_for() {
    let alive = Arc::new(());
    let mut table = Table::<Stored>::new(Vec::new()).unwrap();
    let (core, nudges) = (table.core().clone(), Arc::new(AtomicUsize::new(0)));
    let counts = nudges.clone();
    let nudge: Box<dyn Fn() + Send + Sync> = Box::new(move || {
        counts.fetch_add(1, Ordering::Relaxed);
    });
    assert!(core.nudge.set(nudge).is_ok());
    put(&mut table, &alive);
    let stays = Snap::current(&core);
    put(&mut table, &alive);
    let goes = Snap::current(&core);
    put(&mut table, &alive);
    // As after a nudge, which asked for the look that follows.
    core.waiting.store(false, Ordering::Relaxed);
    let holder = spawn(&Clock::real(), "holder", move || {
        read(goes.version());
        drop(goes);
    })
    .unwrap();
    let look = |table: &mut Table<Stored>| {
        let mut freed = Freed::default();
        table.reclaim(usize::MAX, &mut freed);
    };
    look(&mut table);
    holder.join().unwrap();
    if nudges.load(Ordering::Relaxed) > 0 {
        NUDGED.count();
        look(&mut table);
    }
    assert_eq!((table.gauge().versions, table.gauge().waiting), (1, 0), "what was let go of is freed");
    drop(stays);
    look(&mut table);
    assert_eq!(table.gauge(), Gauge::default());
    drop((table, core));
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn a_snapshot_that_goes_is_seen_by_the_writer_or_tells_it() {
    prove::model("store: a snapshot goes against a look", Some(3), goes_while_looked_for);
    if prove::intact() {
        assert!(NUDGED.get() > 0, "the writer was never told");
    }
    for place in ["store: a snapshot that goes says so", "store: who looks for the dead asks who has gone"] {
        prove::rejects(place, "what was let go of is freed", Some(3), || goes_while_looked_for());
    }
}

/// Two threads that have no slot yet read while the writer replaces.
fn registration() {
    let alive = Arc::new(());
    let cell = Arc::new(VersionCell::new(make(&alive)));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let cell = cell.clone();
            spawn(&Clock::real(), "reader", move || cell.peek(Value::read)).unwrap()
        })
        .collect();
    drop(cell.publish(make(&alive)));
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    drop(cell);
    assert_eq!(Arc::strong_count(&alive), 1, "every value is dropped once");
}

#[test]
fn a_slot_that_is_being_registered_is_seen_or_its_reader_sees_the_new_value() {
    prove::model("cell: registration of two slots against publish", Some(2), registration);
    for place in ["cell: the reader's fence", "cell: the writer's fence"] {
        prove::rejects(place, FREED, Some(2), || registration());
    }
}

/// One thread reads two stores with its one slot, both of which are written.
fn two_cells() {
    let alive = Arc::new(());
    let cells = [Arc::new(VersionCell::new(make(&alive))), Arc::new(VersionCell::new(make(&alive)))];
    let reader = {
        let [one, other] = cells.clone();
        spawn(&Clock::real(), "reader", move || {
            one.peek(|first| {
                other.peek(Value::read);
                first.read();
            });
        })
        .unwrap()
    };
    for cell in &cells {
        drop(cell.publish(make(&alive)));
    }
    reader.join().unwrap();
    drop(cells);
    assert_eq!(Arc::strong_count(&alive), 1, "every value is dropped once");
}

#[test]
fn a_slot_serves_several_cells() {
    prove::model("cell: two cells, one thread", Some(2), two_cells);
    prove::rejects("cell: the reader's fence", FREED, Some(2), || two_cells());
}
