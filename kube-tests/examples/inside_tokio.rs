//! A program with a tokio runtime of its own: the informer has its threads beside it. Looking into the store never waits,
//! so a task may do it; what waits is done in `spawn_blocking`; and a handler passes on by a channel that a task awaits.
//!
//! `cargo run -p kube-tests --example inside_tokio -- [--namespace NS] [--seconds N] [--fake]`. It only reads.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "an example is the user's code, on real time")]

use informer::{
    informer::SharedInformer,
    kube::{Io, KubeSource},
    source::Scope,
    sync::{Stop, Synced},
};
use k8s_openapi::api::core::v1::Pod;
use kube_tests::{args::Args, server::Server};
use serde_json::json;
use std::{error::Error, time::Duration};
use tokio::sync::mpsc;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

async fn program(
    pods: SharedInformer<Pod>,
    mut changes: mpsc::UnboundedReceiver<String>,
    args: Args,
    fake: Option<Server>,
) -> Outcome<()> {
    let waiting = pods.clone();
    tokio::task::spawn_blocking(move || waiting.wait_synced(Duration::from_secs(30).into())).await??;
    println!("synced: {} pods", pods.store().len());
    if let Some(server) = &fake {
        server.put_named("pods", "default", "web", json!({}));
    }
    let until = tokio::time::Instant::now() + Duration::from_secs(args.seconds);
    let mut seen = 0;
    while let Ok(Some(key)) = tokio::time::timeout_at(until, changes.recv()).await {
        seen += 1;
        println!("{key}; {} pods now", pods.store().len());
        if fake.is_some() {
            break;
        }
    }
    if fake.is_some() && seen == 0 { Err("no change was told".into()) } else { Ok(()) }
}

fn main() -> Outcome<()> {
    let args = Args::parse()?;
    let fake = args.fake.then(Server::plain);
    // The client belongs to informer's own thread, so it does not end with the runtime.
    let io = Io::shared()?;
    let config = match &fake {
        Some(server) => server.config(),
        None => io.infer()?,
    };
    let client = io.client(config)?;
    let scope = Scope { namespace: args.namespace.clone(), ..Scope::default() };
    let pods = SharedInformer::builder(KubeSource::<Pod>::new(&io, client)).name("pods").scope(scope).build()?;
    let (tell, changes) = mpsc::unbounded_channel();
    // Sending never waits, so a handler may.
    let told = pods.on(move |event| drop(tell.send(event.key().to_string())))?;
    let stop = Stop::new();
    let running = pods.spawn(&stop)?;

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(program(pods.clone(), changes, args, fake));
    // Joining waits: not in a task.
    stop.stop();
    running.join()?;
    drop(told);
    outcome
}
