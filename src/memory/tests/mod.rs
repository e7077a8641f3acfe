//! What the embedded server is held to, by topic. Where the real server was asked, the test says so with the recording
//! it repeats, or that it is as there.

mod behind;
mod check;
mod faults;
mod life;
mod lists;
mod streamed;
mod watches;

use super::{Phase, Pod, Resource, Server};
use crate::{
    flow::{Meta, Object, ObjectKey},
    source::{
        ListEnd, ListParams, ListerWatcher, Next, Scope, SourceError, SourceErrorKind, VersionMatch, WatchEvent, WatchParams,
        WatchStream,
    },
    sync::{Clock, ManualClock, Stop},
};
use std::{ops::ControlFlow, time::Duration};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn pod(name: &str) -> Pod {
    Pod::new("ns", name)
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name).unwrap()
}

fn labels(selector: &str) -> Scope {
    Scope { labels: Some(selector.to_owned()), ..Scope::default() }
}

fn list_params(version: VersionMatch) -> ListParams {
    ListParams { version, limit: None, continue_token: None, scope: Scope::default() }
}

fn page(limit: u32, token: Option<String>) -> ListParams {
    ListParams { limit: Some(limit), continue_token: token, ..list_params(VersionMatch::MostRecent) }
}

fn from(version: &str) -> WatchParams {
    WatchParams { from: version.to_owned(), timeout: secs(300), bookmarks: false, initial_events: false, scope: Scope::default() }
}

/// A second resource.
#[derive(Clone)]
struct Other(Pod);

impl Resource for Other {
    fn meta(&self) -> Meta<'_> {
        self.0.meta()
    }
    fn set_version(&mut self, version: &str) {
        self.0.set_version(version);
    }
    fn set_uid(&mut self, uid: &str) {
        self.0.set_uid(uid);
    }
}

/// A list made on this thread: its end, and `name@version` of each item.
fn list(server: &Server, params: &ListParams) -> Result<(ListEnd, Vec<String>), SourceError> {
    let mut items = Vec::new();
    let end = server.source::<Pod>().list(&Stop::new(), params, &mut |item| {
        items.push(match item {
            Ok(pod) => format!("{}@{}", pod.name, pod.version),
            Err(broken) => format!("?{}", broken.key.map(|k| k.to_string()).unwrap_or_default()),
        });
        ControlFlow::Continue(())
    })?;
    Ok((end, items))
}

fn list_kind(server: &Server, params: &ListParams) -> SourceErrorKind {
    list(server, params).expect_err("the list must fail").kind().clone()
}

fn watch(server: &Server, params: &WatchParams) -> Box<dyn WatchStream<Pod>> {
    server.source::<Pod>().watch(&Stop::new(), params).expect("the watch must open")
}

fn watch_kind(server: &Server, params: &WatchParams) -> SourceErrorKind {
    match server.source::<Pod>().watch(&Stop::new(), params) {
        Ok(_) => panic!("the watch must be refused"),
        Err(e) => e.kind().clone(),
    }
}

/// One answer of a stream as text: `+a@2`, `~a@3`, `-a@4`, `mark 5`, `all 5`, `?ns/a`, `-?ns/a`, `end`, `Expired`.
fn say(next: Next<Pod>) -> String {
    match next {
        Next::Event(WatchEvent::Added(p)) => format!("+{}@{}", p.name, p.version),
        Next::Event(WatchEvent::Modified(p)) => format!("~{}@{}", p.name, p.version),
        Next::Event(WatchEvent::Deleted(p)) => format!("-{}@{}", p.name, p.version),
        Next::Event(WatchEvent::Bookmark { version, initial_events_end: false }) => format!("mark {version}"),
        Next::Event(WatchEvent::Bookmark { version, initial_events_end: true }) => format!("all {version}"),
        Next::Event(WatchEvent::Undecodable { object, deleted }) => {
            format!("{}?{}", if deleted { "-" } else { "" }, object.key.map(|k| k.to_string()).unwrap_or_default())
        }
        Next::Failed(e) => format!("{:?}", e.kind()),
        Next::End => "end".to_owned(),
        Next::Deadline => "deadline".to_owned(),
        Next::Woken => "woken".to_owned(),
        Next::Stopped => "stopped".to_owned(),
    }
}

/// Everything that a stream has ready.
fn drain(stream: &mut Box<dyn WatchStream<Pod>>) -> Vec<String> {
    std::iter::from_fn(|| stream.ready()).map(say).collect()
}

fn version_of(o: &Object<Pod>) -> String {
    Object::version(o).to_string()
}

#[test]
fn writes_give_versions_of_one_counter_and_keep_the_uid_of_an_object() {
    let clock = ManualClock::new();
    let server = Server::builder(&clock).first_version(10).build();
    let a = server.create(pod("a")).unwrap();
    let b = server.create(pod("b")).unwrap();
    assert_eq!((version_of(&a), version_of(&b)), ("11".to_owned(), "12".to_owned()));
    assert_eq!((a.version.as_str(), a.uid.as_str()), ("11", Object::uid(&a).as_str()), "the value carries them as well");
    let a2 = server.update(pod("a").on_node("n")).unwrap();
    assert_eq!(version_of(&a2), "13");
    assert_eq!(Object::uid(&a2), Object::uid(&a));
    let gone = server.delete::<Pod>(key("a")).unwrap();
    assert_eq!((version_of(&gone), gone.node.as_str()), ("14".to_owned(), "n"), "the last state, with the deletion's version");
    let again = server.create(pod("a")).unwrap();
    assert_ne!(Object::uid(&again), Object::uid(&a).as_str());
    assert_eq!(again.uid.len(), 36);
    assert_eq!(server.version(), "15");
    let truth = server.all::<Pod>();
    assert_eq!(truth.version, "15");
    assert_eq!(truth.objects.iter().map(|o| o.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn writes_that_would_lose_something_are_refused() {
    use super::ServerError::{Conflict, Exists, Key, NotFound};
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    assert!(matches!(server.update(pod("a")), Err(NotFound { .. })));
    assert!(matches!(server.delete::<Pod>(key("a")), Err(NotFound { .. })));
    assert!(matches!(server.create(pod("")), Err(Key(_))));
    let old = server.create(pod("a")).unwrap();
    assert!(matches!(server.create(pod("a")), Err(Exists { .. })));
    server.update(pod("a").in_phase(Phase::Running)).unwrap();
    let stale = Pod::clone(&old).on_node("n");
    assert!(matches!(server.update(stale), Err(Conflict { .. })), "the version it was read at is not the newest");
    let mut other = pod("a");
    other.uid = "of another life".to_owned();
    assert!(matches!(server.update(other), Err(Conflict { .. })));
    let edited = server.edit::<Pod>(key("a"), |p| p.node = "n".to_owned()).unwrap();
    assert_eq!((edited.node.as_str(), edited.phase), ("n", Phase::Running));
}

/// Recording `configmaps-idle-bookmarks`: the update of cm-005 answers its old version 640, and no frame follows.
#[test]
fn an_update_that_changes_nothing_writes_nothing() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    let a = server.create(pod("a")).unwrap();
    let same = server.update(pod("a")).unwrap();
    assert_eq!(version_of(&same), version_of(&a));
    assert_eq!(server.version(), version_of(&a));
}

#[test]
fn a_panic_in_a_resource_fails_that_write_only() {
    #[derive(Clone)]
    struct Touchy(Pod);
    impl Resource for Touchy {
        fn meta(&self) -> Meta<'_> {
            self.0.meta()
        }
        fn set_version(&mut self, version: &str) {
            assert!(self.0.name != "bad", "will not be written");
            self.0.set_version(version);
        }
        fn set_uid(&mut self, uid: &str) {
            self.0.set_uid(uid);
        }
    }
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    assert!(matches!(server.create(Touchy(pod("bad"))), Err(super::ServerError::Panicked(_))));
    let good = server.create(Touchy(pod("good"))).unwrap();
    assert_eq!(Object::version(&good), "2", "the failed write used no version");
    crate::sync::call_out::assert_contained(&clock, &["will not be written"]);
}

#[test]
fn the_audit_log_keeps_what_requests_cannot_see_any_more() {
    let clock = ManualClock::new();
    let server = Server::builder(&clock).window(1).build();
    server.create(pod("a")).unwrap();
    server.update(pod("a").on_node("n")).unwrap();
    server.create(pod("b")).unwrap();
    server.delete::<Pod>(key("a")).unwrap();
    server.compact();
    server.trim();
    server.restart(super::Close::Cut);
    let audit = server.audit::<Pod>();
    let of_a: Vec<_> = audit.of(key("a")).map(|r| (r.version, r.op, version_of(&r.object))).collect();
    use super::Op::{Added, Deleted, Modified};
    assert_eq!(of_a, [(2, Added, "2".to_owned()), (3, Modified, "3".to_owned()), (5, Deleted, "5".to_owned())]);
    assert_eq!(audit.records.len(), 4);
}

#[test]
fn resources_share_the_counter_and_nothing_else() {
    let clock = ManualClock::new();
    let server = Server::new(&clock);
    let mut pods = watch(&server, &from("1"));
    server.create(Other(pod("a"))).unwrap();
    server.create(pod("a")).unwrap();
    assert_eq!(drain(&mut pods), ["+a@3"]);
    assert_eq!(server.all::<Other>().objects.len(), 1);
    let (end, _) = list(&server, &list_params(VersionMatch::MostRecent)).unwrap();
    server.create(Other(pod("b"))).unwrap();
    assert_eq!(end.version, "3");
    assert_eq!(list(&server, &list_params(VersionMatch::Any)).unwrap().0.version, "4", "a list says the server's version");
    let _: &Clock = server.clock();
}
