//! Typed, dynamic, and metadata alone.

use crate::world::{World, two_pods};
use informer::{
    kube::{Io, KubeSource},
    sync::ManualClock,
};
use k8s_openapi::api::core::v1::Pod;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube_tests::server::{Server, line};
use serde_json::json;

fn widgets() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.dev", "v1", "Widget"), "widgets")
}

fn pods() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Pod"), "pods")
}

fn source<K: kube::Resource>(server: &Server, kind: K::DynamicType, clock: &ManualClock) -> KubeSource<K> {
    let io = Io::shared().unwrap();
    let client = io.client(server.config()).unwrap();
    KubeSource::with(&io, client, kind).clock(clock)
}

#[test]
fn a_typed_object_is_whole() {
    let mut world = World::new(two_pods()).start().watching();
    world.agrees("typed");
    let pod = world.informer.store().get(&("ns", "a")).unwrap();
    assert_eq!(pod.spec.as_ref().unwrap().node_name.as_deref(), Some("n1"));
    assert_eq!(pod.metadata.labels.as_ref().unwrap()["app"], "x");
    assert!(informer::flow::Object::uid(&pod).to_string().starts_with("00000000-"));
    world.end("typed");
}

#[test]
fn a_dynamic_object_is_whole_and_says_its_kind() {
    for (plural, kind) in [("widgets", widgets()), ("pods", pods())] {
        let server = Server::plain();
        server.put(plural, json!({"metadata": {"namespace": "ns", "name": "a"}, "spec": {"size": 3}}));
        let clock = ManualClock::new();
        let source = source::<DynamicObject>(&server, kind.clone(), &clock);
        let mut world = World::over(server, plural, source, clock, |b| b).start().watching();
        world.server.put(plural, json!({"metadata": {"namespace": "ns", "name": "b"}, "spec": {"size": 4}}));
        world.agrees(plural);
        for (name, size) in [("a", 3), ("b", 4)] {
            let object = world.informer.store().get(&("ns", name)).unwrap();
            assert_eq!(object.data["spec"]["size"], size);
            // Servers leave it out in lists of their own kinds, and in nothing else.
            let types = object.types.as_ref().expect("its kind");
            assert_eq!((&*types.api_version, &*types.kind), (&*kind.api_version, &*kind.kind), "{name}");
        }
        world.end(plural);
    }
}

#[test]
fn metadata_alone_is_asked_for_and_kept() {
    let clock = ManualClock::new();
    let server = two_pods();
    let source = source::<PartialObjectMeta<Pod>>(&server, (), &clock);
    let mut world = World::over(server, "pods", source, clock, |b| b).start().watching();
    world.server.put_named("pods", "ns", "c", json!({"app": "z"}));
    world.agrees("metadata");
    let accepts: Vec<_> = world.server.requests().iter().map(|r| r.headers["accept"].clone()).collect();
    assert!(accepts[0].contains("as=PartialObjectMetadataList;"), "{accepts:?}");
    assert!(accepts[1].contains("as=PartialObjectMetadata;"), "{accepts:?}");
    let object = world.informer.store().get(&("ns", "c")).unwrap();
    assert_eq!(object.metadata.labels.as_ref().unwrap()["app"], "z");
    world.end("metadata");
}

#[test]
fn metadata_alone_of_a_kind_known_at_run_time() {
    let clock = ManualClock::new();
    let server = Server::plain();
    server.put_named("widgets", "ns", "a", json!({}));
    let source = source::<PartialObjectMeta<DynamicObject>>(&server, widgets(), &clock);
    let mut world = World::over(server, "widgets", source, clock, |b| b).start().watching();
    world.server.put_named("widgets", "ns", "b", json!({}));
    world.agrees("metadata");
    assert_eq!(world.server.requests()[0].path, "/apis/example.dev/v1/widgets");
    world.end("metadata");
}

#[test]
fn objects_without_a_namespace_have_keys_without_one() {
    let clock = ManualClock::new();
    let server = Server::plain();
    server.put("widgets", json!({"metadata": {"name": "a"}}));
    let source = source::<DynamicObject>(&server, widgets(), &clock);
    let mut world = World::over(server, "widgets", source, clock, |b| b).start().watching();
    world.agrees("cluster scope");
    assert_eq!(world.stored().into_keys().collect::<Vec<_>>(), ["a"]);
    // A frame longer than any that a socket hands over at once.
    let long = json!({"metadata": {"name": "a", "resourceVersion": "200"}, "data": "x".repeat(3 << 20)});
    world.server.inject(kube_tests::server::Inject::Line(line("MODIFIED", &long)));
    world.server.wait("a long frame", |_| world.stored()["a"] == "200");
    world.end("cluster scope");
}
