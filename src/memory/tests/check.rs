//! The stream checker: legal streams pass, and each planted defect is found and named.

use super::*;
use crate::{
    flow::{Cause, Change, Deleted, Event},
    memory::{
        Close, Fault,
        check::{StreamChecker, Violation},
    },
};
use std::collections::BTreeMap;

/// A listener in its simplest form: it follows a source through lists and watches, and writes down what a handler would
/// be told.
struct Follower {
    server: Server,
    scope: Scope,
    holds: BTreeMap<ObjectKey, Object<Pod>>,
    stream: Option<Box<dyn WatchStream<Pod>>>,
    version: String,
    lists: u32,
    told: Vec<Event<Pod>>,
}

impl Follower {
    fn new(server: &Server, scope: Scope) -> Self {
        let server = server.clone();
        Self { server, scope, holds: BTreeMap::new(), stream: None, version: String::new(), lists: 0, told: Vec::new() }
    }

    /// Lists, telling the differences.
    fn list(&mut self) {
        let params = ListParams { scope: self.scope.clone(), ..list_params(VersionMatch::MostRecent) };
        let mut new = BTreeMap::new();
        let end = self.server.source::<Pod>().list(&Stop::new(), &params, &mut |item| {
            let object = object(item.unwrap());
            new.insert(Object::key(&object).clone(), object);
            ControlFlow::Continue(())
        });
        let Ok(end) = end else { return };
        let cause = if self.lists == 0 { Cause::Initial } else { Cause::Relist };
        self.lists += 1;
        self.version = end.version;
        for (key, last) in &self.holds {
            if !new.contains_key(key) {
                let gone = Deleted::Missed { key: key.clone(), last_known: Some(last.clone()) };
                self.told.push(Event { cause, change: Change::Deleted(gone) });
            }
        }
        for (key, object) in &new {
            let change = match self.holds.get(key) {
                Some(old) if Object::version(old) == Object::version(object) => continue,
                Some(old) => Change::Updated { old: old.clone(), new: object.clone() },
                None => Change::Added(object.clone()),
            };
            self.told.push(Event { cause, change });
        }
        self.holds = new;
    }

    /// Reads what there is; lists when it must.
    fn follow(&mut self) {
        let params = WatchParams { scope: self.scope.clone(), ..from(&self.version) };
        if self.lists == 0 {
            return self.list();
        }
        if self.stream.is_none() {
            self.stream = self.server.source::<Pod>().watch(&Stop::new(), &params).ok();
        }
        while let Some(next) = self.stream.as_mut().and_then(|s| s.ready()) {
            match next {
                Next::Event(frame) => self.frame(frame),
                Next::Failed(e) => {
                    self.stream = None;
                    if *e.kind() == SourceErrorKind::Expired {
                        self.list();
                    }
                }
                _ => self.stream = None,
            }
        }
    }

    fn frame(&mut self, frame: WatchEvent<Pod>) {
        let change = match frame {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                let new = object(pod);
                self.version = version_of(&new);
                match self.holds.insert(Object::key(&new).clone(), new.clone()) {
                    Some(old) => Change::Updated { old, new },
                    None => Change::Added(new),
                }
            }
            WatchEvent::Deleted(pod) => {
                let last = object(pod);
                self.version = version_of(&last);
                self.holds.remove(Object::key(&last));
                Change::Deleted(Deleted::Observed(last))
            }
            WatchEvent::Bookmark { version, .. } => {
                self.version = version;
                return;
            }
            WatchEvent::Undecodable { .. } => return,
        };
        self.told.push(Event { cause: Cause::Watch, change });
    }
}

fn object(pod: Pod) -> Object<Pod> {
    Object::new(crate::memory::Resource::meta(&pod), pod.clone()).unwrap()
}

/// What the checker says of a stream that ended with the server as it is now.
fn judged(server: &Server, scope: &Scope, told: &[Event<Pod>]) -> Vec<Violation> {
    let checker = StreamChecker::<Pod>::scoped(server, scope).unwrap();
    for event in told {
        // What it returns is also what it remembers.
        if let Err(violation) = checker.observe_values(event) {
            assert_eq!(checker.violations().last(), Some(&violation));
        }
    }
    assert_eq!(checker.events(), told.len() as u64);
    checker.finish(&server.all()).err().unwrap_or_default()
}

/// Writes at random, breaks things at random, and lets a follower and a late listener follow.
fn story(seed: u64, scope: &Scope, breaks: bool) -> (Server, Follower) {
    let clock = ManualClock::new();
    let mut rng = fastrand::Rng::with_seed(seed);
    let server = Server::builder(&clock).window(if breaks { 8 } else { 1000 }).seed(seed).build();
    let mut follower = Follower::new(&server, scope.clone());
    for n in 0..120 {
        let name = format!("p{}", rng.u8(0..6));
        let app = if rng.bool() { "web" } else { "db" };
        // Refusals are part of it: the object may exist, or not.
        let _refused = match rng.u8(0..6) {
            0..=2 => server.create(pod(&name).with_label("app", app)).map(drop),
            3 | 4 => server
                .edit::<Pod>(key(&name), |p| {
                    p.generation = n;
                    p.labels.insert("app".to_owned(), app.to_owned());
                })
                .map(drop),
            _ => server.delete::<Pod>(key(&name)).map(drop),
        };
        if breaks {
            match rng.u8(0..30) {
                0 => server.trim(),
                1 => server.restart(Close::Cut),
                2 => server.drop_connections(),
                3 => server.close_connections(),
                4 => server.faults([Fault::cut_after(rng.u64(0..3))]),
                5 => server.faults([Fault::refuse(SourceErrorKind::Expired).on_watch()]),
                _ => {}
            }
        }
        if rng.u8(0..3) == 0 {
            follower.follow();
        }
    }
    server.clear_faults();
    for _ in 0..3 {
        follower.follow();
    }
    (server, follower)
}

#[test]
fn streams_of_a_right_listener_are_legal() {
    let (mut events, mut relists) = (0, 0);
    for seed in 0..60 {
        for scope in [Scope::default(), labels("app=web")] {
            let (server, follower) = story(seed, &scope, !seed.is_multiple_of(2));
            events += follower.told.len();
            relists += follower.lists - 1;
            assert_eq!(judged(&server, &scope, &follower.told), [], "seed {seed}");
        }
    }
    assert!(events > 3000 && relists > 50, "{events} events and {relists} relists");
}

/// Without a break every event is needed: leaving one out, telling one twice or swapping two of one object is found.
#[test]
fn every_single_dropped_doubled_or_swapped_event_is_found() {
    for seed in 0..3 {
        for scope in [Scope::default(), labels("app=web")] {
            let (server, follower) = story(seed, &scope, false);
            let told = follower.told;
            for at in 0..told.len() {
                let mut dropped = told.clone();
                dropped.remove(at);
                assert_ne!(judged(&server, &scope, &dropped), [], "seed {seed}, event {at} dropped: {:?}", told[at]);
                let mut doubled = told.clone();
                doubled.insert(at, told[at].clone());
                assert_ne!(judged(&server, &scope, &doubled), [], "seed {seed}, event {at} doubled: {:?}", told[at]);
                if let Some(next) = (at + 1..told.len()).find(|i| told[*i].key() == told[at].key()) {
                    let mut swapped = told.clone();
                    swapped.swap(at, next);
                    assert_ne!(judged(&server, &scope, &swapped), [], "seed {seed}, events {at} and {next} swapped");
                }
            }
        }
    }
}

/// With breaks a relist may heal a loss, but what is told twice or in the wrong order is still found.
#[test]
fn doubled_events_are_found_across_relists() {
    for seed in 100..106 {
        let (server, follower) = story(seed, &Scope::default(), true);
        assert!(follower.lists > 1);
        for at in 0..follower.told.len() {
            // A relist may tell an unchanged object once more.
            let event = &follower.told[at];
            let mut doubled = follower.told.clone();
            doubled.insert(at, event.clone());
            assert_ne!(judged(&server, &Scope::default(), &doubled), [], "seed {seed}, event {at} doubled: {event:?}");
        }
    }
}

/// A listener that joins late is given the store as `Initial`, and from then on what the store is given.
#[test]
fn a_listener_may_join_at_any_moment() {
    for seed in 0..12 {
        let (server, follower) = story(seed, &Scope::default(), !seed.is_multiple_of(2));
        let told = follower.told;
        // A relist is one step of the store: nobody can join in the middle.
        let inside = |at: usize| at > 0 && told[at - 1..=at].iter().all(|e| e.cause == Cause::Relist);
        for join in (0..told.len()).filter(|at| !inside(*at)) {
            assert_eq!(judged(&server, &Scope::default(), &late(&told, join)), [], "seed {seed}, joined at {join}");
        }
    }
}

/// What a listener is told that joins when the first `join` events have happened.
fn late(told: &[Event<Pod>], join: usize) -> Vec<Event<Pod>> {
    let mut store = BTreeMap::new();
    for event in &told[..join] {
        match &event.change {
            Change::Added(o) | Change::Updated { new: o, .. } => drop(store.insert(event.key().clone(), o.clone())),
            Change::Deleted(_) => drop(store.remove(event.key())),
        }
    }
    let initial = store.into_values().map(|o| Event { cause: Cause::Initial, change: Change::Added(o) });
    initial.chain(told[join..].iter().cloned()).collect()
}

#[test]
fn an_initial_state_that_mixes_two_moments_is_torn() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    let a = server.create(pod("a")).unwrap();
    server.update(pod("a").on_node("n")).unwrap();
    let b = server.create(pod("b")).unwrap();
    let initial = |o: &Object<Pod>| Event { cause: Cause::Initial, change: Change::Added(o.clone()) };
    let checker = StreamChecker::<Pod>::new(&server);
    checker.observe(&initial(&a)).unwrap();
    assert_eq!(checker.observe(&initial(&b)), Err(Violation::Torn { key: key("b"), given: "4".to_owned() }));
}

#[test]
fn the_initial_state_comes_before_everything_else() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    let [a, b] = ["a", "b"].map(|name| server.create(pod(name)).unwrap());
    let added = |cause, o: &Object<Pod>| Event { cause, change: Change::Added(o.clone()) };
    let checker = StreamChecker::<Pod>::new(&server);
    checker.observe(&added(Cause::Watch, &b)).unwrap();
    let late = Violation::NotInitial { key: key("a"), given: "2".to_owned() };
    assert_eq!(checker.observe(&added(Cause::Initial, &a)), Err(late.clone()));
    assert_eq!(checker.finish(&server.all()), Err(vec![late]));
}

/// Events of one pod: created @2, changed @3 and @4, deleted @5, created again @6.
fn life_of_a_pod() -> (ManualClock, Server, Vec<Event<Pod>>) {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    let mut follower = Follower::new(&server, Scope::default());
    follower.list();
    server.create(pod("a")).unwrap();
    server.update(pod("a").on_node("n1")).unwrap();
    server.update(pod("a").on_node("n2")).unwrap();
    server.delete::<Pod>(key("a")).unwrap();
    server.create(pod("a")).unwrap();
    follower.follow();
    assert_eq!(follower.told.len(), 5);
    (clock, server, follower.told)
}

#[test]
fn each_defect_is_named() {
    let (_clock, server, told) = life_of_a_pod();
    let text = |s: &str| s.to_owned();
    let a = || key("a");
    let judge = |order: &[usize]| {
        let events: Vec<_> = order.iter().map(|i| told[*i].clone()).collect();
        judged(&server, &Scope::default(), &events)
    };
    assert_eq!(judge(&[0, 1, 2, 3, 4]), []);
    // Dropped.
    assert_eq!(
        judge(&[1, 2, 3, 4]),
        [Violation::NotHeld { key: a(), given: text("3") }],
        "reported once; the rest follows from what was told"
    );
    assert_eq!(
        judge(&[0, 1, 3, 4]),
        [Violation::Skipped { key: a(), held: Some(text("3")), expected: text("4"), given: text("5") }]
    );
    assert_eq!(judge(&[0, 2, 3, 4]), [Violation::WrongOld { key: a(), held: text("2"), old: text("3") }]);
    assert_eq!(judge(&[0, 1, 2, 4]), [Violation::AddedTwice { key: a(), held: text("4"), given: text("6") }]);
    assert_eq!(judge(&[0, 1, 2, 3]), [Violation::Missing { key: a(), truth: text("6") }]);
    assert_eq!(
        judge(&[0, 1, 2]),
        [Violation::Stale { key: a(), held: text("4"), truth: text("6") }],
        "neither the deletion nor the new object"
    );
    assert_eq!(judge(&[]), [Violation::Missing { key: a(), truth: text("6") }]);
    // Doubled.
    assert_eq!(judge(&[0, 0, 1, 2, 3, 4])[0], Violation::AddedTwice { key: a(), held: text("2"), given: text("2") });
    assert_eq!(judge(&[0, 1, 2, 3, 3, 4])[0], Violation::NotHeld { key: a(), given: text("5") });
    // Out of order, brought back to life.
    assert_eq!(judge(&[0, 2, 1, 3, 4])[0], Violation::WrongOld { key: a(), held: text("2"), old: text("3") });
    assert_eq!(judge(&[0, 1, 2, 3, 0])[0], Violation::Backwards { key: a(), held: text("5"), given: text("2") });
    assert_eq!(judge(&[0, 1, 2, 3, 0]).last(), Some(&Violation::Stale { key: a(), held: text("2"), truth: text("6") }));
}

#[test]
fn an_update_from_a_state_the_listener_was_not_given_is_found() {
    let (_clock, server, told) = life_of_a_pod();
    let (Change::Added(first), Change::Updated { new: second, .. }) = (&told[0].change, &told[1].change) else {
        panic!("an addition and an update")
    };
    let update = |old: &Object<Pod>, new: &Object<Pod>| Event {
        cause: Cause::Watch,
        change: Change::Updated { old: old.clone(), new: new.clone() },
    };
    let found = judged(&server, &Scope::default(), &[told[0].clone(), update(second, second)]);
    assert_eq!(found[0], Violation::WrongOld { key: key("a"), held: "2".to_owned(), old: "3".to_owned() });
    let found = judged(&server, &Scope::default(), &[told[0].clone(), update(first, first)]);
    assert_eq!(found[0], Violation::Backwards { key: key("a"), held: "2".to_owned(), given: "2".to_owned() });
    let missed = |last: &Object<Pod>| Event {
        cause: Cause::Watch,
        change: Change::Deleted(Deleted::Missed { key: key("a"), last_known: Some(last.clone()) }),
    };
    let found = judged(&server, &Scope::default(), &[&told[..3], &[missed(first)]].concat());
    assert_eq!(found[0], Violation::WrongOld { key: key("a"), held: "4".to_owned(), old: "2".to_owned() });
}

#[test]
fn what_never_existed_and_wrong_values_are_found() {
    let (_clock, server, told) = life_of_a_pod();
    let Change::Added(first) = &told[0].change else { panic!("an addition") };
    let add = |change: &dyn Fn(&mut Pod)| {
        let mut other = Pod::clone(first);
        change(&mut other);
        let key = ObjectKey::new(&other.namespace, &other.name).unwrap();
        let event = Event { cause: Cause::Watch, change: Change::Added(object(other)) };
        (key, judged(&server, &Scope::default(), &[event])[0].clone())
    };
    for change in
        [|p: &mut Pod| p.version = "77".to_owned(), |p: &mut Pod| p.uid = "x".to_owned(), |p: &mut Pod| p.name = "b".to_owned()]
    {
        let (key, violation) = add(&change);
        assert!(matches!(&violation, Violation::Unknown { key: k, .. } if *k == key), "{violation:?}");
    }
    let (key, violation) = add(&|p| p.node = "elsewhere".to_owned());
    assert_eq!(violation, Violation::WrongValue { key, given: "2".to_owned() });
}

#[test]
fn relists_may_jump_but_only_to_what_a_list_showed() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    let mut follower = Follower::new(&server, Scope::default());
    server.create(pod("a")).unwrap();
    follower.follow();
    let second = server.update(pod("a").on_node("n1")).unwrap();
    server.update(pod("a").on_node("n2")).unwrap();
    server.trim();
    follower.follow();
    assert_eq!(judged(&server, &Scope::default(), &follower.told), []);
    let mut told = follower.told.clone();
    let Change::Updated { old, .. } = &told[1].change else { panic!("an update by relist") };
    told[1] = Event { cause: Cause::Relist, change: Change::Updated { old: old.clone(), new: second } };
    assert_eq!(judged(&server, &Scope::default(), &told)[0], Violation::NotListed { key: key("a"), given: "3".to_owned() });
    told[1] = Event { cause: Cause::Watch, ..follower.told[1].clone() };
    assert!(matches!(judged(&server, &Scope::default(), &told)[0], Violation::Skipped { .. }), "a watch does not jump");
    let gone = Deleted::Missed { key: key("a"), last_known: None };
    told[1] = Event { cause: Cause::Relist, change: Change::Deleted(gone) };
    assert_eq!(judged(&server, &Scope::default(), &told)[0], Violation::Unknown { key: key("a"), given: String::new() });
    told[1] = Event { cause: Cause::Initial, ..follower.told[1].clone() };
    assert_eq!(judged(&server, &Scope::default(), &told)[0], Violation::NotInitial { key: key("a"), given: "4".to_owned() });
}

/// Between two streams an object may come and go unseen, when a list was answered meanwhile; within one it may not.
#[test]
fn a_life_between_two_streams_may_be_unseen() {
    for relist in [true, false] {
        let clock = ManualClock::new();
        let server = Server::new(&clock);
        server.create(pod("b")).unwrap();
        let mut follower = Follower::new(&server, Scope::default());
        follower.follow();
        // This event says that the listener had joined by now.
        server.create(pod("c")).unwrap();
        follower.follow();
        server.create(pod("a")).unwrap();
        server.delete::<Pod>(key("a")).unwrap();
        if relist {
            follower.list();
        }
        follower.stream = None;
        follower.version = server.version();
        server.create(pod("a")).unwrap();
        follower.follow();
        assert_eq!(follower.told.len(), 3);
        let found = judged(&server, &Scope::default(), &follower.told);
        let skipped = Violation::Skipped { key: key("a"), held: None, expected: "4".to_owned(), given: "6".to_owned() };
        assert_eq!(found, if relist { vec![] } else { vec![skipped] });
        // To a listener that joined only now it would be right.
        assert_eq!(judged(&server, &Scope::default(), &late(&follower.told, 2)), []);
    }
}

#[test]
fn what_could_not_be_decoded_can_be_excused() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    let mut follower = Follower::new(&server, Scope::default());
    follower.follow();
    server.faults([Fault::garble(2)]);
    for n in 1..=3 {
        let _created = server.create(pod("a"));
        server.edit::<Pod>(key("a"), |p| p.generation = n).unwrap();
    }
    follower.follow();
    let strict = judged(&server, &Scope::default(), &follower.told);
    assert!(matches!(strict[..], [Violation::Skipped { .. }]), "{strict:?}");
    let checker = StreamChecker::<Pod>::new(&server);
    checker.excuse(&key("a"), "3");
    for event in &follower.told {
        checker.clone().observe(event).unwrap();
    }
    checker.finish(&server.all()).unwrap();
}

/// After a restore versions are given a second time: the checker goes by the order of changes.
#[test]
fn a_restored_backup_is_followed() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    let mut follower = Follower::new(&server, Scope::default());
    server.create(pod("a")).unwrap();
    follower.follow();
    let backup = server.version();
    server.update(pod("a").on_node("n1")).unwrap();
    server.create(pod("b")).unwrap();
    follower.follow();
    assert!(server.restore(&backup));
    server.create(pod("c")).unwrap();
    follower.list();
    follower.stream = None;
    server.update(pod("a").on_node("n2")).unwrap();
    follower.follow();
    assert_eq!(follower.told.len(), 7);
    assert_eq!(judged(&server, &Scope::default(), &follower.told), []);
}
