//! What comes in: read once, transformed once, shared where it can be; and objects that cannot be had.

use super::{script::*, *};
use crate::{
    flow::{Meta, Object},
    source::{Scope, Shard, SourceErrorKind as Kind, Undecodable, WatchEvent},
    sync::atomic::{AtomicUsize, Ordering},
};

fn skipped(w: &World) -> Vec<String> {
    w.told(|e| matches!(e, ReflectorEvent::Skipped { .. }))
        .into_iter()
        .map(|e| match e {
            ReflectorEvent::Skipped { key, version, why } => format!("{key:?} {version:?} {why}"),
            _ => String::new(),
        })
        .collect()
}

#[test]
fn b72_each_object_received_is_transformed_once_whatever_brought_it_and_before_the_sink_sees_it() {
    let (clock, calls) = (ManualClock::new(), Arc::new(AtomicUsize::new(0)));
    let script = Script::new().list("9: a@1 > t").list("9: b@2").watch_breaks("+c@10 ~a@11 -c@12 b@13", Kind::Expired);
    let script = Arc::new(script.list("20: a@11 b@2").on(&clock));
    let (sink, counted) = (Arc::new(Recorder::default()), calls.clone());
    let strip = move |mut item: Item| {
        counted.fetch_add(1, Ordering::Relaxed);
        item.version = "stripped".into();
        Ok::<_, String>(item)
    };
    let reflector = Arc::new(Reflector::builder_with(script, strip, sink.clone()).clock(&clock).relist_spread(secs(0.0)).build());
    let (stop, running) = (Stop::new(), reflector.clone());
    let stopping = stop.clone();
    let thread = spawn(&clock, "reflector", move || running.run(&stopping)).unwrap();
    clock.settle();
    stop.stop();
    assert_eq!(thread.join(), Ok(Ok(())));
    assert_eq!(calls.load(Ordering::Relaxed), 7, "a, b; c, a, c; a, b");
    let objects = sink.objects.lock();
    assert!(objects.len() == 6 && objects.iter().all(|o| o.version == "stripped"));
    assert_eq!(Object::version(&objects[0]), "1", "the version is read before the transform");
}

#[test]
fn a_reflector_of_the_sources_own_objects_needs_no_transform() {
    let clock = ManualClock::new();
    let (script, sink) = (Arc::new(Script::new().list("10: bad@1").on(&clock)), Arc::new(Recorder::default()));
    let reflector = Reflector::builder(script, sink.clone()).clock(&clock).name("items").build();
    assert_eq!(format!("{reflector:?}"), "Reflector { name: \"items\", last_version: \"\", .. }");
    let stop = Stop::new();
    let stopping = stop.clone();
    let thread = spawn(&clock, "reflector", move || reflector.run(&stopping)).unwrap();
    clock.settle();
    stop.stop();
    assert_eq!(thread.join(), Ok(Ok(())));
    assert_eq!(*sink.given.lock(), ["all@10 bad@1"]);
}

#[test]
fn v10_a_listed_object_that_fails_is_kept_counted_and_told_and_the_rest_is_applied() {
    let mut w = World::start(Script::new().list("10: a@1 bad@2 ?c@3 b@4"));
    assert_eq!(w.given(), ["all@10 a@1 b@4 keep bad keep c"]);
    assert_eq!(w.reflector.health().stale_objects, 2);
    assert_eq!(skipped(&w), ["Some(\"bad\") Some(\"2\") bad is bad", "Some(\"c\") Some(\"3\") cannot be read"]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn v10_a_listed_object_of_unknown_name_makes_the_list_incomplete() {
    // A name with a slash makes no key.
    let mut w = World::start(Script::new().list("10: a@1 ?").watch_breaks("", Kind::Expired).list("11: a@1 x/y@2"));
    assert_eq!(w.given(), ["all@10 a@1 incomplete", "all@11 a@1 incomplete"]);
    let told = skipped(&w);
    assert_eq!(told[0], "None None cannot be read");
    assert!(told[1].starts_with("None Some(\"2\") neither namespace nor name"), "{told:?}");
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn v10_a_watched_object_that_fails_is_kept_and_the_position_moves_on() {
    let script = Script::new().list("10: a@1").watch_breaks("~a@11 ~bad@12 +?c@13 ~a@14", Kind::Transport);
    let mut w = World::start(script);
    assert_eq!(w.given(), ["all@10 a@1", "~a@11", "b@13", "~a@14"]);
    assert_eq!(w.reflector.health().stale_objects, 2);
    assert_eq!(skipped(&w), ["Some(\"bad\") Some(\"12\") bad is bad", "Some(\"c\") Some(\"13\") cannot be read"]);
    assert_eq!(w.asked().last().unwrap(), "0 watch 14");
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn v10_an_undecodable_object_of_unknown_version_moves_nothing() {
    let object = Undecodable { key: Some("c".parse().unwrap()), version: None, why: "cannot be read".into() };
    let broken = Frame::Event(WatchEvent::Undecodable { object, deleted: false });
    let mut w = World::start(Script::new().list("10: a@1").frames(vec![broken, frame(".")]));
    assert_eq!(w.reflector.last_version(), "10");
    assert_eq!(w.reflector.health().stale_objects, 1);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn v10_a_watched_deletion_is_never_refused() {
    let mut w = World::start(Script::new().list("10: a@1 bad@2").watch("-bad@11"));
    assert_eq!(w.given(), ["all@10 a@1 keep bad", "-bad missed None", "b@11"]);
    assert_eq!(w.reflector.last_version(), "11");
    assert_eq!(w.reflector.health().stale_objects, 0, "what is gone is not stale");
    assert_eq!(skipped(&w).len(), 2, "told all the same");
    assert_eq!(w.stop(), Ok(()));
}

/// It stayed until the next list, as if it had only changed.
#[test]
fn v10_a_watched_deletion_of_an_object_that_cannot_be_read_is_a_deletion() {
    let mut w = World::start(Script::new().list("10: a@1 c@2").watch("~?c@11 -?c@12 ~a@13"));
    assert_eq!(w.given(), ["all@10 a@1 c@2", "b@11", "-c missed None", "b@12", "~a@13"]);
    assert_eq!((w.reflector.last_version().as_str(), w.reflector.health().stale_objects), ("13", 0));
    assert_eq!(w.stop(), Ok(()));
    let mut w = World::start(Script::new().list("10: a@1").watch("-?"));
    assert!(w.story().last().unwrap().contains("! Stream Unreadable: InitialState"), "which one is gone nobody knows");
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn v10_an_object_is_stale_until_it_is_read_again() {
    let script = Script::new().list("10: a@1 ?c@2").watch_breaks("/1 ~c@11 /2 ~?a@12 /3", Kind::Expired).list("20: a@12 ?c@15");
    let mut w = World::start(script);
    let stale: Vec<_> = (0..4)
        .map(|_| {
            let n = w.reflector.health().stale_objects;
            w.advance(1.0);
            n
        })
        .collect();
    assert_eq!(stale, [1, 0, 1, 1]);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn v10_a_list_says_anew_which_objects_are_stale() {
    let script =
        Script::new().list("10: a@1 ?c@2").watch_breaks("/1 ~?a@12 /2", Kind::Expired).list("20: a@12 ? ?d@9").watch("b@21");
    let mut w = World::start(script);
    w.advance(1.0);
    assert_eq!(w.reflector.health().stale_objects, 2);
    w.advance(1.0);
    assert_eq!((w.reflector.last_version().as_str(), w.reflector.health().stale_objects), ("21", 2), "d, and one without a name");
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn the_text_of_a_known_key_is_shared() {
    let known =
        Object::new(Meta { name: "a", version: "1", ..Meta::default() }, Item { name: "a".into(), version: "1".into() }).unwrap();
    let sink = Recorder::default();
    *sink.known.lock() = vec![known.clone()];
    let mut w = World::start_with(Script::new().list("10: a@1").watch("~a@11 +b@12"), sink, |b| b);
    let objects = std::mem::take(&mut *w.sink.objects.lock());
    let text = |o: &Object<Item>| Object::key(o).as_str().as_ptr();
    assert!(objects[..2].iter().all(|o| text(o) == text(&known)));
    assert_eq!(Object::key(&objects[2]).as_str(), "b");
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn every_request_carries_the_scope() {
    let scope = Scope { namespace: Some("ns".into()), labels: Some("a=b".into()), ..Scope::default() };
    let script = Script::new().scoped(scope.clone()).list("10: > t").list("10:").watch_breaks("", Kind::Expired).list("11:");
    let mut w = World::start_with(script, Recorder::default(), |b| b.scope(scope));
    assert_eq!(w.asked().len(), 5);
    assert_eq!(w.stop(), Ok(()));
}

fn part(index: u32) -> Scope {
    Scope { shard: Some(Shard::new(index, 2).unwrap()), ..Scope::default() }
}

fn owns(scope: &Scope, name: &str) -> bool {
    scope.shard.unwrap().owns("", name)
}

/// Lists and watches bring everything; the script's answers are written with all objects.
#[test]
fn an_object_of_another_shard_goes_no_further_than_its_name() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let all: Vec<String> = names.iter().enumerate().map(|(i, n)| format!("{n}@{}", i + 1)).collect();
    let changes: Vec<String> =
        names.iter().enumerate().flat_map(|(i, n)| [format!("~{n}@{}", 11 + 2 * i), format!("-{n}@{}", 12 + 2 * i)]).collect();
    let mut given = Vec::new();
    for index in 0..2 {
        let scope = part(index);
        let mine = |text: &&String| owns(&scope, text.trim_start_matches(['~', '-']).split('@').next().unwrap());
        let script = Script::new().scoped(scope.clone()).list(&format!("10: {}", all.join(" ")));
        let script = script.watch_breaks(&changes.join(" "), Kind::Expired).list("30: a@25 b@26 c@27 d@28 e@29 f@30");
        let mut w = World::start_with(script, Recorder::default(), |b| b.scope(scope.clone()));
        let listed: Vec<_> = all.iter().filter(mine).cloned().collect();
        let told: Vec<_> = w.given().into_iter().filter(|d| !d.starts_with('b')).collect();
        assert_eq!(told[0], format!("all@10 {}", listed.join(" ")));
        let watched: Vec<_> = changes.iter().filter(mine).cloned().collect();
        assert_eq!(told[1..told.len() - 1], watched);
        assert_eq!(w.asked()[2], "0 list >=22", "what others own moves the position too");
        assert_eq!(told.last().unwrap().matches('@').count(), 1 + listed.len());
        assert_eq!(w.stop(), Ok(()));
        given.push(listed);
    }
    let mut both = given.concat();
    both.sort();
    assert!(given.iter().all(|g| !g.is_empty()) && both == all, "each object in one of them: {given:?}");
}

#[test]
fn frames_of_another_shard_are_counted_and_not_transformed() {
    // Neither the failing transform nor what cannot be read matters there.
    let (scope, other) = (part(0), "bad");
    assert!(!owns(&scope, other));
    let many: Vec<String> = (0..600).map(|n| format!("~{other}@{}", 11 + n)).collect();
    let script = Script::new().scoped(scope.clone()).list(&format!("10: ?{other}@1 {other}@2"));
    let mut w = World::start_with(script.watch(&format!("{} -?{other}@700", many.join(" "))), Recorder::default(), |b| {
        b.scope(scope.clone())
    });
    assert_eq!(w.given(), ["all@10", "b@266", "b@522", "b@700"], "one bookmark for each batch");
    assert_eq!((w.reflector.last_version().as_str(), w.reflector.health().stale_objects), ("700", 0));
    assert_eq!(skipped(&w), [""; 0]);
    assert_eq!(w.stop(), Ok(()));
}
