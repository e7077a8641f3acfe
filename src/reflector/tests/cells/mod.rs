//! The table "What a failure does", cell by cell: what was told (kind, action, wait, reason of a list) and when what was
//! asked for next.

mod listing;
mod streaming;
mod watching;

use super::{script::*, *};
use crate::{reflector::Ending, source::SourceErrorKind as Kind};

const REASON: fn(u16, &str) -> Kind = |code, reason| Kind::Server { code, reason: reason.to_owned(), retry_after: None };
const ADVICE: Option<Duration> = Some(Duration::from_secs(7));

fn server(code: u16) -> Kind {
    REASON(code, "")
}

fn too_large() -> Kind {
    Kind::TooLargeVersion { retry_after: ADVICE }
}

/// Runs for 20 s and compares the story.
#[track_caller]
fn cell(script: Script, expected: &[&str]) {
    sink_cell(script, Recorder::default(), expected);
}

#[track_caller]
fn sink_cell(script: Script, sink: Recorder, expected: &[&str]) {
    let mut w = World::start_with(script, sink, |b| b);
    w.advance(20.0);
    assert_eq!(w.story(), expected);
    assert_eq!(w.stop(), Ok(()));
}

/// The first list fails so.
fn first_list(kind: Kind) -> Script {
    Script::new().list_fails(kind).list("10: a@1")
}

/// A list with a version fails so: the one that follows a 410.
fn later_list(kind: Kind) -> Script {
    Script::new().list("10: a@1").watch_breaks("", Kind::Expired).list_fails(kind).list("20: a@1")
}

const LATER: [&str; 5] =
    ["0 list any limit 500", "0 watch 10", "0 ! Stream Expired: InitialState after 0", "0 because Expired", "0 list >=10"];

fn later(rest: &[&'static str]) -> Vec<&'static str> {
    [&LATER[..], rest].concat()
}
