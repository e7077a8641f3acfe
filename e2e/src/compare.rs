//! client-go's informer, kube-runtime's reflector and ours, each in a process of its own, side by side on one server.
//!
//! Each party watches the same config maps with its own defaults, as the same ordinary user, and is asked the same
//! question: when did you have exactly these objects in these versions? Prints the table that is kept in
//! `docs/PARITY.md`.

use crate::{
    api::Api,
    certs,
    churn::{Churn, fill},
    cluster::{Cluster, rest},
    etcd::encode,
    lines::Lines,
    party::{micros, of},
    watcher::{CONFIG_MAPS, change, path},
    world::{FLAGS, grant, prepare, revoke, until},
};
use serde_json::{Value, json};
use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

#[derive(clap::Args)]
pub struct Args {
    /// Outages that end with a 410; restarts are twice as many and one.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long each party is given to agree.
    #[arg(long, default_value_t = 60)]
    limit: u64,
    /// How long they are given after etcd was put back to an older copy.
    #[arg(long, default_value_t = 240)]
    restored: u64,
    /// Only these faults.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

#[derive(Clone, Copy)]
struct Who {
    name: &'static str,
    /// The word for `e2e party`; none for client-go's program.
    word: Option<&'static str>,
}

const OURS: Who = Who { name: "this crate", word: Some("ours") };
const OURS_STREAMED: Who = Who { name: "this crate, streamed list", word: Some("ours-streamed") };
const CLIENT_GO: Who = Who { name: "client-go", word: None };
const KUBE_RUNTIME: Who = Who { name: "kube-runtime", word: Some("kube-runtime") };
const KUBE_STREAMED: Who = Who { name: "kube-runtime, streamed list", word: Some("kube-runtime-streamed") };

struct Party {
    who: Who,
    lines: Lines,
    expected: u64,
}

impl Party {
    fn start(who: Who, peer: &Path, cluster: &Cluster) -> Self {
        let (dir, port, user) = (cluster.dir(), cluster.api_port(), certs::WATCHER.name);
        let mut command = match who.word {
            Some(word) => {
                let (port, dir) = (port.to_string(), dir.display().to_string());
                let args = ["party", word, "--port", &port, "--dir", &dir, "--user", user, "--namespace", "e2e"];
                Lines::ourselves(&args.map(str::to_owned))
            }
            None => {
                let mut command = Command::new(peer);
                command.args(["-host", &format!("https://127.0.0.1:{port}"), "-user", user, "-namespace", "e2e"]);
                command.arg("-dir").arg(dir);
                command
            }
        };
        let log = fs::File::create(dir.join(format!("party-{}.log", micros()))).expect("a log can be written");
        Self { who, lines: Lines::start(command.stderr(log)), expected: 0 }
    }

    /// The words of the next line that begins with this one.
    fn hear(&self, word: &str, limit: Duration) -> Option<Vec<String>> {
        let said = self.lines.hear(word, limit)?;
        Some(said.split_whitespace().map(str::to_owned).collect())
    }

    /// From the start of its informer until its handler had been told everything; and how many objects.
    fn synced(&self) -> (Duration, usize) {
        let said = self.hear("synced", Duration::from_secs(120)).unwrap_or_else(|| panic!("{} was not synced", self.who.name));
        let number = |i: usize| said.get(i).and_then(|w| w.parse::<u64>().ok()).unwrap_or(0);
        (Duration::from_micros(number(0)), number(1) as usize)
    }

    fn expect(&mut self, (count, digest): (usize, u64)) {
        self.expected += 1;
        let line = format!("expect {} {count} {digest}", self.expected);
        self.lines.say(&line);
    }

    /// When it came to have what is expected, in microseconds of the wall clock.
    fn agreed(&self, limit: Duration) -> Option<u64> {
        let end = Instant::now() + limit;
        loop {
            let said = self.hear("agreed", end.saturating_duration_since(Instant::now()))?;
            // An answer to an earlier question may come late.
            if said.first().and_then(|n| n.parse().ok()) == Some(self.expected) {
                return said.get(1).and_then(|w| w.parse().ok());
            }
        }
    }

    fn stats(&mut self) -> Stats {
        self.lines.say("stats");
        let said = self.hear("stats", Duration::from_secs(10)).unwrap_or_default().concat();
        let stats: Value = serde_json::from_str(&said).unwrap_or_default();
        let number = |name: &str| stats[name].as_u64().unwrap_or(0);
        let peak = stats["peak_kb"].as_str().and_then(|t| t.parse().ok()).unwrap_or(0);
        let to_list = Some(number("to_list")).filter(|n| *n > 0).map(|n| n as f64 / 1e6);
        Stats { events: number("events"), lists: number("lists"), bytes: number("bytes"), peak, cpu: self.cpu(), to_list }
    }

    /// What it has used of processors so far.
    fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.lines.running.pid())).unwrap_or_default();
        // The name, in parentheses, may hold spaces.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = [11, 12].iter().filter_map(|&i| fields.get(i)?.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
    }
}

#[derive(Clone, Copy, Default)]
struct Stats {
    events: u64,
    lists: u64,
    bytes: u64,
    /// In kB.
    peak: u64,
    cpu: Duration,
    /// Seconds from the 410 that a watch was answered to the list; of the last since it was asked last.
    to_list: Option<f64>,
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    match all.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => all[n / 2],
        n => f64::midpoint(all[n / 2 - 1], all[n / 2]),
    }
}

/// What the server has: how many, and the digest.
fn truth(api: &Api) -> (usize, u64) {
    let mut is = (0, 0u64);
    until("the server lists", || {
        let (objects, _) = api.list_metadata(CONFIG_MAPS.ours)?;
        let version = |o: &Value| o["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let digest = objects.iter().map(|(key, o)| of(key, &version(o))).fold(0, u64::wrapping_add);
        is = (objects.len(), digest);
        Ok(())
    });
    is
}

struct Stage {
    cluster: Cluster,
    parties: Vec<Party>,
    limit: Duration,
    written: u64,
}

impl Stage {
    /// Changes an object.
    fn touch(&mut self) {
        self.written += 1;
        // A number that no object was made with, else nothing would change.
        let n = 1_000_000 + self.written;
        until("an object can be changed", || {
            self.cluster.admin.patch(&path(CONFIG_MAPS, &format!("many-{:05}", n % 50)), &change(CONFIG_MAPS, n)).map(drop)
        });
    }

    /// One change after the server is whole again, and then for each party how long after that moment it agreed.
    fn agreement(&mut self, back: u64, limit: Duration) -> Vec<Option<f64>> {
        self.touch();
        self.expect(back, limit)
    }

    fn expect(&mut self, back: u64, limit: Duration) -> Vec<Option<f64>> {
        let is = truth(&self.cluster.admin);
        for party in &mut self.parties {
            party.expect(is);
        }
        let end = Instant::now() + limit;
        let since = |at: u64| at.saturating_sub(back) as f64 / 1e6;
        let ask = |p: &Party| p.agreed(end.saturating_duration_since(Instant::now())).map(since);
        self.parties.iter().map(ask).collect()
    }

    /// All agree, so that the next fault begins with everybody well. Says who had to be started anew.
    fn recover(&mut self, peer: &Path) {
        let fine = self.agreement(micros(), self.limit.min(Duration::from_secs(40)));
        for (party, fine) in self.parties.iter_mut().zip(fine) {
            if fine.is_none() {
                *party = Party::start(party.who, peer, &self.cluster);
                party.synced();
            }
        }
    }
}

type Fault = (&'static str, &'static str, fn(&mut Stage) -> u64);

/// Each does something to the server, and tells when it is whole again.
const FAULTS: &[Fault] = &[
    ("restart", "killed and started at once", |s| {
        s.cluster.kill_api();
        s.cluster.start_api();
        micros()
    }),
    ("outage-410", "away for 6 s, versions moved on and history compacted meanwhile: every watch is answered 410", |s| {
        s.cluster.kill_api();
        for n in 0..5 {
            let put = json!({"key": encode("/e2e/bump"), "value": encode(&n.to_string())});
            s.cluster.etcd_post("/v3/kv/put", &put.to_string()).expect("etcd takes a value");
        }
        s.cluster.compact();
        rest(Duration::from_secs(6));
        s.cluster.start_api();
        micros()
    }),
    ("orderly", "told to end, started again", |s| {
        s.cluster.stop_api(Duration::from_secs(20));
        s.cluster.start_api();
        micros()
    }),
    ("half-open", "neither answers nor hangs up for 20 s", |s| {
        s.cluster.pause_api();
        rest(Duration::from_secs(20));
        s.cluster.resume_api();
        micros()
    }),
    ("rights", "no right to list and watch, across a restart, for 10 s", |s| {
        revoke(&s.cluster.admin);
        s.cluster.kill_api();
        s.cluster.start_api();
        rest(Duration::from_secs(10));
        grant(&s.cluster.admin);
        micros()
    }),
    ("overload", "answers one request at a time and 429 to others for 10 s, after a restart", |s| {
        let mut flags = FLAGS.to_vec();
        flags.extend(["--enable-priority-and-fairness=false", "--max-requests-inflight=1"]);
        s.cluster.set_flags(&flags);
        s.cluster.kill_api();
        let flooder = Api::new(s.cluster.dir(), s.cluster.api_port(), &certs::FLOODER);
        let end = Instant::now() + Duration::from_secs(16);
        let flood: Vec<_> = (0..4)
            .map(|_| {
                let flooder = flooder.clone();
                thread::spawn(move || {
                    while Instant::now() < end {
                        if let Err(crate::api::Refused(code, _)) = flooder.get(CONFIG_MAPS.all)
                            && code != 429
                        {
                            thread::sleep(Duration::from_millis(20));
                        }
                    }
                })
            })
            .collect();
        s.cluster.start_api();
        for thread in flood {
            thread.join().expect("who asks too much does not panic");
        }
        s.cluster.set_flags(FLAGS);
        micros()
    }),
];

pub fn run(servers: &Path, peer: &Path, args: &Args, objects: usize) {
    println!("starting etcd and kube-apiserver");
    let cluster = Cluster::start(servers, FLAGS);
    prepare(&cluster.admin);
    fill(&cluster.admin, CONFIG_MAPS, "many", objects);
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|o| o == name);
    if wanted("sync") {
        sync(&cluster, peer, args.rounds);
    }
    let all = [OURS, CLIENT_GO, KUBE_RUNTIME];
    let parties: Vec<Party> = all.iter().map(|&w| Party::start(w, peer, &cluster)).collect();
    let mut stage = Stage { cluster, parties, limit: Duration::from_secs(args.limit), written: 0 };
    for party in &stage.parties {
        party.synced();
    }
    if wanted("churn") {
        churn(&mut stage);
    }
    println!(
        "\nSeconds from \"the server is whole again\" (`/readyz` is 200) to agreement: median (least to most), lists asked.\n"
    );
    println!("| fault | rounds | {} |", all.map(|w| w.name).join(" | "));
    println!("|---|---|---|---|---|");
    for (name, about, fault) in FAULTS {
        if !wanted(name) {
            continue;
        }
        let rounds = match *name {
            "restart" => 2 * args.rounds + 1,
            "outage-410" => args.rounds,
            _ => args.rounds.min(3),
        };
        faulted(&mut stage, peer, (name, about, *fault), rounds);
    }
    if wanted("restored") {
        restored(&mut stage, Duration::from_secs(args.restored));
    }
}

fn cell(all: &[Option<f64>], limit: Duration, lists: u64, to_list: Vec<f64>) -> String {
    let came: Vec<f64> = all.iter().flatten().copied().collect();
    let never = all.len() - came.len();
    let never = if never == 0 { String::new() } else { format!(" {never}× not within {} s", limit.as_secs()) };
    if came.is_empty() {
        return format!("never{never}, {lists} lists");
    }
    let to_list = if to_list.is_empty() { String::new() } else { format!(", {:.2} from 410 to list", median(to_list)) };
    let least = came.iter().copied().fold(f64::INFINITY, f64::min);
    let most = came.iter().copied().fold(0.0, f64::max);
    format!("{:.2} ({least:.2} to {most:.2}){never}, {lists} lists{to_list}", median(came))
}

fn faulted(stage: &mut Stage, peer: &Path, (name, about, fault): Fault, rounds: usize) {
    let mut all: Vec<Vec<Option<f64>>> = Vec::new();
    let before: Vec<u64> = stage.parties.iter_mut().map(|p| p.stats().lists).collect();
    let mut to_list = vec![Vec::new(); stage.parties.len()];
    let mut fresh = false;
    for _ in 0..rounds {
        let back = fault(stage);
        let agreed = stage.agreement(back, stage.limit);
        for (party, all) in stage.parties.iter_mut().zip(&mut to_list) {
            all.extend(party.stats().to_list);
        }
        fresh |= agreed.iter().any(Option::is_none);
        eprintln!("{name}: {agreed:.2?}");
        all.push(agreed);
        stage.recover(peer);
        // Backoffs of the round before are forgotten, or not, as each party does it.
        rest(Duration::from_millis(500));
    }
    let lists: Vec<u64> = stage.parties.iter_mut().zip(before).map(|(p, b)| p.stats().lists.saturating_sub(b)).collect();
    let of = |i: usize| all.iter().map(|row| row[i]).collect::<Vec<_>>();
    let cells: Vec<String> = (0..stage.parties.len()).map(|i| cell(&of(i), stage.limit, lists[i], to_list[i].clone())).collect();
    println!("| {name}: {about} | {rounds} | {} |", cells.join(" | "));
    let pairs: Vec<(f64, f64)> = all.iter().filter_map(|row| Some((row[0]?, row[1]?))).collect();
    let ratio = median(pairs.iter().map(|p| p.0).collect()) / median(pairs.iter().map(|p| p.1).collect());
    let paired = median(pairs.iter().map(|p| p.0 - p.1).collect());
    eprintln!(
        "{name}: ours is {ratio:.2}× of client-go's median, and {paired:+.3} s in the paired median; in order {all:?}{}",
        if fresh { "; who did not agree was started anew" } else { "" }
    );
}

/// Each party alone, from nothing to synced.
fn sync(cluster: &Cluster, peer: &Path, rounds: usize) {
    let all = [OURS, OURS_STREAMED, CLIENT_GO, KUBE_RUNTIME, KUBE_STREAMED];
    let mut found: Vec<Vec<(Duration, Stats, usize)>> = vec![Vec::new(); all.len()];
    for round in 0..rounds {
        for turn in 0..all.len() {
            let i = (round + turn) % all.len();
            let mut party = Party::start(all[i], peer, cluster);
            let (took, objects) = party.synced();
            found[i].push((took, party.stats(), objects));
        }
    }
    println!("\nFrom nothing to synced, each alone, median of {rounds}:\n");
    println!("| party | objects | ms | peak memory, MB | requests | bytes received, MB |\n|---|---|---|---|---|---|");
    for (who, found) in all.iter().zip(found) {
        let of = |f: &dyn Fn(&(Duration, Stats, usize)) -> f64| median(found.iter().map(f).collect());
        println!(
            "| {} | {} | {:.0} | {:.1} | {:.0} | {:.2} |",
            who.name,
            found[0].2,
            of(&|f| f.0.as_secs_f64() * 1e3),
            of(&|f| f.1.peak as f64 / 1024.0),
            of(&|f| f.1.lists as f64),
            of(&|f| f.1.bytes as f64 / 1e6)
        );
    }
}

/// All at once, while two writers write as fast as the server lets them.
fn churn(stage: &mut Stage) {
    let before: Vec<Stats> = stage.parties.iter_mut().map(Party::stats).collect();
    let began = Instant::now();
    let churn = Churn::changes(&stage.cluster.admin, 10);
    rest(Duration::from_secs(10));
    let written = churn.end();
    let took = began.elapsed().as_secs_f64();
    let agreed = stage.expect(micros(), stage.limit);
    println!("\nUnder churn, side by side: {written} writes in {took:.1} s ({:.0} a second).\n", written as f64 / took);
    println!("| party | events | events/s | processor time per event, µs | agreed |\n|---|---|---|---|---|");
    for ((party, before), agreed) in stage.parties.iter_mut().zip(before).zip(agreed) {
        let now = party.stats();
        let events = now.events - before.events;
        let cpu = (now.cpu.saturating_sub(before.cpu)).as_secs_f64() * 1e6 / events.max(1) as f64;
        let agreed = if agreed.is_some() { "yes" } else { "no" };
        println!("| {} | {events} | {:.0} | {cpu:.0} | {agreed} |", party.who.name, events as f64 / took);
    }
}

/// etcd is put back to an older copy: versions go back, and nothing tells.
fn restored(stage: &mut Stage, limit: Duration) {
    stage.cluster.kill_api();
    stage.cluster.kill_etcd();
    stage.cluster.back_up();
    stage.cluster.start_etcd();
    stage.cluster.start_api();
    for _ in 0..300 {
        stage.touch();
    }
    stage.expect(micros(), stage.limit);
    stage.cluster.kill_api();
    stage.cluster.kill_etcd();
    stage.cluster.restore();
    stage.cluster.start_etcd();
    stage.cluster.start_api();
    let before: Vec<u64> = stage.parties.iter_mut().map(|p| p.stats().lists).collect();
    let agreed = stage.agreement(micros(), limit);
    let cells: Vec<String> = stage
        .parties
        .iter_mut()
        .zip(agreed)
        .zip(before)
        .map(|((p, a), b)| cell(&[a], limit, p.stats().lists.saturating_sub(b), Vec::new()))
        .collect();
    println!("| restored: etcd put back to an older copy, versions begin again | 1 | {} |", cells.join(" | "));
}
