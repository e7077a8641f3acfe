//! See `e2e/run`.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "the servers are real, and so is their time")]

mod api;
mod certs;
mod churn;
mod cluster;
mod compare;
mod etcd;
mod judge;
mod lines;
mod party;
mod phases;
mod shard;
mod watcher;
mod world;

use clap::{Parser, Subcommand};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    process::ExitCode,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};
use world::{Row, World};

/// The informer against a real kube-apiserver and etcd.
#[derive(Parser)]
#[command(name = "e2e/run")]
struct Args {
    /// Where etcd and kube-apiserver are.
    #[arg(long, hide = true)]
    servers: PathBuf,
    /// The program that runs client-go's informer.
    #[arg(long, hide = true)]
    peer: PathBuf,
    /// How long the API server is killed again and again.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Of everything that is chosen at random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Objects in the first phase.
    #[arg(long, default_value_t = 5000)]
    objects: usize,
    /// Only these phases, after the first, which makes the objects.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Names the phases.
    #[arg(long)]
    list: bool,
    /// Loses one of so many events on their way to the judge, who must notice.
    #[arg(long, default_value_t = 0, hide = true)]
    lose_every: u64,
    /// Tells the judge one of so many events twice.
    #[arg(long, default_value_t = 0, hide = true)]
    repeat_every: u64,
    /// Tells the judge one of so many changes with the content of before.
    #[arg(long, default_value_t = 0, hide = true)]
    stale_every: u64,
    #[command(subcommand)]
    command: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// Measures client-go, kube-runtime and this crate side by side.
    Compare(compare::Args),
    /// One party of the comparison.
    #[command(hide = true)]
    Party(party::Args),
    /// One of several processes that share a kind among them.
    #[command(hide = true)]
    Shard(shard::Args),
}

fn main() -> ExitCode {
    let args = Args::parse();
    match &args.command {
        Some(What::Party(args)) => {
            party::run(args);
            return ExitCode::SUCCESS;
        }
        Some(What::Shard(args)) => {
            shard::run(args);
            return ExitCode::SUCCESS;
        }
        Some(What::Compare(_)) | None => {}
    }
    if args.list {
        for phase in phases::ALL {
            println!("{:<12} {}", phase.name, phase.about);
        }
        return ExitCode::SUCCESS;
    }
    if let Some(unknown) = args.only.iter().find(|o| phases::ALL.iter().all(|p| p.name != **o)) {
        eprintln!("there is no phase {unknown}; see --list");
        return ExitCode::from(2);
    }
    let planted = &judge::PLANTED;
    for (to, every) in
        [(&planted.lost, args.lose_every), (&planted.repeated, args.repeat_every), (&planted.stale, args.stale_every)]
    {
        to.store(every, Ordering::Relaxed);
    }
    end_in_order_when_told();
    if let Some(What::Compare(compare)) = &args.command {
        compare::run(&args.servers, &args.peer, compare, args.objects);
        return ExitCode::SUCCESS;
    }
    run(&args)
}

/// SIGINT and SIGTERM end the program where it looks for them, so that everything is dropped; a second one, or ten
/// seconds, end it at once, and the kernel ends its children.
fn end_in_order_when_told() {
    use signal_hook::{consts::signal, iterator::Signals};
    let mut signals = Signals::new([signal::SIGINT, signal::SIGTERM, signal::SIGHUP]).expect("signals can be listened to");
    thread::spawn(move || {
        for _ in signals.forever() {
            if cluster::INTERRUPTED.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
            thread::spawn(|| {
                thread::sleep(Duration::from_secs(10));
                std::process::exit(130);
            });
        }
    });
}

/// Runs the phases one after the other.
fn run(args: &Args) -> ExitCode {
    let began = Instant::now();
    println!("starting etcd and kube-apiserver");
    let mut world = World::new(&args.servers, args.seconds, args.seed, args.objects);
    println!("both serve after {:.1} s; seed {}", began.elapsed().as_secs_f64(), args.seed);
    let mut rows = Vec::new();
    for (n, phase) in phases::ALL.iter().enumerate() {
        if n > 0 && !args.only.is_empty() && args.only.iter().all(|o| o != phase.name) {
            continue;
        }
        println!("--- {}: {}", phase.name, phase.about);
        let begun = Instant::now();
        let mut row = Row { phase: phase.name.to_owned(), ..Row::default() };
        let ended = catch_unwind(AssertUnwindSafe(|| (phase.run)(&mut world, &mut row)));
        row.took = begun.elapsed();
        let died = ended.is_err();
        if died {
            row.failed.push("the phase could not be carried out; see above".into());
        }
        for failure in &row.failed {
            println!("FAILED: {failure}");
        }
        println!("{}", line(&row));
        let clean = row.failed.is_empty();
        rows.push(row);
        if died || cluster::INTERRUPTED.load(Ordering::Relaxed) {
            break;
        }
        if !clean {
            world.end_crew(&mut Row::default());
            world.start_crew();
            // One that is not synced fails the next phase.
            let (_, _agreed) = world::agree(world.api(), &world.crew, Duration::from_secs(60));
        }
    }
    let mut end = Row { phase: "end".into(), ..Row::default() };
    world.end_crew(&mut end);
    rows.push(end);
    drop(world);
    println!("\n{}", HEAD);
    for row in &rows {
        println!("{}", line(row));
    }
    let (passed, failed) = rows.iter().fold((0, 0), |(p, f), r| (p + r.passed, f + r.failed.len()));
    println!("\n{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

const HEAD: &str = "phase         writes   events  lists  lost  repeated  agreed after     took  passed  failed";

fn line(r: &Row) -> String {
    let agreed = r.agreed.map_or("-".to_owned(), |d| format!("{:.2} s", d.as_secs_f64()));
    format!(
        "{:<12} {:>7} {:>8} {:>6} {:>5} {:>9} {:>13} {:>6.1} s {:>7} {:>7}  {}",
        r.phase,
        r.writes,
        r.events,
        r.lists,
        r.lost,
        r.repeated,
        agreed,
        r.took.as_secs_f64(),
        r.passed,
        r.failed.len(),
        r.notes.join(", ")
    )
}
