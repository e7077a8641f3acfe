//! Listers, selectors and waits, over a writer alone. On the whole pipeline: `tests/store_doors.rs`.

use super::{Labels, Lister, SelectError, StoreReader, Waits, Writer};
use crate::{
    flow::{AsKey, Delta, KeyRef, Meta, Object, Opaque},
    source::{Selector, compare_decimal},
    sync::{
        Arc, Clock, Deadline, ManualClock, Mutex, WaitError,
        atomic::{AtomicUsize, Ordering::Relaxed},
        call_out::{self, Site, assert_contained},
        spawn,
    },
};
use proptest::{collection::vec, prelude::*};
use std::{cell::RefCell, collections::VecDeque, time::Duration};

/// Labels by name and value; reading those of an object with a label `panic` panics.
type Labelled = Vec<(&'static str, &'static str)>;

fn put(namespace: &str, name: &str, labels: Labelled) -> Delta<Opaque> {
    Delta::Added(Object::new(Meta { namespace, name, version: "", uid: "" }, labels).unwrap().erase())
}

struct Listed {
    lister: Lister<Labelled>,
    /// Objects whose labels were read since it was last taken.
    reads: Arc<AtomicUsize>,
    writer: Writer,
}

impl Listed {
    fn new(indexed: &[&str]) -> Self {
        let reads = Arc::new(AtomicUsize::new(0));
        let counter = reads.clone();
        let of = Arc::new(move |value: &Labelled, emit: &mut dyn FnMut(&str, &str)| {
            counter.fetch_add(1, Relaxed);
            for (name, value) in value {
                assert_ne!(*name, "panic", "no labels today");
                emit(name, value);
            }
        });
        let specs = indexed.iter().map(|label| Labels::index(label, of.clone())).collect();
        let writer = Writer::new(specs).unwrap();
        let labels = Labels::new(Some(of), indexed.iter().map(|l| (*l).to_owned()).collect());
        Self { lister: Lister::of(writer.reader().typed(), Arc::new(labels)), reads, writer }
    }

    fn apply(&mut self, deltas: impl IntoIterator<Item = Delta<Opaque>>) {
        self.writer.apply(&mut deltas.into_iter().collect()).unwrap();
        self.reads.store(0, Relaxed);
    }

    fn list(&self, selector: &str) -> String {
        keys(self.lister.list(&selector.parse().unwrap()).unwrap())
    }

    fn list_in(&self, namespace: &str, selector: &str) -> String {
        keys(self.lister.namespace(namespace).list(&selector.parse().unwrap()).unwrap())
    }

    fn reads(&self) -> usize {
        self.reads.swap(0, Relaxed)
    }
}

/// Sorted, since lists are in no order.
fn keys(objects: Vec<Object<Labelled>>) -> String {
    let mut keys: Vec<_> = objects.iter().map(|o| Object::key(o).clone()).collect();
    keys.sort();
    keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

#[test]
fn listers_give_owned_objects_of_all_or_one_namespace() {
    let mut l = Listed::new(&[]);
    let put = |namespace, name| put(namespace, name, vec![]);
    l.apply([put("b", "x"), put("a-", "y"), put("", "n"), put("a", "z"), put("a", "x"), put("a!", "y")]);
    let of = |namespace: &str| {
        let namespace = l.lister.namespace(namespace);
        let all = keys(namespace.all());
        assert_eq!(keys(namespace.list(&Selector::everything()).unwrap()), all);
        all
    };
    assert_eq!(keys(l.lister.all()), "n a/x a/z a!/y a-/y b/x");
    assert_eq!(l.list(""), keys(l.lister.all()));
    assert_eq!([of("a"), of("a!"), of("none")], ["a/x a/z", "a!/y", ""]);
    assert_eq!(of(""), "n a/x a/z a!/y a-/y b/x");
    assert_eq!(l.reads(), 0, "everything needs no labels");
    let (a, none) = (l.lister.namespace("a"), l.lister.namespace(""));
    assert!(a.get("z").is_some() && a.get("y").is_none());
    assert!(none.get("n").is_some() && none.get("x").is_none() && l.lister.get(&("b", "x")).is_some());
}

#[test]
fn a_selector_reads_an_index_instead_of_every_object() {
    let mut l = Listed::new(&["app", "tier"]);
    let names: Vec<String> = (0..100).map(|n| format!("{n:02}")).collect();
    let labelled = |n: usize| match n {
        0 => vec![("app", "db"), ("tier", "back")],
        1 => vec![("app", "cache"), ("tier", "back")],
        _ => vec![("app", "web"), ("tier", "back"), ("odd", if n % 2 == 1 { "yes" } else { "no" })],
    };
    l.apply(names.iter().enumerate().map(|(n, name)| put(if n < 50 { "a" } else { "b" }, name, labelled(n))));
    assert_eq!((l.list("app=db"), l.reads()), ("a/00".into(), 1));
    assert_eq!((l.list("app in (db,cache,none)"), l.reads()), ("a/00 a/01".into(), 2));
    // The index with the fewest candidates, whichever is named first.
    assert_eq!((l.list("tier=back,app=db"), l.reads()), ("a/00".into(), 1));
    assert_eq!((l.list("app=db,app=cache"), l.reads()), (String::new(), 1));
    assert_eq!((l.list_in("b", "app=db"), l.reads()), (String::new(), 0));
    assert_eq!((l.list("app=none"), l.reads()), (String::new(), 0));
    // What no index answers looks at every object there may be.
    assert_eq!((l.list("app!=web"), l.reads()), ("a/00 a/01".into(), 100));
    assert_eq!((l.list_in("b", "odd=yes,!app"), l.reads()), (String::new(), 50));
    assert_eq!(l.list_in("a", "odd=no,app").split(' ').count(), 24);
    // An object that loses a label leaves its index.
    l.apply([put("a", "00", vec![("tier", "back")])]);
    assert_eq!((l.list("app=db"), l.reads()), (String::new(), 0));
}

#[test]
fn labels_that_cannot_be_read_fail_the_list_and_say_whose() {
    let mut l = Listed::new(&[]);
    l.apply([put("ns", "bad", vec![("panic", "")])]);
    let error = l.lister.list(&"app".parse().unwrap()).unwrap_err();
    assert!(matches!(&error, SelectError::Unreadable { key, .. } if key.name() == "bad"), "{error}");
    assert!(error.to_string().contains("ns/bad") && error.to_string().contains("no labels today"), "{error}");
    assert_eq!(keys(l.lister.all()), "ns/bad");
    assert_contained(&Clock::real(), &["no labels today"]);
    // An index of labels refuses what it cannot read, as any index does.
    let mut l = Listed::new(&["app"]);
    l.apply([put("ns", "bad", vec![("panic", "")]), put("ns", "good", vec![("app", "x")])]);
    assert_eq!(keys(l.lister.all()), "ns/good");
    assert_contained(&Clock::real(), &["no labels today"]);
}

#[test]
fn a_lister_that_knows_no_labels_says_so_instead_of_finding_nothing() {
    let mut l = Listed::new(&[]);
    l.apply([put("ns", "a", vec![("app", "x")])]);
    let blind = Lister::of(l.writer.reader().typed::<Labelled>(), Arc::new(Labels::new(None, vec![])));
    assert_eq!(blind.list(&"!app".parse().unwrap()).unwrap_err(), SelectError::NoLabels);
    assert_eq!(blind.namespace("ns").list(&"app".parse().unwrap()).unwrap_err(), SelectError::NoLabels);
    assert_eq!(keys(blind.list(&Selector::everything()).unwrap()), "ns/a");
}

proptest! {
    #[test]
    fn an_index_changes_how_long_a_list_takes_and_nothing_else(
        objects in vec((0..3usize, 0..8usize, vec((0..3usize, 0..3usize), 0..4)), 0..40),
        texts in vec("(!?[abc]|[abc](=|!=)[xyz]?|[abc] (in|notin) \\([xyz]?(,[xyz]?){0,2}\\))", 1..4),
        namespace in 0..4usize,
    ) {
        let (plain, indexed) = (Listed::new(&[]), Listed::new(&["a", "b"]));
        let lists = [plain, indexed].map(|mut l| {
            let deltas = objects.iter().map(|(namespace, name, labels)| {
                let labels = labels.iter().map(|(n, v)| (["a", "b", "c"][*n], ["x", "y", "z"][*v])).collect();
                put(["", "m", "n"][*namespace], &format!("k{name}"), labels)
            });
            l.writer.apply(&mut deltas.collect::<VecDeque<_>>());
            let text = texts.join(",");
            (l.list(&text), l.list_in(["", "m", "n", "o"][namespace], &text))
        });
        prop_assert_eq!(&lists[0], &lists[1]);
    }
}

/// A writer that announces what it publishes, as the engine does.
struct Told {
    writer: Writer,
    waits: Arc<Waits>,
    reader: StoreReader<u32>,
}

impl Told {
    fn new(clock: &Clock) -> Self {
        let writer = Writer::new(vec![]).unwrap();
        let waits = Arc::new(Waits::new("pods", clock, Box::new(compare_decimal)));
        let reader = writer.reader().typed().waiting(&waits);
        Self { writer, waits, reader }
    }

    fn apply(&mut self, delta: Delta<Opaque>) {
        if let Delta::ReplacedAll { new_era: true, .. } = &delta {
            self.waits.era_begins(self.reader.snapshot().seq() + 1);
        }
        let mut deltas = VecDeque::from([delta]);
        self.waits.publish(|| self.writer.apply(&mut deltas)).unwrap();
    }

    fn reach(&mut self, version: &str) {
        self.apply(Delta::Bookmark { version: version.into() });
    }

    fn restored(&mut self, version: &str) {
        let version = version.into();
        self.apply(Delta::ReplacedAll { version, objects: vec![], kept: vec![], complete: true, new_era: true });
    }
}

const NOW: Duration = Duration::ZERO;

fn timeout(missing: &str) -> WaitError {
    WaitError::Timeout { missing: vec![missing.to_owned()], last_error: None }
}

#[test]
fn a_version_that_is_there_is_not_waited_for() {
    let clock = ManualClock::new();
    let mut t = Told::new(&clock);
    t.reach("10");
    assert_eq!(t.reader.wait_for_version("10", NOW).unwrap().version(), "10");
    assert_eq!(t.reader.wait_until(|s| s.seq() == 1, Deadline::never()).unwrap().seq(), 1);
    // B-66: versions are compared as the source orders them, not as texts.
    assert_eq!(t.reader.wait_for_version("9", Deadline::never()).unwrap().version(), "10");
    let missing = |v: &str| timeout(&format!("pods: version {v:?} (the store is at version \"10\")"));
    assert_eq!(t.reader.wait_for_version("99", NOW).unwrap_err(), missing("99"));
    // What is not ordered is there only when it is the very same.
    assert_eq!(t.reader.wait_for_version("x", NOW).unwrap_err(), missing("x"));
    t.reach("x");
    assert_eq!(t.reader.wait_for_version("x", NOW).unwrap().version(), "x");
    assert!(t.reader.wait_for_version("10", NOW).is_err());
    let missing = timeout("pods: what is waited for (the store is at version \"x\")");
    assert_eq!(t.reader.wait_until(|_| false, NOW).unwrap_err(), missing);
}

#[test]
fn a_waiter_looks_once_for_each_publication_and_never_by_itself() {
    let clock = ManualClock::new();
    let mut t = Told::new(&clock);
    let looks = Arc::new(AtomicUsize::new(0));
    let (reader, counter) = (t.reader.clone(), looks.clone());
    let by_condition =
        move || reader.wait_until(|s| counter.fetch_add(1, Relaxed) > usize::MAX / 2 || s.version() == "3", Deadline::never());
    let waiter = spawn(&clock, "condition", by_condition).unwrap();
    let reader = t.reader.clone();
    let by_version = spawn(&clock, "version", move || reader.wait_for_version("2", Duration::from_secs(7200))).unwrap();
    clock.advance(Duration::from_secs(3600));
    // On arrival, and again once it stands in line.
    assert_eq!(looks.load(Relaxed), 2);
    t.reach("1");
    clock.advance(Duration::from_secs(3599));
    assert_eq!(looks.load(Relaxed), 3);
    t.reach("3");
    assert_eq!(waiter.join().unwrap().unwrap().version(), "3");
    assert_eq!(by_version.join().unwrap().unwrap().version(), "3");
    assert_eq!(looks.load(Relaxed), 4);
    assert_eq!(format!("{:?}", t.waits), "waits for pods (0)");
}

#[test]
fn a_wait_ends_at_its_deadline_and_not_before() {
    let clock = ManualClock::new();
    let mut t = Told::new(&clock);
    let reader = t.reader.clone();
    let waiter = spawn(&clock, "waiter", move || reader.wait_for_version("5", Duration::from_secs(10))).unwrap();
    clock.advance(Duration::from_secs(9));
    t.reach("4");
    clock.advance(Duration::from_secs(1));
    let missing = timeout("pods: version \"5\" (the store is at version \"4\")");
    assert_eq!(waiter.join().unwrap().unwrap_err(), missing);
}

#[test]
fn the_end_releases_waiters_and_what_was_published_last_still_counts() {
    let clock = ManualClock::new();
    let mut t = Told::new(&clock);
    let wait = |version: &'static str| {
        let reader = t.reader.clone();
        spawn(&clock, "waiter", move || reader.wait_for_version(version, Deadline::never())).unwrap()
    };
    let (there, never) = (wait("1"), wait("2"));
    clock.settle();
    t.reach("1");
    t.waits.end();
    assert_eq!(there.join().unwrap().unwrap().version(), "1");
    assert_eq!(never.join().unwrap().unwrap_err(), WaitError::Stopped);
    assert!(t.reader.wait_for_version("1", Deadline::never()).is_ok());
    assert_eq!(t.reader.wait_for_version("2", Deadline::never()).unwrap_err(), WaitError::Stopped);
    // Nobody announces what this one would see.
    assert_eq!(t.writer.reader().typed::<u32>().wait_until(|_| true, NOW).unwrap_err(), WaitError::Stopped);
}

#[test]
fn a_new_era_ends_the_waits_of_the_old_one_whatever_its_versions_look_like() {
    let clock = ManualClock::new();
    let mut t = Told::new(&clock);
    t.reach("100");
    let reader = t.reader.clone();
    let old = spawn(&clock, "old", move || reader.wait_for_version("200", Deadline::never())).unwrap();
    let reader = t.reader.clone();
    let condition = spawn(&clock, "condition", move || reader.wait_until(|s| s.version() == "300", Deadline::never())).unwrap();
    clock.settle();
    // A higher version of another era is not the version waited for.
    t.restored("250");
    assert_eq!(old.join().unwrap().unwrap_err(), WaitError::EraReset);
    // Those who come later wait for versions of this era.
    assert_eq!(t.reader.wait_for_version("200", NOW).unwrap().version(), "250");
    t.reach("300");
    assert_eq!(condition.join().unwrap().unwrap().version(), "300");
    // An era that is announced and not there yet: who looks now would judge by a store of the old one.
    t.waits.era_begins(t.reader.snapshot().seq() + 1);
    assert_eq!(t.reader.wait_for_version("1", NOW).unwrap_err(), WaitError::EraReset);
}

#[test]
fn waiting_is_refused_where_the_next_publication_may_wait_for_the_waiter() {
    let clock = ManualClock::new();
    let mut t = Told::new(&clock);
    t.reach("1");
    for site in [Site::Transform, Site::Index, Site::Hook, Site::Source, Site::Key, Site::Drop, Site::Sink] {
        let refused = call_out::call(site, || t.reader.wait_for_version("1", NOW)).unwrap();
        assert_eq!(refused.unwrap_err(), WaitError::WouldDeadlock, "{site:?}");
        assert!(call_out::call(site, || t.reader.wait_until(|_| true, NOW)).unwrap().is_err());
    }
    for site in [Site::Handler, Site::Reconcile] {
        assert!(call_out::call(site, || t.reader.wait_for_version("1", NOW)).unwrap().is_ok(), "{site:?}");
    }
}

#[test]
fn a_condition_that_panics_leaves_no_waiter_behind() {
    let clock = ManualClock::new();
    let mut t = Told::new(&clock);
    let reader = t.reader.clone();
    let told = Arc::new(Mutex::new(Vec::new()));
    let t2 = told.clone();
    let waiter = spawn(&clock, "waiter", move || {
        reader.wait_until(
            |s| {
                t2.lock().push(s.seq());
                assert_eq!(s.seq(), 0, "cannot bear it");
                false
            },
            Deadline::never(),
        )
    })
    .unwrap();
    clock.settle();
    assert_eq!(format!("{:?}", t.waits), "waits for pods (1)");
    t.reach("1");
    assert!(waiter.join().unwrap_err().contains("cannot bear it"));
    assert_eq!((format!("{:?}", t.waits), &*told.lock()), ("waits for pods (0)".into(), &vec![0, 0, 1]));
    t.reach("2");
}

#[test]
fn a_key_of_the_users_own_is_asked_before_any_version_is_looked_at() {
    struct Own(RefCell<Writer>);
    impl AsKey for Own {
        fn as_key(&self) -> KeyRef<'_> {
            let mut writer = self.0.borrow_mut();
            writer.apply(&mut VecDeque::from([put("ns", "other", Vec::new())]));
            writer.reclaim(0);
            assert_eq!(writer.gauge().standing, 0, "a version is being read while the user's code runs");
            KeyRef { namespace: "ns", name: "a" }
        }
    }
    let mut writer = Writer::new(Vec::new()).unwrap();
    writer.apply(&mut VecDeque::from([put("ns", "a", Vec::new())]));
    let reader = writer.reader();
    let own = Own(RefCell::new(writer));
    assert!(reader.get(&own).is_some());
    assert!(reader.with(&own, |_| ()).is_some());
}
