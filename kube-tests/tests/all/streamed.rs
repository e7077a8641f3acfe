//! The initial state as the beginning of a watch, where the server can and where it cannot.

use crate::world::{World, two_pods};
use informer::{
    reflector::{During, InitialState, ReflectorEvent},
    source::SourceErrorKind,
};
use kube_tests::server::{Fault, Inject, On, Server, line, status};
use serde_json::{Value, json};

fn world(server: Server) -> World {
    World::with(server, |b| b.initial(InitialState::Streamed)).start()
}

#[test]
fn a_state_is_streamed_and_followed_without_a_list() {
    let mut world = world(two_pods()).watching();
    world.agrees("the state");
    world.server.put_named("pods", "ns", "c", json!({}));
    world.server.delete("pods", "ns", "a");
    world.agrees("what follows");
    world.asked("one request", &["streamed"]);
    // What breaks is resumed.
    world.server.inject(Inject::Cut);
    world.sit_out();
    world.asked("a resume", &["streamed", "watch 104"]);
    world.end("streamed");
}

#[test]
fn a_server_that_knows_no_streamed_states_is_asked_for_lists_from_then_on() {
    let server = two_pods();
    server.streamed_lists(false);
    let mut world = world(server);
    let failure = world.sit_out();
    assert_eq!((failure.during, failure.source()), (During::List, &SourceErrorKind::WatchListUnsupported));
    assert!(failure.wait.is_zero(), "{failure:?}");
    world.asked("a list", &["streamed", "list any", "watch 102"]);
    world.agrees("a list");
    // And not asked again for what it does not know.
    let gone = line("ERROR", &status(410, "Expired", "too old", Value::Null));
    world.server.wait("a watch", |s| s.open_watches() == 1);
    world.server.inject(Inject::Line(gone));
    world.sit_out();
    world.asked("a list again", &["streamed", "list any", "watch 102", "list >=102", "watch 102"]);
    world.end("unsupported");
}

#[test]
fn a_bad_selector_is_no_missing_feature() {
    let server = two_pods();
    server.fault(On::StreamedList, Fault::status(400, "BadRequest", "unable to parse requirement", Value::Null));
    let mut world = world(server);
    let failure = world.sit_out();
    assert!(matches!(failure.source(), SourceErrorKind::Server { code: 400, .. }), "{failure:?}");
    world.asked("the same again", &["streamed", "streamed"]);
    world.end("a bad selector");
}

#[test]
fn a_streamed_state_that_breaks_is_asked_for_again_and_leaves_the_old_one() {
    let server = two_pods();
    let first = line("ADDED", &json!({"metadata": {"namespace": "ns", "name": "half", "resourceVersion": "7"}}));
    server.fault(On::StreamedList, Fault::Lines(vec![first]));
    let mut world = world(server);
    world.sit_out();
    world.asked("again", &["streamed", "streamed"]);
    world.agrees("the whole state");
    let halves = world.told.all().iter().filter(|e| matches!(e, ReflectorEvent::Listed { .. })).count();
    assert_eq!(halves, 1, "half a state is none");
    world.end("half a state");
}

#[test]
fn a_version_that_the_server_has_not_reached_is_told_in_the_stream() {
    let server = two_pods();
    let mut world = world(server).watching();
    world.agrees("before");
    // A backup is restored, and the watch breaks.
    world.server.restore(50);
    let gone = line("ERROR", &status(410, "Expired", "too old", Value::Null));
    world.server.fault(On::Watch, Fault::Lines(vec![gone]));
    let mut kinds = Vec::new();
    while kinds.last() != Some(&SourceErrorKind::TooLargeVersion { retry_after: Some(std::time::Duration::from_secs(1)) }) {
        kinds.push(world.sit_out().source().clone());
        assert!(kinds.len() < 5, "{kinds:?}");
    }
    world.agrees("the new era");
    let eras = world.told.all().iter().filter(|e| matches!(e, ReflectorEvent::Era { .. })).count();
    assert_eq!(eras, 1);
    world.end("a restored backup");
}
