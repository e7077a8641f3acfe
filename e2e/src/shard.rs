//! One of several processes that share the config maps of the cluster among them, each with its [`Shard`].

use crate::{api::config_as, party::say, watcher::CONFIG_MAPS};
use informer::{
    flow::Object,
    informer::SharedInformer,
    kube::{Io, KubeSource},
    source::{Scope, Shard},
    sync::{Stop, Synced},
};
use k8s_openapi::api::core::v1::ConfigMap;
use std::{collections::BTreeMap, io::BufRead, path::PathBuf, time::Duration};

#[derive(clap::Args)]
pub struct Args {
    index: u32,
    count: u32,
    #[arg(long)]
    port: u16,
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    user: String,
}

/// Answers each line of the standard input with what is stored, until it ends.
pub fn run(args: &Args) {
    let io = Io::shared().expect("a thread can be started");
    let client = io.client(config_as(&args.dir, args.port, &args.user)).expect("the configuration is good");
    let shard = Shard::new(args.index, args.count).expect("the parent counts right");
    let seconds = Duration::from_secs;
    let informer = SharedInformer::builder(KubeSource::<ConfigMap>::new(&io, client))
        .scope(Scope { shard: Some(shard), ..Scope::default() })
        .watch_timeout(seconds(3)..=seconds(6))
        .build()
        .expect("there are no indices");
    let stop = Stop::new();
    let handle = informer.spawn(&stop).expect("a thread can be started");
    match informer.wait_synced(seconds(60).into()) {
        Ok(()) => say(&format!("synced {}", informer.store().len())),
        Err(e) => say(&format!("failed {e}")),
    }
    for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
        let version = |o: &Object<ConfigMap>| Object::version(o).to_string().parse::<u64>().unwrap_or(0);
        let snapshot = informer.store().snapshot();
        let all: BTreeMap<_, _> = snapshot.objects().map(|o| (Object::key(o).as_str().to_owned(), version(o))).collect();
        say(&format!("has {}", serde_json::to_string(&all).expect("versions can be written")));
    }
    stop.stop();
    handle.join().expect("the informer ends in order");
}

/// Arguments for the process that has this part.
pub fn arguments(index: u32, count: u32, cluster: &crate::cluster::Cluster, user: &str) -> Vec<String> {
    let (port, dir) = (cluster.api_port().to_string(), cluster.dir().display().to_string());
    let [index, count] = [index, count].map(|n| n.to_string());
    ["shard", &index, &count, "--port", &port, "--dir", &dir, "--user", user].map(str::to_owned).to_vec()
}

/// Whether together they have exactly these, and no two the same; else what is wrong.
pub fn divided(parts: &[BTreeMap<String, u64>], is: &BTreeMap<String, u64>) -> Result<(), String> {
    let mut all = BTreeMap::new();
    for (n, part) in parts.iter().enumerate() {
        for (key, version) in part {
            if all.insert(key.clone(), *version).is_some() {
                return Err(format!("{key} is in part {n} and in an earlier one"));
            }
        }
    }
    let differs = |k: &&String| all.get(*k) != is.get(*k);
    match all.keys().chain(is.keys()).find(differs) {
        Some(key) => {
            Err(format!("{key} of {}: the parts have {:?}, the server {:?}", CONFIG_MAPS.folder, all.get(key), is.get(key)))
        }
        None => Ok(()),
    }
}
