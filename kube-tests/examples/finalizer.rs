//! A small controller with a finalizer: it holds something outside of the cluster for each ConfigMap labelled
//! `informer.example/held`, and lets go of it before the ConfigMap is gone.
//!
//! `cargo run -p kube-tests --example finalizer -- --namespace NS [--seconds N] [--fake]`. It changes nothing but the
//! finalizer `informer.example/held` of ConfigMaps with that label.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "an example is the user's code, on real time")]

use informer::{
    controller::{Action, Context, Controller, ReconcileError},
    flow::ObjectKey,
    informer::SharedInformer,
    kube::{Io, KubeSource},
    source::Scope,
    sync::{Stop, Synced},
    workqueue::WorkQueue,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use kube_tests::{args::Args, server::Server};
use serde_json::json;
use std::{
    collections::BTreeSet,
    error::Error,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

const FINALIZER: &str = "informer.example/held";

/// What is held outside of the cluster.
type Outside = Arc<Mutex<BTreeSet<ObjectKey>>>;

/// Says which finalizers the object has. Its version is said too, so that somebody else's are not overwritten.
fn set_finalizers(io: &Io, client: &Client, key: &ObjectKey, version: &str, finalizers: &[String]) -> kube::Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), key.namespace());
    let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
    let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
    io.block_on(async {
        // A request of kube's has no deadline of its own.
        match tokio::time::timeout(Duration::from_secs(15), api.patch(key.name(), &params, &patch)).await {
            Ok(answer) => answer.map(drop),
            Err(_) => Err(kube::Error::ReadEvents(std::io::ErrorKind::TimedOut.into())),
        }
    })
}

fn reconcile(io: &Io, client: &Client, outside: &Outside, object: &ConfigMap, key: &ObjectKey) -> Result<Action, ReconcileError> {
    let meta = &object.metadata;
    let version = meta.resource_version.as_deref().unwrap_or("");
    let mut finalizers = meta.finalizers.clone().unwrap_or_default();
    let ours = finalizers.iter().any(|f| f == FINALIZER);
    let outcome = if meta.deletion_timestamp.is_some() {
        if !ours {
            return Ok(Action::Done);
        }
        // First let go, then say so: the other way round the object could be gone and the thing still held.
        outside.lock().unwrap().remove(key);
        finalizers.retain(|f| f != FINALIZER);
        set_finalizers(io, client, key, version, &finalizers)
    } else if ours {
        outside.lock().unwrap().insert(key.clone());
        return Ok(Action::Done);
    } else {
        // First say so, then hold.
        finalizers.push(FINALIZER.to_owned());
        set_finalizers(io, client, key, version, &finalizers)
    };
    match outcome {
        // The change comes back through the watch and leads here again.
        Ok(()) => Ok(Action::Done),
        // Gone meanwhile.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Action::Done),
        // The copy is behind: the newer state is on its way.
        Err(e) => Err(ReconcileError::retry(e)),
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
    let namespace = args.namespace.clone().unwrap_or_else(|| "default".to_owned());
    let scope = Scope { namespace: Some(namespace.clone()), labels: Some(FINALIZER.to_owned()), ..Scope::default() };
    let maps = SharedInformer::builder(KubeSource::<ConfigMap>::new(&io, client.clone())).name("maps").scope(scope).build()?;
    let queue = WorkQueue::<ObjectKey>::builder().name("maps").build();
    let keys = queue.clone();
    let told = maps.on(move |event| {
        keys.add(event.key().clone());
    })?;

    let outside = Outside::default();
    let (store, held, worker_io, worker_client) = (maps.store(), outside.clone(), io.clone(), client.clone());
    let work = move |key: &ObjectKey, _: &Context| match store.get(key) {
        Some(object) => reconcile(&worker_io, &worker_client, &held, &object, key),
        // It cannot have gone while we held it.
        None => Ok(Action::Done),
    };
    let synced: Arc<dyn Synced> = Arc::new(maps.clone());
    let controller = Controller::builder(queue, work).name("held").workers(2).wait_for([synced]).build();
    let stop = Stop::new();
    let running = maps.spawn(&stop)?;
    let controlling = {
        let stop = stop.clone();
        thread::spawn(move || controller.run(&stop))
    };
    maps.wait_synced(Duration::from_secs(30).into())?;

    let until = Instant::now() + Duration::from_secs(args.seconds);
    let wait = |what: &str, done: &dyn Fn() -> bool| -> Result<(), String> {
        while !done() {
            if Instant::now() >= until {
                return Err(format!("{what}: not in time"));
            }
            thread::sleep(Duration::from_millis(10));
        }
        println!("{what}");
        Ok(())
    };
    if let Some(server) = &fake {
        // The server of the tests takes a selector without a value for no selector.
        for name in ["a", "b", "c"] {
            server.put_named("configmaps", &namespace, name, json!({FINALIZER: ""}));
        }
        wait("all three are held", &|| outside.lock().unwrap().len() == 3)?;
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
        io.block_on(api.delete("b", &DeleteParams::default()))?;
        wait("one is let go of, and gone", &|| outside.lock().unwrap().len() == 2 && server.truth("configmaps").len() == 2)?;
    } else {
        thread::sleep(until - Instant::now());
        println!("held: {:?}", outside.lock().unwrap());
    }
    stop.stop();
    running.join()?;
    controlling.join().map_err(|_| "the controller's thread panicked")??;
    drop(told);
    Ok(())
}
