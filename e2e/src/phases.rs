//! The phases: what is done to the server, and what must hold afterwards. After each, every informer has what the server
//! has, object by object, and its handler was told a legal story, nothing lost and nothing repeated.

use crate::{
    api::{Refused, config, key},
    certs,
    churn::Churn,
    cluster::rest,
    etcd::encode,
    lines::Lines,
    shard,
    watcher::{CONFIG_MAPS, Collection, How, Kube, PODS, WIDGETS, change, object, path},
    world::{FLAGS, Row, World, agree, define, grant, revoke, undefine, until},
};
use fastrand::Rng;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

pub struct Phase {
    pub name: &'static str,
    pub about: &'static str,
    pub run: fn(&mut World, &mut Row),
}

/// In the order in which they are run. The first makes the objects and the crew.
pub const ALL: &[Phase] = &[
    Phase { name: "lists", about: "the first state of many objects, by every way of asking", run: lists },
    Phase { name: "kills", about: "writes while the API server is killed and started at random", run: kills },
    Phase { name: "orderly", about: "the API server is told to end, while watched and written to", run: orderly },
    Phase { name: "half-open", about: "the API server neither answers nor hangs up for a while", run: half_open },
    Phase { name: "pings", about: "the same for longer, over HTTP/2: pings find it out", run: pings },
    Phase { name: "expired", about: "history compacted, server away for 6 s: every watch is answered 410", run: expired },
    Phase { name: "overload", about: "the server answers one request at a time, and 429 to the others", run: overload },
    Phase { name: "rights", about: "the right to list and watch is revoked, and granted again", run: rights },
    Phase { name: "definition", about: "the definition of a resource is deleted, and made again", run: definition },
    Phase { name: "restored", about: "etcd is put back to an older copy, and versions begin again", run: restored },
    Phase { name: "large", about: "objects of one megabyte", run: large },
    Phase { name: "fifty", about: "fifty more informers in this process", run: fifty },
    Phase { name: "shards", about: "two processes that share a kind among them", run: shards },
    Phase { name: "wiped", about: "whole collections are deleted", run: wiped },
];

const LIMIT: Duration = Duration::from_secs(60);

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// One object more of each kind, so that nobody agrees with the server by having slept. Says how many.
fn touch(world: &World, name: &str) -> u64 {
    let all = [CONFIG_MAPS, PODS, WIDGETS];
    for collection in all {
        until("an object can be written", || world.api().create(collection.ours, &object(collection, name, 1)).map(drop));
    }
    all.len() as u64
}

fn lists(world: &mut World, row: &mut Row) {
    world.fill(CONFIG_MAPS, "many", world.objects);
    world.fill(PODS, "pod", world.objects / 25);
    world.fill(WIDGETS, "widget", world.objects / 25);
    row.writes = (world.objects + 2 * (world.objects / 25)) as u64;
    let begun = Instant::now();
    world.start_crew();
    for watcher in &world.crew {
        let synced = watcher.wait_synced(LIMIT);
        row.check(synced.is_ok(), synced.err().unwrap_or_default());
    }
    world.settle(row, begun, LIMIT);
}

fn kills(world: &mut World, row: &mut Row) {
    let mut rng = Rng::with_seed(world.seed);
    let churn = world.churn(1);
    let end = Instant::now() + seconds(world.seconds);
    let (mut killed, mut back) = (0, Instant::now());
    while Instant::now() < end {
        rest(Duration::from_millis(rng.u64(500..4000)));
        world.cluster.kill_api();
        rest(Duration::from_millis(rng.u64(0..1500)));
        world.cluster.start_api();
        back = Instant::now();
        killed += 1;
    }
    rest(seconds(1));
    row.writes = churn.end();
    row.notes.push(format!("killed {killed} times"));
    world.settle(row, back, LIMIT);
}

fn orderly(world: &mut World, row: &mut Row) {
    let churn = world.churn(2);
    rest(seconds(2));
    let ended = world.cluster.stop_api(seconds(20));
    row.check(ended, "the API server did not end in 20 s");
    world.cluster.start_api();
    let back = Instant::now();
    rest(seconds(2));
    row.writes = churn.end();
    world.settle(row, back, LIMIT);
}

fn half_open(world: &mut World, row: &mut Row) {
    let churn = world.churn(3);
    rest(seconds(1));
    world.cluster.pause_api();
    // Longer than a watch may stay open, and ten seconds more: then the informer hangs up.
    rest(seconds(18));
    row.check(world.cluster.is_paused(), "somebody else continued the server, so the phase proved nothing");
    world.cluster.resume_api();
    let back = Instant::now();
    rest(seconds(1));
    row.writes = churn.end();
    let unnoticed = world.met("no answer in time").iter().filter(|n| **n == 0).count();
    row.check(unnoticed == 0, format!("{unnoticed} informers did not notice that nobody answers"));
    world.settle(row, back, LIMIT);
}

/// The watches may stay open for ten minutes, so it is not their end that shows it.
fn pings(world: &mut World, row: &mut Row) {
    let kube = Kube::http2(config(world.cluster.dir(), world.cluster.api_port(), &certs::WATCHER));
    let how = |n: u64| How { watch: (600, 900), ..How::new(world.seed ^ (0x6000 + n), world.history.era()) };
    let crew = vec![
        kube.config_maps("config maps, HTTP/2", how(1)),
        kube.pods("pods, HTTP/2", how(2)),
        kube.widgets("widgets, HTTP/2", how(3).streamed()),
    ];
    let others = std::mem::replace(&mut world.crew, crew);
    for watcher in &world.crew {
        let synced = watcher.wait_synced(LIMIT);
        row.check(synced.is_ok(), synced.err().unwrap_or_default());
    }
    world.forget();
    let churn = world.churn(9);
    rest(seconds(1));
    let broken = |world: &World| world.met("Stream: the connection broke").iter().filter(|n| **n == 0).count();
    row.check(broken(world) == world.crew.len(), "a stream was broken before the server was stopped");
    world.cluster.pause_api();
    let paused = Instant::now();
    while broken(world) > 0 && paused.elapsed() < LIMIT {
        rest(Duration::from_millis(50));
    }
    row.notes.push(format!("found out after {:.1} s", paused.elapsed().as_secs_f64()));
    let met: Vec<_> = world.crew.iter().map(|w| w.recorder().tape().failures.clone()).collect();
    row.check(world.cluster.is_paused(), "somebody else continued the server, so the phase proved nothing");
    row.check(broken(world) == 0, format!("{} informers were told of nothing by pings; they met {met:?}", broken(world)));
    world.cluster.resume_api();
    let back = Instant::now();
    rest(seconds(1));
    row.writes = churn.end();
    world.settle(row, back, LIMIT);
    world.end_crew(row);
    world.crew = others;
    world.forget();
}

fn expired(world: &mut World, row: &mut Row) {
    let before = world.lists_for("Expired");
    for watcher in &world.crew {
        watcher.recorder().tape().to_list.clear();
    }
    world.cluster.kill_api();
    world.bump();
    world.cluster.compact();
    rest(seconds(6));
    world.cluster.start_api();
    let back = Instant::now();
    row.writes += touch(world, "after-410");
    world.settle(row, back, LIMIT);
    let without = world.lists_for("Expired").iter().zip(&before).filter(|(now, then)| now <= then).count();
    row.check(without == 0, format!("{without} informers met no 410, so the phase proved nothing for them"));
    let most = world.crew.iter().flat_map(|w| w.recorder().tape().to_list.clone()).max().unwrap_or_default();
    row.notes.push(format!("from 410 to list at most {:.2} s", most.as_secs_f64()));
}

fn overload(world: &mut World, row: &mut Row) {
    let mut flags = FLAGS.to_vec();
    flags.extend(["--enable-priority-and-fairness=false", "--max-requests-inflight=1", "--max-mutating-requests-inflight=1"]);
    world.cluster.set_flags(&flags);
    world.cluster.kill_api();
    world.bump();
    let flooder = crate::api::Api::new(world.cluster.dir(), world.cluster.api_port(), &certs::FLOODER);
    let (end, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let flood: Vec<_> = (0..4)
        .map(|_| {
            let (flooder, end, refused) = (flooder.clone(), end.clone(), refused.clone());
            thread::spawn(move || {
                while !end.load(Ordering::Relaxed) {
                    match flooder.get(CONFIG_MAPS.all) {
                        Err(Refused(429, _)) => drop(refused.fetch_add(1, Ordering::Relaxed)),
                        Err(_) => thread::sleep(Duration::from_millis(20)),
                        Ok(_) => {}
                    }
                }
            })
        })
        .collect();
    world.cluster.start_api();
    // Of an ordinary user's requests; the writers are masters, whom no limit holds.
    let churn = world.churn(4);
    rest(seconds(10));
    end.store(true, Ordering::Relaxed);
    for thread in flood {
        thread.join().expect("who asks too much does not panic");
    }
    let back = Instant::now();
    row.writes = churn.end();
    row.notes.push(format!(
        "429 to the flood {} times, to informers {}",
        refused.load(Ordering::Relaxed),
        world.met("too many requests").iter().sum::<usize>()
    ));
    row.check(refused.load(Ordering::Relaxed) > 0, "the server refused nothing, so the phase proved nothing");
    world.settle(row, back, LIMIT);
    world.cluster.set_flags(FLAGS);
    world.cluster.kill_api();
    world.cluster.start_api();
}

fn rights(world: &mut World, row: &mut Row) {
    // Whatever they still have to list after the phase before is not to be counted. Who has something new has listed.
    row.writes += touch(world, "rights");
    let (_, agreed) = agree(&world.cluster.admin, &world.crew, LIMIT);
    row.check(agreed.is_ok(), agreed.err().unwrap_or_default());
    let churn = world.churn(5);
    rest(seconds(1));
    let listed: Vec<usize> = world.crew.iter().map(|w| w.recorder().tape().lists.len()).collect();
    revoke(world.api());
    // Watches that are open stay open; the next ones are refused.
    rest(seconds(9));
    grant(world.api());
    let back = Instant::now();
    rest(seconds(2));
    row.writes += churn.end();
    world.settle(row, back, LIMIT);
    let unmet = world.met("not allowed").iter().filter(|n| **n == 0).count();
    row.check(unmet == 0, format!("{unmet} informers were refused nothing, so the phase proved nothing for them"));
    let listed = world.crew.iter().zip(listed).filter(|(w, n)| w.recorder().tape().lists.len() > *n).count();
    row.check(listed == 0, format!("{listed} informers listed anew though they had lost nothing but a right"));
}

fn definition(world: &mut World, row: &mut Row) {
    let churn = Churn::start(world.api(), &[WIDGETS], world.seed ^ 6, Duration::from_millis(5));
    rest(seconds(1));
    undefine(world.api());
    rest(seconds(5));
    row.writes = churn.end();
    define(world.api());
    let back = Instant::now();
    world.fill(WIDGETS, "again", 20);
    row.writes += 20;
    world.settle(row, back, LIMIT);
}

/// `metadata.name` of the object that has one version and two contents.
const TWICE: &str = "twice";

fn restored(world: &mut World, row: &mut Row) {
    until("an object can be written", || world.api().create(CONFIG_MAPS.ours, &object(CONFIG_MAPS, TWICE, 0)).map(drop));
    world.settle(row, Instant::now(), LIMIT);
    world.down();
    world.cluster.back_up();
    world.cluster.start_etcd();
    let first = rewrite(world, "before the copy was put back");
    world.follow();
    world.cluster.start_api();
    world.fill(CONFIG_MAPS, "lost", 100);
    world.fill(WIDGETS, "lost", 50);
    world.fill(PODS, "lost", 50);
    for n in 0..20 {
        until("an object can be deleted", || match world.api().delete(&path(CONFIG_MAPS, &format!("many-{n:05}"))) {
            Err(Refused(404, _)) => Ok(()),
            other => other,
        });
    }
    row.writes = 221;
    world.settle(row, Instant::now(), LIMIT);
    world.down();
    world.cluster.restore();
    world.history.new_era();
    world.cluster.start_etcd();
    let second = rewrite(world, "after the copy was put back");
    row.check(first == second, format!("the object was to have one version twice, and has {first} and {second}"));
    world.follow();
    world.cluster.start_api();
    let back = Instant::now();
    world.settle(row, back, seconds(120));
}

/// Writes the object to etcd, as the API server would, and tells its version.
fn rewrite(world: &World, content: &str) -> u64 {
    let place = encode(&format!("/registry/configmaps/e2e/{TWICE}"));
    let range = world.cluster.etcd_post("/v3/kv/range", &json!({"key": place}).to_string()).expect("etcd answers");
    let mut object: Value = range["kvs"][0]["value"]
        .as_str()
        .and_then(crate::etcd::decode_text)
        .and_then(|text| serde_json::from_str(&text).ok())
        .expect("the object is in etcd");
    assert_eq!(key(&object), format!("e2e/{TWICE}"));
    object["data"] = json!({"content": content});
    let put = json!({"key": place, "value": encode(&object.to_string())});
    let put = world.cluster.etcd_post("/v3/kv/put", &put.to_string()).expect("etcd takes a value");
    crate::api::number(&put["header"]["revision"]).expect("a write has a number")
}

fn large(world: &mut World, row: &mut Row) {
    let body = |n: u64| {
        let mut o = object(CONFIG_MAPS, &format!("large-{}", n % 12), n);
        o["data"]["filling"] = json!("m".repeat(1_000_000));
        o
    };
    for n in 0..12 {
        until("a large object can be made", || world.api().create(CONFIG_MAPS.ours, &body(n)).map(drop));
    }
    world.cluster.kill_api();
    world.bump();
    world.cluster.start_api();
    let back = Instant::now();
    for n in 12..48 {
        let to = path(CONFIG_MAPS, &format!("large-{}", n % 12));
        until("a large object can be changed", || world.api().patch(&to, &change(CONFIG_MAPS, n)).map(drop));
    }
    for n in 0..12 {
        until("a large object can be deleted", || world.api().delete(&path(CONFIG_MAPS, &format!("large-{n}"))));
    }
    row.writes = 60;
    world.settle(row, back, LIMIT);
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

fn fifty(world: &mut World, row: &mut Row) {
    let before = threads();
    let began = Instant::now();
    let crew = std::mem::take(&mut world.crew);
    for n in 0..50 {
        let how = How::new(world.seed ^ (0x5000 + n), world.history.era());
        let name = format!("one of fifty, {n}");
        world.crew.push(match n % 5 {
            0 => world.kube.config_maps(&name, how),
            1 => world.kube.config_maps_metadata(&name, how),
            2 => world.kube.pods(&name, how),
            3 => world.kube.widgets(&name, how),
            _ => world.kube.pods_dynamic(&name, how),
        });
    }
    for watcher in &world.crew {
        let synced = watcher.wait_synced(LIMIT);
        row.check(synced.is_ok(), synced.err().unwrap_or_default());
    }
    row.notes.push(format!("all synced after {:.1} s", began.elapsed().as_secs_f64()));
    // Each has a thread of its own and one for its handler; the network's thread is there already.
    let more = threads().saturating_sub(before);
    row.check(more <= 100, format!("fifty informers with a handler each took {more} threads"));
    world.forget();
    let churn = world.churn(7);
    rest(seconds(3));
    world.cluster.kill_api();
    world.cluster.start_api();
    let back = Instant::now();
    rest(seconds(2));
    row.writes = churn.end();
    world.settle(row, back, LIMIT);
    world.end_crew(row);
    row.check(threads() <= before, format!("{} threads before, {} after", before, threads()));
    world.crew = crew;
    world.forget();
}

fn shards(world: &mut World, row: &mut Row) {
    let user = certs::WATCHER.name;
    let start = |n| Lines::start(&mut Lines::ourselves(&shard::arguments(n, 2, &world.cluster, user)));
    let mut parts = [0, 1].map(start);
    for part in &parts {
        row.check(part.hear("synced", LIMIT).is_some(), "one of the processes was not synced");
    }
    let churn = Churn::start(world.api(), &[CONFIG_MAPS], world.seed ^ 8, Duration::from_millis(2));
    rest(seconds(2));
    world.cluster.kill_api();
    world.cluster.start_api();
    let back = Instant::now();
    rest(seconds(2));
    row.writes = churn.end();
    world.settle(row, back, LIMIT);
    let mut is = BTreeMap::new();
    until("the server lists", || {
        let version = |o: &Value| crate::api::number(&o["metadata"]["resourceVersion"]).unwrap_or(0);
        is = world.api().list_metadata(CONFIG_MAPS.all)?.0.iter().map(|(k, o)| (k.clone(), version(o))).collect();
        Ok(())
    });
    let end = Instant::now() + LIMIT;
    let divided = loop {
        let has = parts.each_mut().map(|part| {
            part.say("has");
            part.hear("has", LIMIT).and_then(|has| serde_json::from_str(&has).ok()).unwrap_or_default()
        });
        let sizes = has.each_ref().map(BTreeMap::len);
        let divided = shard::divided(&has, &is);
        if divided.is_ok() || Instant::now() >= end {
            row.notes.push(format!("{} and {} objects", sizes[0], sizes[1]));
            break divided;
        }
        rest(Duration::from_millis(50));
    };
    row.check(divided.is_ok(), divided.err().unwrap_or_default());
}

fn wiped(world: &mut World, row: &mut Row) {
    let began = Instant::now();
    for collection in [CONFIG_MAPS, PODS, WIDGETS] {
        empty(world, collection);
    }
    world.settle(row, began, LIMIT);
    let left: usize = world.crew.iter().map(|w| w.versions().keys().filter(|k| k.starts_with("e2e/")).count()).sum();
    row.check(left == 0, format!("{left} objects are left in stores"));
}

/// The whole collection, in as many requests as that takes.
fn empty(world: &World, collection: Collection) {
    until("the collection is empty", || {
        // The server may take longer for it than it is given here; it is asked again until nothing is left.
        let deleted = world.api().delete(collection.ours);
        let (left, _) = world.api().list_metadata(collection.ours)?;
        deleted?;
        if left.is_empty() { Ok(()) } else { Err(Refused(0, format!("{} are left", left.len()))) }
    });
}
