//! Replays what a real API server once answered to client-go's informer, and shows what this crate's informer made of
//! it, beside what client-go's did.
//!
//! ```text
//! cargo run --example replay -- tests/data/recordings/configmaps-expired.jsonl
//! cargo run --example replay -- tests/data/recordings/configmaps-cut-short.jsonl --engine decoupled
//! ```
//!
//! Runs on a clock that is moved by hand, so a recording of two minutes takes no time. Exits with 1 when the objects in
//! the end are not those that the server had, or when a handler was not told what the answers say; with 2 when the file
//! cannot be replayed.

#[path = "../tests/replay/mod.rs"]
mod replay;

use clap::{Parser, ValueEnum};
use informer::informer::Engine;
use replay::{Ledger, Outcome, Recording, Tale, same_story};
use std::{path::PathBuf, process::ExitCode, time::Duration};

/// Replays a recording of a real API server to an informer.
#[derive(Parser)]
struct Args {
    /// A file of tests/data/recordings/.
    file: PathBuf,
    /// On which threads the informer's stages run.
    #[arg(long, value_enum, default_value = "merged")]
    engine: Wiring,
}

#[derive(Clone, Copy, ValueEnum)]
enum Wiring {
    /// One thread reads the source, writes the store and fans out.
    Merged,
    /// A delta queue and a second thread in between.
    Decoupled,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match replay(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(2)
        }
    }
}

/// Replays and prints; whether all came out as it must.
fn replay(args: &Args) -> Result<bool, Box<dyn std::error::Error>> {
    let recording = Recording::read(&args.file)?;
    let engine = match args.engine {
        Wiring::Merged => Engine::Merged,
        Wiring::Decoupled => Engine::Decoupled,
    };
    println!("{}: {}", recording.scenario, recording.about);
    let expected = Ledger::expected(&recording);
    let client = recording.client_story.clone();
    let (client_lists, client_waits) = (recording.client_lists, recording.client_waits.clone());

    let outcome = replay::run(recording, engine)?;
    println!("\nstory, by key: +added, from→to, -deleted (-? found missing); what client-go told only where it differs");
    for (key, ours) in &outcome.ledger.story {
        println!("  {key}: {}", Tale(ours));
        let theirs = client.get(key).map_or(&[][..], Vec::as_slice);
        if !same_story(ours, theirs) {
            println!("  {:>width$}  {}", "client-go", Tale(theirs), width = key.len());
        }
    }
    for (key, theirs) in client.iter().filter(|(key, _)| !outcome.ledger.story.contains_key(*key)) {
        println!("  {key}: nothing\n  {:>width$}  {}", "client-go", Tale(theirs), width = key.len());
    }
    let told: usize = outcome.ledger.story.values().map(Vec::len).sum();
    println!(
        "\nevents told: {told}; by client-go, without updates to the same version: {}",
        client.values().map(Vec::len).sum::<usize>()
    );
    println!("lists needed: {}; by client-go: {client_lists}", outcome.replay.lists().len());
    print_waits(&outcome, &client_waits);

    let wrong = outcome.differences(&expected);
    if wrong.is_empty() {
        println!("in the end: the server's {} objects, with the versions and bodies that it served", outcome.truth.len());
    } else {
        println!("\nnot as it must be:");
        wrong.iter().for_each(|w| println!("  {w}"));
    }
    Ok(wrong.is_empty())
}

fn print_waits(outcome: &Outcome, client: &[Duration]) {
    let seconds = |waits: &[Duration]| match waits {
        [] => "no 410".to_owned(),
        some => some.iter().map(|w| format!("{:.3} s", w.as_secs_f64())).collect::<Vec<_>>().join(", "),
    };
    println!("from a 410 to the list: {}; by client-go: {}", seconds(&outcome.waits()), seconds(client));
}
