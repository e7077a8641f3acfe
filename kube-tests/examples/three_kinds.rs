//! Three ways to hold a kind, side by side: typed (pods), dynamic (a kind named on the command line), and the metadata
//! alone (ConfigMaps, whose contents nobody needs to keep). One client, one thread for the network.
//!
//! `cargo run -p kube-tests --example three_kinds -- [--kind GROUP/VERSION/KIND/PLURAL] [--namespace NS] [--seconds N]
//! [--fake]`. It only reads.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "an example is the user's code, on real time")]

use informer::{
    informer::SharedInformer,
    kube::{Io, KubeSource},
    source::Scope,
    sync::{Clock, Deadline, Stop, Synced, wait_all_synced},
};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube_tests::{args::Args, server::Server};
use serde_json::json;
use std::{error::Error, thread, time::Duration};

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse()?;
    let fake = args.fake.then(Server::plain);
    let io = Io::shared()?;
    let config = match &fake {
        Some(server) => server.config(),
        None => io.infer()?,
    };
    let client = io.client(config)?;
    let kind = args.kind.as_deref().unwrap_or(if args.fake {
        "example.dev/v1/Widget/widgets"
    } else {
        "apps/v1/Deployment/deployments"
    });
    let parts: Vec<&str> = kind.split('/').collect();
    let [group, version, kind, plural] = parts[..] else { return Err("--kind GROUP/VERSION/KIND/PLURAL".into()) };
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);

    let scope = Scope { namespace: args.namespace.clone(), ..Scope::default() };
    let typed = SharedInformer::builder(KubeSource::<Pod>::new(&io, client.clone())).name("pods").scope(scope.clone()).build()?;
    let dynamic = SharedInformer::builder(KubeSource::<DynamicObject>::with(&io, client.clone(), kind.clone()))
        .name(plural)
        .scope(scope.clone())
        .build()?;
    let metadata = SharedInformer::builder(KubeSource::<PartialObjectMeta<ConfigMap>>::new(&io, client))
        .name("configmaps, metadata")
        .scope(scope)
        .build()?;

    let stop = Stop::new();
    let running = [typed.spawn(&stop)?, dynamic.spawn(&stop)?, metadata.spawn(&stop)?];
    let all: [&dyn Synced; 3] = [&typed, &dynamic, &metadata];
    wait_all_synced(&Clock::real(), &all, Deadline::from(Duration::from_secs(30)))?;
    println!("synced: {} pods, {} {plural}, {} ConfigMaps", typed.store().len(), dynamic.store().len(), metadata.store().len());

    if let Some(server) = &fake {
        server.put_named("pods", "default", "web", json!({}));
        server.put("widgets", json!({"metadata": {"namespace": "default", "name": "w"}, "spec": {"size": 3}}));
        server.put_named("configmaps", "default", "settings", json!({"app": "web"}));
        server.wait("all three", |_| [typed.store().len(), dynamic.store().len(), metadata.store().len()] == [1, 1, 1]);
        let widget = dynamic.store().get(&("default", "w")).ok_or("the widget")?;
        assert_eq!(
            (widget.data["spec"]["size"].as_u64(), widget.types.as_ref().map(|t| t.kind.as_str())),
            (Some(3), Some("Widget"))
        );
        assert_eq!(typed.store().with(&("default", "web"), |p| p.spec.is_some()), Some(true));
    } else {
        thread::sleep(Duration::from_secs(args.seconds));
        println!("now: {} pods, {} {plural}, {} ConfigMaps", typed.store().len(), dynamic.store().len(), metadata.store().len());
    }
    stop.stop();
    for informer in running {
        informer.join()?;
    }
    Ok(())
}
