//! Stop reaches an informer from another thread, whatever it waits for.

use crate::world::{World, pods, two_pods};
use informer::{
    reflector::InitialState,
    source::{ListerWatcher, Next, Scope, WatchParams},
    sync::{Clock, Deadline, Stop, Wake},
};
use kube_tests::server::{Fault, On, PATIENCE};
use std::{net::TcpListener, sync::mpsc, thread, time::Duration};

/// What is waited for, what makes it wait, and how many requests there are by then.
type Phase = (&'static str, Option<(On, Fault)>, usize);

#[test]
fn stop_ends_each_wait_of_a_request() {
    let phases: [Phase; 6] = [
        ("a list that is not answered", Some((On::List, Fault::Silent)), 1),
        ("half a list", Some((On::List, Fault::StalledBody)), 1),
        ("a later page", Some((On::Page, Fault::Silent)), 2),
        ("a watch that is not opened", Some((On::Watch, Fault::Silent)), 3),
        ("an open watch", None, 3),
        ("a backoff", Some((On::Watch, Fault::text(500, &[], "it broke"))), 3),
    ];
    for (what, fault, requests) in phases {
        let server = two_pods();
        if let Some((on, fault)) = fault {
            server.fault(on, fault);
        }
        let mut world = World::with(server, |b| b.initial(InitialState::MostRecent).page_size(1)).start();
        world.server.wait(what, |s| s.asked().len() == requests);
        world.clock.settle();
        world.end(what);
        world.server.wait("nothing is left open", |s| s.open_watches() == 0);
    }
}

/// Somebody accepts the connection and says nothing, not even TLS.
#[test]
fn stop_ends_a_handshake() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let io = informer::kube::Io::shared().unwrap();
    let client = io.client(kube::Config::new(url.parse().unwrap())).unwrap();
    let source = informer::kube::KubeSource::<k8s_openapi::api::core::v1::Pod>::new(&io, client);
    let stop = Stop::new();
    let stopping = stop.clone();
    let (ended, end) = mpsc::channel();
    let asking = thread::spawn(move || {
        let params = WatchParams {
            from: "1".into(),
            timeout: Duration::from_secs(60),
            bookmarks: true,
            initial_events: false,
            scope: Scope::default(),
        };
        ended.send(source.watch(&stopping, &params).map(drop).map_err(|e| e.kind().clone())).unwrap();
    });
    let held = listener.accept().unwrap();
    stop.stop();
    let end = end.recv_timeout(PATIENCE).expect("it ends");
    assert_eq!(end, Err(informer::source::SourceErrorKind::Stopped));
    asking.join().unwrap();
    drop(held);
}

#[test]
fn a_nudge_and_a_deadline_interrupt_a_stream_and_leave_it_open() {
    let server = two_pods();
    let source = pods(&server);
    let params = WatchParams {
        from: "102".into(),
        timeout: Duration::from_secs(60),
        bookmarks: true,
        initial_events: false,
        scope: Scope::default(),
    };
    let mut stream = source.watch(&Stop::new(), &params).unwrap();
    let wake = Wake::new(&Stop::new(), &Clock::real());
    let nudging = wake.clone();
    let nudger = thread::spawn(move || nudging.nudge());
    assert!(matches!(stream.next(&wake, PATIENCE.into()), Next::Woken));
    nudger.join().unwrap();
    assert!(matches!(stream.next(&wake, Deadline::from(Duration::ZERO)), Next::Deadline));
    server.put_named("pods", "ns", "c", serde_json::json!({}));
    assert!(matches!(stream.next(&wake, PATIENCE.into()), Next::Event(_)));
}

#[test]
fn stopped_before_it_runs_it_asks_for_nothing() {
    let server = two_pods();
    let source = pods(&server);
    let stop = Stop::new();
    stop.stop();
    let params = WatchParams {
        from: "102".into(),
        timeout: Duration::from_secs(60),
        bookmarks: true,
        initial_events: false,
        scope: Scope::default(),
    };
    assert!(source.watch(&stop, &params).is_err());
    assert!(server.asked().is_empty());
}
