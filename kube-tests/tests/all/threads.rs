//! One thread waits for the sockets of everybody.

use crate::world::{pods, two_pods};
use informer::{
    informer::SharedInformer,
    kube::{Io, KubeSource},
    sync::{Clock, Stop, Synced},
};
use k8s_openapi::api::core::v1::Pod;
use kube_tests::server::{PATIENCE, Server};
use serde_json::json;
use std::time::Duration;

/// Names of the threads of this process.
fn threads() -> Vec<String> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let names = tasks.flatten().map(|t| std::fs::read_to_string(t.path().join("comm")).unwrap_or_default());
    names.map(|n| n.trim().to_owned()).collect()
}

#[test]
fn twenty_informers_share_one_thread_for_the_network() {
    let server = Server::plain();
    for i in 0..50 {
        server.put_named("pods", "ns", &format!("p{i}"), json!({}));
    }
    let io = Io::shared().unwrap();
    let client = io.client(server.config()).unwrap();
    let (clock, stop) = (Clock::real(), Stop::new());
    let informers: Vec<_> = (0..20)
        .map(|i| {
            let source = KubeSource::<Pod>::new(&io, client.clone());
            SharedInformer::builder(source).name(format!("i{i}")).clock(&clock).build().unwrap()
        })
        .collect();
    let handles: Vec<_> = informers.iter().map(|i| i.spawn(&stop).unwrap()).collect();
    for informer in &informers {
        informer.wait_synced(PATIENCE.into()).unwrap();
    }
    let network = threads().iter().filter(|n| *n == "kube-io").count();
    assert_eq!(network, usize::from(cfg!(target_os = "linux")), "{:?}", threads());
    // One of each informer.
    assert_eq!(clock.threads().len(), 20, "{:?}", clock.threads());
    server.wait("twenty watches", |s| s.open_watches() == 20);
    for i in 0..200 {
        server.put_named("pods", "ns", &format!("p{}", i % 70), json!({"i": i.to_string()}));
    }
    let truth = server.truth("pods");
    for informer in &informers {
        server.wait("agreement", |_| informer.store().len() == truth.len() && informer.store().version() == "350");
    }
    stop.stop();
    for handle in handles {
        handle.join().unwrap();
    }
    assert!(clock.threads().is_empty());
    server.wait("no watch is left", |s| s.open_watches() == 0);
}

/// What else there is of kube is used from plain threads.
#[test]
fn a_request_of_kubes_own_is_waited_for_on_any_thread() {
    let server = two_pods();
    let io = Io::shared().unwrap();
    let api = kube::Api::<Pod>::namespaced(io.client(server.config()).unwrap(), "ns");
    let pod = io.block_on(api.get("a")).unwrap();
    assert_eq!(pod.metadata.resource_version.as_deref(), Some("101"));
    let error = io.block_on(api.get("none")).unwrap_err();
    assert!(error.to_string().contains("no such object"), "{error}");
}

/// A program with a runtime of its own keeps it; informers have their threads beside it.
#[test]
fn an_informer_runs_beside_a_runtime_of_the_programs_own() {
    let server = two_pods();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let client = {
        let _inside = runtime.enter();
        let mut config = server.config();
        config.default_retry = false;
        kube::Client::try_from(config).unwrap()
    };
    let io = Io::shared().unwrap();
    let pods = SharedInformer::builder(KubeSource::<Pod>::new(&io, client)).build().unwrap();
    let stop = Stop::new();
    let running = pods.spawn(&stop).unwrap();
    let seen = runtime.block_on(async {
        let pods = pods.clone();
        tokio::task::spawn_blocking(move || {
            pods.wait_synced(PATIENCE.into()).unwrap();
            pods.store().len()
        })
        .await
        .unwrap()
    });
    assert_eq!(seen, 2);
    server.wait("a watch", |s| s.open_watches() == 1);
    // The client's worker lives there. What is open stays open; what is asked next says what is wrong.
    runtime.shutdown_timeout(Duration::from_secs(5));
    server.delete("pods", "ns", "a");
    server.wait("the open watch goes on", |_| pods.store().len() == 1);
    server.cut_connections();
    server.wait("it is told", |_| {
        pods.health().last_error.is_some_and(|e| e.message.contains("the runtime on which the client was made has ended"))
    });
    stop.stop();
    running.join().unwrap();
}

#[test]
fn two_sources_of_one_client_do_not_wait_for_each_other() {
    let server = two_pods();
    let (one, two) = (pods(&server), pods(&server));
    server.fault(kube_tests::server::On::List, kube_tests::server::Fault::Silent);
    let stop = Stop::new();
    let stopping = stop.clone();
    let stuck = std::thread::spawn(move || {
        let params = informer::source::ListParams {
            version: informer::source::VersionMatch::Any,
            limit: None,
            continue_token: None,
            scope: informer::source::Scope::default(),
        };
        informer::source::ListerWatcher::list(&one, &stopping, &params, &mut |_| std::ops::ControlFlow::Continue(())).is_err()
    });
    server.wait("one is stuck", |s| s.asked().len() == 1);
    assert_eq!(crate::errors::list(&two, informer::source::VersionMatch::Any).unwrap(), "102");
    stop.stop();
    assert!(stuck.join().unwrap());
}
