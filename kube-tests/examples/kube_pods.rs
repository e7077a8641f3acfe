//! The pods of a cluster, live: an informer with two indices and two handlers, a work queue and a controller, over
//! `Api<Pod>` and the cluster that `kubectl` would use. It only reads. At the end the copy is compared with a list.
//!
//! `cargo run -p kube-tests --example kube_pods -- [--namespace NS] [--seconds N] [--fake]`; with `--fake` the cluster is
//! a server in this process, whose watches are cut while somebody writes.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "an example is the user's code, on real time")]

use informer::{
    controller::{Action, Context, Controller, ReconcileError},
    flow::{Object, ObjectKey},
    informer::{InformerEvent, SharedInformer},
    kube::{Io, KubeSource},
    reflector::ReflectorEvent,
    sync::{Stop, Synced},
    workqueue::WorkQueue,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::ListParams};
use kube_tests::{
    args::Args,
    server::{Inject, Server},
};
use serde_json::json;
use std::{
    collections::BTreeMap,
    error::Error,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).unwrap_or("(none)")
}

/// Writes to the fake cluster and cuts its watches.
fn disturb(server: &Server, until: Instant) {
    let mut round = 0_u64;
    while Instant::now() < until {
        round += 1;
        let name = format!("pod-{}", round % 40);
        if round.is_multiple_of(7) && server.truth("pods").contains_key(&format!("default/{name}")) {
            server.delete("pods", "default", &name);
        } else {
            server.put_named("pods", "default", &name, json!({"round": round.to_string()}));
        }
        if round.is_multiple_of(50) {
            server.inject(Inject::Cut);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse()?;
    let fake = args.fake.then(Server::plain);
    let io = Io::shared()?;
    let config = match &fake {
        Some(server) => server.config(),
        None => io.infer()?,
    };
    let client = io.client(config)?;
    let api: Api<Pod> = match &args.namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };

    // ---- the river ---------------------------------------------------------------------------------------------------
    let lists = Arc::new(AtomicU64::new(0));
    let listed = lists.clone();
    let pods = SharedInformer::builder(KubeSource::of(&io, api.clone()))
        .name("pods")
        .index("namespace", |p: &Pod, emit: &mut dyn FnMut(String)| emit(p.metadata.namespace.clone().unwrap_or_default()))
        .index("node", |p: &Pod, emit: &mut dyn FnMut(String)| emit(node(p).to_owned()))
        .observe(move |event| match event {
            InformerEvent::Reflector(ReflectorEvent::Listed { .. }) => drop(listed.fetch_add(1, Ordering::Relaxed)),
            InformerEvent::Reflector(ReflectorEvent::Failed { message, wait, .. }) => {
                eprintln!("failed, going on in {wait:?}: {message}");
            }
            _ => {}
        })
        .build()?;
    let queue = WorkQueue::<ObjectKey>::builder().name("pods").build();
    let (keys, events) = (queue.clone(), Arc::new(AtomicU64::new(0)));
    let fast = pods.on(move |event| {
        keys.add(event.key().clone());
    })?;
    let told = events.clone();
    let slow = pods.on(move |_| {
        told.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(1));
    })?;

    // What a controller would act upon: here it only writes down how many pods each node has.
    let per_node = Arc::new(Mutex::new(BTreeMap::<String, usize>::new()));
    let (store, report) = (pods.store(), per_node.clone());
    let reconcile = move |key: &ObjectKey, _: &Context| {
        if let Some(pod) = store.get(key) {
            let here = store.by_index("node", node(&pod)).map_err(ReconcileError::terminal)?.len();
            report.lock().unwrap().insert(node(&pod).to_owned(), here);
        }
        Ok(Action::Done)
    };
    let synced: Arc<dyn Synced> = Arc::new(pods.clone());
    let controller = Controller::builder(queue, reconcile).name("nodes").workers(2).wait_for([synced]).build();

    let stop = Stop::new();
    let running = pods.spawn(&stop)?;
    let controlling = {
        let stop = stop.clone();
        thread::spawn(move || controller.run(&stop))
    };
    pods.wait_synced(Duration::from_secs(30).into())?;
    println!("synced: {} pods", pods.store().len());
    let until = Instant::now() + Duration::from_secs(args.seconds);
    match &fake {
        Some(server) => disturb(server, until),
        None => thread::sleep(until - Instant::now()),
    }

    // ---- the truth ---------------------------------------------------------------------------------------------------
    // In a cluster that lives the two are equal at some moment only, so it is looked for.
    let mut equal = false;
    for _ in 0..50 {
        let truth: BTreeMap<_, _> = io
            .block_on(api.list(&ListParams::default()))?
            .into_iter()
            .map(|p| (p.metadata.uid.unwrap_or_default(), p.metadata.resource_version.unwrap_or_default()))
            .collect();
        let ours: BTreeMap<_, _> =
            pods.store().snapshot().objects().map(|o| (Object::uid(o).to_string(), Object::version(o).to_string())).collect();
        equal = ours == truth;
        if equal {
            break;
        }
        thread::sleep(Duration::from_millis(200));
    }
    stop.stop();
    running.join()?;
    controlling.join().map_err(|_| "the controller's thread panicked")??;
    let (handled, lists) = (events.load(Ordering::Relaxed), lists.load(Ordering::Relaxed));
    println!("per node: {:?}", per_node.lock().unwrap());
    drop((fast, slow));
    println!("objects={} events={handled} lists={lists} equal={equal}", pods.store().len());
    if equal { Ok(()) } else { Err("the copy and the cluster never agreed".into()) }
}
