//! What comes in: read once, transformed once, shared where it can be; and V10, objects that cannot be had.

use super::{script::*, *};
use crate::{
    flow::{Meta, Object},
    source::SourceErrorKind as Kind,
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
    assert_eq!(w.given(), ["all@10 a@1", "~a@11", "b@12", "b@13", "~a@14"]);
    assert_eq!(w.reflector.health().stale_objects, 2);
    assert_eq!(skipped(&w), ["Some(\"bad\") Some(\"12\") bad is bad", "Some(\"c\") Some(\"13\") cannot be read"]);
    assert_eq!(w.asked().last().unwrap(), "0 watch 14");
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn v10_an_undecodable_object_of_unknown_version_moves_nothing() {
    let broken = Frame::Event(crate::source::WatchEvent::Undecodable(crate::source::Undecodable {
        key: Some("c".parse().unwrap()),
        version: None,
        why: "cannot be read".into(),
    }));
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
    let scope = crate::source::Scope { namespace: Some("ns".into()), labels: Some("a=b".into()), fields: None };
    let script = Script::new().scoped(scope.clone()).list("10: > t").list("10:").watch_breaks("", Kind::Expired).list("11:");
    let mut w = World::start_with(script, Recorder::default(), |b| b.scope(scope));
    assert_eq!(w.asked().len(), 5);
    assert_eq!(w.stop(), Ok(()));
}
