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
use std::{
    fmt::Write as _,
    io::{ErrorKind, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

/// Replays a recording of a real API server to an informer.
#[derive(Parser)]
struct Args {
    /// A recording: a file of tests/data/recordings/ (errors.jsonl, a collection of single requests, is none).
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
    let mut report = String::new();
    let outcome = replay(&args, &mut report);
    // A reader that has seen enough (`| head`) is no failure.
    let shown = std::io::stdout().write_all(report.as_bytes());
    let shown = shown.or_else(|e| if e.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(e) });
    match outcome.and_then(|right| Ok(shown.map(|()| right)?)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(2)
        }
    }
}

/// Replays and writes the report; whether all came out as it must.
fn replay(args: &Args, report: &mut String) -> Result<bool, Box<dyn std::error::Error>> {
    let recording = Recording::read(&args.file).map_err(|e| format!("{}: {e}", args.file.display()))?;
    let engine = match args.engine {
        Wiring::Merged => Engine::Merged,
        Wiring::Decoupled => Engine::Decoupled,
    };
    writeln!(report, "{}: {}", recording.scenario, recording.about)?;
    let expected = Ledger::expected(&recording);
    let client = recording.client_story.clone();
    let (client_lists, client_waits) = (recording.client_lists, recording.client_waits.clone());

    let outcome = replay::run(recording, engine)?;
    writeln!(report, "\nstory, by key: +added, from→to, -deleted (-? found missing); what client-go told only where it differs")?;
    for (key, ours) in &outcome.ledger.story {
        writeln!(report, "  {key}: {}", Tale(ours))?;
        let theirs = client.get(key).map_or(&[][..], Vec::as_slice);
        if !same_story(ours, theirs) {
            writeln!(report, "  {:>width$}  {}", "client-go", Tale(theirs), width = key.len())?;
        }
    }
    for (key, theirs) in client.iter().filter(|(key, _)| !outcome.ledger.story.contains_key(*key)) {
        writeln!(report, "  {key}: nothing\n  {:>width$}  {}", "client-go", Tale(theirs), width = key.len())?;
    }
    let told: usize = outcome.ledger.story.values().map(Vec::len).sum();
    writeln!(
        report,
        "\nevents told: {told}; by client-go, without updates to the same version: {}",
        client.values().map(Vec::len).sum::<usize>()
    )?;
    writeln!(report, "lists needed: {}; by client-go: {client_lists}", outcome.replay.lists().len())?;
    write_waits(report, &outcome, &client_waits)?;

    let wrong = outcome.differences(&expected);
    if wrong.is_empty() {
        writeln!(
            report,
            "in the end: the server's {} objects, with the versions and bodies that it served",
            outcome.truth.len()
        )?;
    } else {
        writeln!(report, "\nnot as it must be:")?;
        for w in &wrong {
            writeln!(report, "  {w}")?;
        }
    }
    Ok(wrong.is_empty())
}

fn write_waits(report: &mut String, outcome: &Outcome, client: &[Duration]) -> std::fmt::Result {
    let seconds = |waits: &[Duration]| match waits {
        [] => "no 410".to_owned(),
        some => some.iter().map(|w| format!("{:.3} s", w.as_secs_f64())).collect::<Vec<_>>().join(", "),
    };
    writeln!(report, "from a 410 to the list, not spread here: {}; by client-go: {}", seconds(&outcome.waits()), seconds(client))
}
