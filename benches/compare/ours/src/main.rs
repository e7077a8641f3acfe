//! Compares ours with the real client-go, row by row of the targets.
//!
//! `compare PEER [--rows T1,T12] [--rounds N] [--json]` runs the peer's program and this one in turn, each row a process
//! of its own, and takes the median of the rounds. `compare measure ROW [RIVAL]` is one such process. A row is met when
//! ours is at least as good as its target, a ratio to the peer's figure of the same run. Rivals in Rust are shown beside
//! and decide nothing.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a bench measures real time")]

mod report;
mod t11_store_bytes;
mod t12_fifo;
mod t14_informer;
mod t1_queue;
mod t5_store_read;
mod t6_store_busy;
mod t9_store_write;

use report::Line;
use std::process::{Command, ExitCode};

/// A question that both sides answer with a figure.
struct Row {
    id: &'static str,
    what: &'static str,
    unit: &'static str,
    /// What ours may be at most, or must be at least, in terms of the peer's.
    target: Target,
    /// The peer's figure on the machine on which the targets were set, in PEERS.
    before: f64,
    measure: fn() -> f64,
}

#[derive(Clone, Copy)]
enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// Ours by itself, at most. The peer is asked if it knows the row, and decides nothing.
    Alone(f64),
}

/// Another form in Rust that answers the question of a row: the row, the form, the measurement.
struct Beside(&'static str, &'static str, fn() -> f64);

const ROWS: &[&[Row]] = &[
    t1_queue::ROWS,
    t5_store_read::ROWS,
    t6_store_busy::ROWS,
    t9_store_write::ROWS,
    t11_store_bytes::ROWS,
    t12_fifo::ROWS,
    t14_informer::ROWS,
];

const BESIDE: &[&[Beside]] = &[t5_store_read::BESIDE, t6_store_busy::BESIDE, t9_store_write::BESIDE, t11_store_bytes::BESIDE];

struct Options {
    peer: String,
    rows: Vec<String>,
    rounds: usize,
    json: bool,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [word, asked @ ..] = &*args
        && word == "measure"
    {
        let Some(measure) = measurement(asked) else {
            eprintln!("compare: there is no row {}", asked.join(" with "));
            return ExitCode::from(2);
        };
        println!("{}", measure());
        return ExitCode::SUCCESS;
    }
    match options(&args).and_then(|options| compare(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("compare: {e}");
            ExitCode::from(2)
        }
    }
}

fn rows() -> impl Iterator<Item = &'static Row> {
    ROWS.iter().copied().flatten()
}

fn beside(id: &str) -> impl Iterator<Item = &'static Beside> {
    BESIDE.iter().copied().flatten().filter(move |beside| beside.0 == id)
}

fn measurement(asked: &[String]) -> Option<fn() -> f64> {
    match asked {
        [id] => rows().find(|row| row.id == *id).map(|row| row.measure),
        [id, name] => beside(id).find(|beside| beside.1 == *name).map(|beside| beside.2),
        _ => None,
    }
}

fn options(args: &[String]) -> Result<Options, String> {
    let mut args = args.iter();
    let peer = args.next().ok_or("usage: compare PEER [--rows T1,T12] [--rounds N] [--json]")?.clone();
    let mut options = Options { peer, rows: Vec::new(), rounds: 5, json: false };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} wants a value"));
        match &**arg {
            "--rows" => options.rows = value()?.split(',').map(str::to_owned).collect(),
            "--rounds" => options.rounds = value()?.parse().map_err(|e| format!("--rounds: {e}"))?,
            "--json" => options.json = true,
            other => return Err(format!("{other} is no option")),
        }
    }
    for wanted in &options.rows {
        if !rows().any(|row| is_wanted(row, wanted)) {
            return Err(format!("there is no row {wanted}"));
        }
    }
    Ok(options)
}

/// `T12` stands for all its parts, `T12.one` for one.
fn is_wanted(row: &Row, wanted: &str) -> bool {
    row.id == wanted || row.id.split('.').next() == Some(wanted)
}

fn compare(options: &Options) -> Result<(), String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut lines = Vec::new();
    for row in rows().filter(|row| options.rows.is_empty() || options.rows.iter().any(|wanted| is_wanted(row, wanted))) {
        let (mut ours, mut peer) = (Vec::new(), Vec::new());
        let mut rivals: Vec<_> = beside(row.id).map(|Beside(_, name, _)| (*name, Vec::new())).collect();
        for _ in 0..options.rounds.max(1) {
            peer.extend(match figure(Command::new(&options.peer).arg(row.id)) {
                Err(_) if matches!(row.target, Target::Alone(_)) => None,
                figure => Some(figure?),
            });
            ours.push(figure(Command::new(&me).args(["measure", row.id]))?);
            for (name, figures) in &mut rivals {
                figures.push(figure(Command::new(&me).args(["measure", row.id, name]))?);
            }
        }
        let line = Line::new(row, &mut ours, &mut peer, rivals);
        if !options.json {
            println!("{}", line.text());
        }
        lines.push(line);
    }
    if options.json {
        println!("{}", report::json(&lines));
    } else {
        println!("{}", report::summary(&lines));
    }
    Ok(())
}

fn figure(command: &mut Command) -> Result<f64, String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|e| format!("{command:?} printed {text:?}: {e}"))
}
