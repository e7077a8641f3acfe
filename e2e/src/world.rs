//! What the phases act on: the servers, the crew of informers that lives through all of them, and the comparison that
//! ends each.

use crate::{
    api::Api,
    certs,
    churn::{Churn, fill},
    cluster::{Cluster, check_interrupted, rest},
    etcd::{Following, History},
    judge::{Verdict, judge},
    watcher::{CONFIG_MAPS, Collection, How, Kube, PODS, WIDGETS, Watcher, definition, kube},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant},
};

/// One line of the table.
#[derive(Default)]
pub struct Row {
    pub phase: String,
    pub passed: usize,
    /// What did not hold.
    pub failed: Vec<String>,
    pub writes: u64,
    pub events: usize,
    pub lists: usize,
    pub lost: usize,
    pub repeated: usize,
    /// From the moment that the server was whole again until all informers had what it has.
    pub agreed: Option<Duration>,
    pub took: Duration,
    pub notes: Vec<String>,
}

impl Row {
    pub fn check(&mut self, holds: bool, what: impl Into<String>) {
        if holds {
            self.passed += 1;
        } else {
            self.failed.push(what.into());
        }
    }
}

pub struct World {
    pub crew: Vec<Box<dyn Watcher>>,
    pub kube: Kube,
    following: Option<Following>,
    pub history: History,
    pub cluster: Cluster,
    pub seconds: u64,
    pub seed: u64,
    pub objects: usize,
    /// Makes the crew anew when a phase has found something, so that the next one begins with a clean one.
    crews: u64,
    /// Events judged in earlier phases, and lists told of in them.
    before: (usize, usize),
}

const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub const FLAGS: &[&str] = &["--shutdown-watch-termination-grace-period=3s"];

impl World {
    pub fn new(servers: &Path, seconds: u64, seed: u64, objects: usize) -> Self {
        let cluster = Cluster::start(servers, FLAGS);
        let api = &cluster.admin;
        prepare(api);
        let history = History::new(cluster.etcd_port());
        let following = Some(history.follow());
        let kube = kube(&cluster, &certs::WATCHER);
        Self { crew: Vec::new(), kube, following, history, cluster, seconds, seed, objects, crews: 0, before: (0, 0) }
    }

    /// Informers of every form, one of each.
    pub fn start_crew(&mut self) {
        self.crews += 1;
        self.before = (0, 0);
        let era = self.history.era();
        let how = |n: u64| How::new(self.seed ^ (self.crews << 8) ^ n, era);
        let k = &self.kube;
        self.crew = vec![
            k.config_maps("typed", how(1)),
            k.config_maps("typed, paged", how(2).most_recent(500)),
            k.config_maps("typed, decoupled", how(3).decoupled()),
            k.config_maps_metadata("metadata", how(4)),
            k.pods("pods", how(5)),
            k.pods_dynamic("pods, dynamic", how(6).decoupled()),
            k.widgets("widgets", how(7)),
            k.widgets("widgets, paged", how(8).most_recent(100)),
            k.widgets_metadata("widgets, metadata", how(9).decoupled()),
            k.config_maps("typed, streamed", how(10).streamed()),
            k.config_maps_metadata("metadata, streamed", how(11).streamed()),
            k.widgets("widgets, streamed", how(12).streamed()),
        ];
    }

    pub fn api(&self) -> &Api {
        &self.cluster.admin
    }

    pub fn churn(&self, salt: u64) -> Churn {
        let all = [CONFIG_MAPS, PODS, WIDGETS];
        Churn::start(self.api(), &all, self.seed.wrapping_add(salt << 32), Duration::from_millis(2))
    }

    pub fn fill(&self, collection: Collection, prefix: &str, count: usize) {
        fill(self.api(), collection, prefix, count);
    }

    /// Stops both servers and what reads etcd; the history is complete before.
    pub fn down(&mut self) {
        for collection in [CONFIG_MAPS, PODS, WIDGETS] {
            self.history.complete(collection.folder);
        }
        self.cluster.kill_api();
        self.following = None;
        self.cluster.kill_etcd();
    }

    pub fn follow(&mut self) {
        self.following = Some(self.history.follow());
    }

    /// Waits until every informer has what the server has, compares the objects, judges what handlers were told. Nobody
    /// may write meanwhile.
    pub fn settle(&mut self, row: &mut Row, since: Instant, limit: Duration) {
        let (objects, agreed) = agree(&self.cluster.admin, &self.crew, limit);
        row.check(agreed.is_ok(), agreed.as_ref().err().cloned().unwrap_or_default());
        row.agreed = agreed.ok().map(|at| at.saturating_duration_since(since));
        row.notes.push(format!("{objects} objects"));
        if let Err(why) = same_bodies(&self.cluster.admin, &self.crew) {
            row.failed.push(why);
        } else {
            row.passed += 1;
        }
        let (mut events, mut lists) = (0, 0);
        let mut steps = BTreeMap::new();
        for watcher in &self.crew {
            let folder = watcher.collection().folder;
            let steps = steps.entry(folder).or_insert_with(|| self.history.complete(folder));
            let tape = watcher.recorder().tape();
            let verdict = judge(&tape, steps);
            events += verdict.events;
            lists += tape.lists.len();
            self.report(row, watcher.name(), &verdict);
        }
        row.events += events.saturating_sub(self.before.0);
        row.lists += lists.saturating_sub(self.before.1);
        self.before = (events, lists);
    }

    fn report(&self, row: &mut Row, name: &str, verdict: &Verdict) {
        row.lost += verdict.lost.len();
        row.repeated += verdict.repeated.len();
        let all = || verdict.lost.iter().chain(&verdict.repeated).chain(&verdict.wrong);
        let first: Vec<_> = all().take(3).cloned().collect();
        row.check(verdict.is_good(), format!("{name}: {} offences, as {:.600}", all().count(), first.join("; ")));
    }

    /// The crew was changed: what was judged so far is not to be subtracted.
    pub fn forget(&mut self) {
        let count = |w: &dyn Watcher| {
            let tape = w.recorder().tape();
            (tape.told.len(), tape.lists.len())
        };
        self.before = self.crew.iter().map(|w| count(&**w)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    }

    /// Ends the crew; each informer must end in order.
    pub fn end_crew(&mut self, row: &mut Row) {
        for watcher in self.crew.drain(..) {
            let ended = watcher.end();
            row.check(ended.is_ok(), ended.err().unwrap_or_default());
        }
    }

    /// Writes to etcd beside the API server, so that the versions of everything else are behind.
    pub fn bump(&self) {
        for n in 0..5 {
            let put = json!({"key": crate::etcd::encode("/e2e/bump"), "value": crate::etcd::encode(&n.to_string())});
            self.cluster.etcd_post("/v3/kv/put", &put.to_string()).expect("etcd takes a value");
        }
    }

    /// How often each watcher listed for this reason so far.
    pub fn lists_for(&self, reason: &str) -> Vec<usize> {
        self.crew.iter().map(|w| w.recorder().tape().reasons.get(reason).copied().unwrap_or(0)).collect()
    }

    /// How often each watcher met a failure with these words so far.
    pub fn met(&self, words: &str) -> Vec<usize> {
        let of = |w: &dyn Watcher| w.recorder().tape().failures.iter().filter(|(k, _)| k.contains(words)).map(|(_, n)| n).sum();
        self.crew.iter().map(|w| of(&**w)).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for watcher in self.crew.drain(..) {
            let _reported_already = watcher.end();
        }
    }
}

/// Waits until every one of them has what the server has, and is idle. Says how many objects, and when.
pub fn agree(api: &Api, crew: &[Box<dyn Watcher>], limit: Duration) -> (usize, Result<Instant, String>) {
    let mut truth: BTreeMap<&str, BTreeMap<String, u64>> = BTreeMap::new();
    for watcher in crew {
        let collection = watcher.collection();
        truth.entry(collection.all).or_insert_with(|| {
            let mut versions = BTreeMap::new();
            until("the server lists", || {
                let (objects, _) = api.list_metadata(collection.all)?;
                let version = |o: &Value| crate::api::number(&o["metadata"]["resourceVersion"]).unwrap_or(0);
                versions = objects.iter().map(|(k, o)| (k.clone(), version(o))).collect();
                Ok(())
            });
            versions
        });
    }
    let objects = truth.values().map(BTreeMap::len).sum();
    let end = Instant::now() + limit;
    for watcher in crew {
        let is = &truth[watcher.collection().all];
        loop {
            check_interrupted();
            let has = watcher.versions();
            if has == *is && watcher.is_idle() {
                break;
            }
            if Instant::now() >= end {
                let differs = |k: &&String| has.get(*k) != is.get(*k);
                let keys: Vec<&String> = has.keys().chain(is.keys()).filter(differs).collect();
                let of = |k: &&&String| format!("{k} (has {:?}, is {:?})", has.get(**k), is.get(**k));
                let shown: Vec<String> = keys.iter().take(3).map(|k| of(&k)).collect();
                let failures = watcher.recorder().tape().failures.clone();
                return (
                    objects,
                    Err(format!(
                        "{}: not as the server after {limit:?}, in {} keys, as {}; it has met {failures:?}",
                        watcher.name(),
                        keys.len(),
                        shown.join(", ")
                    )),
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    (objects, Ok(Instant::now()))
}

/// Compares the objects in the stores, byte by byte of their JSON, with the server's.
pub fn same_bodies(api: &Api, crew: &[Box<dyn Watcher>]) -> Result<(), String> {
    for watcher in crew {
        let mut truth = BTreeMap::new();
        until("the server lists", || {
            truth = watcher.truth(api)?;
            Ok(())
        });
        if let Some(first) = difference(&watcher.bodies(), &truth) {
            return Err(format!("{}: objects are not the server's, as {first}", watcher.name()));
        }
    }
    Ok(())
}

/// The first object that one has and the other has not, or has otherwise.
fn difference(has: &BTreeMap<String, Value>, is: &BTreeMap<String, Value>) -> Option<String> {
    let first = has.keys().chain(is.keys()).find(|k| has.get(*k) != is.get(*k))?;
    Some(format!("{first}: has {:?}, is {:?}", has.get(first), is.get(first)))
}

/// Asks until it is granted, for a minute.
pub fn until(what: &str, mut ask: impl FnMut() -> Result<(), crate::api::Refused>) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match ask() {
            Ok(()) | Err(crate::api::Refused(409, _)) => return,
            Err(e) => assert!(Instant::now() < end, "{what}: not within a minute, but {e}"),
        }
        rest(Duration::from_millis(50));
    }
}

/// What everything else needs: a namespace, a role and who has it, the widgets.
pub fn prepare(api: &Api) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "e2e"}});
    until("the namespace can be made", || api.create("/api/v1/namespaces", &namespace).map(drop));
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "e2e"},
        "rules": [{"apiGroups": ["", "example.dev"], "resources": ["configmaps", "pods", "widgets"], "verbs": ["get", "list", "watch"]}]});
    until("the role can be made", || api.create(ROLE, &role).map(drop));
    grant(api);
    define(api);
}

/// Lets the users of the group list and watch.
pub fn grant(api: &Api) {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "e2e"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "e2e"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "e2e"}]});
    until("the right can be granted", || api.create(BINDINGS, &binding).map(drop));
}

/// Forbids it again.
pub fn revoke(api: &Api) {
    until("the right can be revoked", || api.delete(&format!("{BINDINGS}/e2e")));
}

/// Makes the widgets known, and waits until the first can be written: that is later than the server says.
pub fn define(api: &Api) {
    until("the definition can be made", || api.create(DEFINITIONS, &definition()).map(drop));
    let first = crate::watcher::object(WIDGETS, "first", 0);
    until("widgets are served", || api.create(WIDGETS.ours, &first).map(drop));
}

/// Makes the widgets unknown, and waits until they are.
pub fn undefine(api: &Api) {
    until("the definition can be deleted", || api.delete(&format!("{DEFINITIONS}/widgets.example.dev")));
    until("the definition is gone", || match api.get(&format!("{DEFINITIONS}/widgets.example.dev")) {
        Err(crate::api::Refused(404, _)) => Ok(()),
        other => Err(other.err().unwrap_or(crate::api::Refused(0, "it is still there".into()))),
    });
}

#[cfg(test)]
mod tests {
    use super::difference;
    use serde_json::json;
    use std::collections::BTreeMap;

    #[test]
    fn a_body_that_is_stale_or_missing_or_left_over_is_a_difference() {
        let object = |n: u32| json!({"metadata": {"name": "x", "resourceVersion": "7"}, "data": {"n": n}});
        let of = |all: &[(&str, u32)]| all.iter().map(|(k, n)| ((*k).to_owned(), object(*n))).collect::<BTreeMap<_, _>>();
        let is = of(&[("a", 1), ("b", 2)]);
        assert_eq!(difference(&is, &is), None);
        for has in [of(&[("a", 1), ("b", 1)]), of(&[("a", 1)]), of(&[("a", 1), ("b", 2), ("c", 3)])] {
            assert!(difference(&has, &is).is_some(), "{has:?}");
        }
    }
}
