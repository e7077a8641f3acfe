//! What a real API server answered, replayed (`tests/data/recordings/`).
#![allow(clippy::disallowed_types, reason = "a user's code, with a user's locks")]

mod replay;

use informer::{
    flow::Cause,
    source::{ListParams, ListerWatcher, Next, Scope, SourceErrorKind, VersionMatch, WatchEvent, WatchParams},
    sync::{Deadline, ManualClock, Stop, Wake},
};
use replay::{Answer, Frame, Ledger, Pace, Recording, Replay, Told, deciding_frames, frame_lines, same_story};
use std::{collections::BTreeMap, ops::ControlFlow, path::PathBuf, time::Duration};

/// A file, and what is known of it beforehand.
struct Case {
    name: &'static str,
    /// Lists that we need, and that client-go needed.
    lists: usize,
    client_lists: usize,
    /// Relisted objects that are told to nobody.
    unchanged: usize,
    /// Frames that decide from where a resumed watch is asked.
    deciding: usize,
}

const fn case(name: &'static str, lists: usize, client_lists: usize, unchanged: usize, deciding: usize) -> Case {
    Case { name, lists, client_lists, unchanged, deciding }
}

const CASES: [Case; 17] = [
    case("configmaps-cut-short", 1, 2, 0, 4),
    case("configmaps-expired", 2, 2, 5, 1),
    case("configmaps-expired-watch-list", 2, 2, 4, 1),
    case("configmaps-idle-bookmarks", 1, 1, 0, 0),
    case("configmaps-list-watch", 1, 1, 0, 2),
    case("configmaps-paged", 1, 1, 0, 0),
    case("configmaps-paged-expired", 1, 1, 0, 0),
    case("configmaps-rights-revoked", 1, 4, 0, 1),
    case("configmaps-server-killed", 1, 1, 0, 1),
    case("configmaps-server-stopped", 2, 2, 17, 1),
    case("configmaps-watch-list", 1, 1, 0, 2),
    case("leases-storm", 1, 1, 0, 0),
    case("nodes-cluster-scoped", 1, 1, 0, 1),
    case("pods-lifecycle", 1, 1, 0, 0),
    case("pods-selector", 1, 1, 0, 1),
    case("widgets-custom", 1, 1, 0, 1),
    case("widgets-definition-removed", 2, 4, 0, 1),
];

/// The files where we keep our position and client-go listed again; they have the server's own history.
const WITH_HISTORY: [&str; 3] = ["configmaps-cut-short", "configmaps-rights-revoked", "widgets-definition-removed"];

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/recordings"))
}

fn file(name: &str) -> String {
    let path = folder().join(name).with_extension("jsonl");
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn recording(name: &str) -> Recording {
    Recording::parse(&file(name), None).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn assert_same_stories(name: &str, ours: &BTreeMap<String, Vec<Told>>, theirs: &BTreeMap<String, Vec<Told>>) {
    let keys = |s: &BTreeMap<String, Vec<Told>>| s.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(ours), keys(theirs), "{name}: keys of the story");
    for (key, story) in ours {
        assert!(same_story(story, &theirs[key]), "{name}: {key}: {story:?} against {:?}", theirs[key]);
    }
}

#[test]
fn every_file_of_the_folder_is_a_case() {
    let mut found: Vec<String> = std::fs::read_dir(folder())
        .expect("the folder")
        .map(|f| f.expect("a file").path())
        .filter(|p| p.extension().is_some_and(|e| e == "jsonl"))
        .map(|p| p.file_stem().expect("a name").to_string_lossy().into_owned())
        .filter(|name| name != "errors")
        .collect();
    found.sort();
    assert_eq!(found, CASES.map(|c| c.name));
}

/// The expectation itself, held against what the files say of the end and of client-go's handler.
#[test]
fn every_recording_agrees_with_itself() {
    for c in &CASES {
        let r = recording(c.name);
        let expected = Ledger::expected(&r);
        assert_eq!(r.scenario, c.name);
        assert_eq!(expected.versions(), r.truth, "{}: the end of the story is not the truth", c.name);
        assert_eq!(expected.unchanged, c.unchanged, "{}: relisted objects told to nobody", c.name);
        assert_eq!(expected.unknown, 0, "{}: deletes of unknown keys", c.name);
        assert_eq!(r.client_lists, c.client_lists, "{}: lists of client-go", c.name);
        assert_eq!(WITH_HISTORY.contains(&c.name), !r.history.is_empty(), "{}: history", c.name);

        if r.history.is_empty() {
            assert_same_stories(c.name, &expected.story, &r.client_story);
            continue;
        }
        // The story is the first state and then the history, whatever was listed across a gap; and what client-go was
        // answered, where it listed again, ends in the same objects.
        let mut plain = Ledger::default();
        let first = r.places.iter().find_map(|p| if let Answer::State(s) = &p.answer { Some(s) } else { None });
        plain.replace(first.expect("a first state").items(), Cause::Initial);
        r.history.iter().flat_map(|part| &part.events).for_each(|e| plain.watched(e));
        assert_same_stories(c.name, &expected.story, &plain.story);
        let listed = Ledger::expected(&Recording { history: Vec::new(), ..r });
        assert_eq!(listed.versions(), expected.versions(), "{}: with client-go's lists", c.name);
    }
}

/// What the replay serves to a caller that does nothing but list and watch, without waiting: the expected story.
#[test]
fn a_bare_list_and_watch_loop_is_served_the_expected_story() {
    for c in &CASES {
        let r = recording(c.name);
        let expected = Ledger::expected(&r);
        let (replay, served) = bare(r);
        assert_eq!(differences(&replay, &served, &expected), Vec::<String>::new(), "{}", c.name);
        assert_eq!(replay.lists().len(), c.lists, "{}: lists", c.name);
    }
}

#[test]
fn the_bare_loop_notices_each_frame_left_out_of_a_single_watch() {
    let text = file("pods-lifecycle");
    assert_eq!(frame_lines(&text), 69);
    notices(&text, 0..69);
}

#[test]
fn the_bare_loop_notices_the_frame_that_decides_where_a_watch_resumes() {
    for c in &CASES {
        let text = file(c.name);
        let deciding = deciding_frames(&text);
        assert_eq!(deciding.len(), c.deciding, "{}", c.name);
        notices(&text, deciding);
    }
}

fn notices(text: &str, frames: impl IntoIterator<Item = usize>) {
    let whole = Recording::parse(text, None).expect("a recording");
    let expected = Ledger::expected(&whole);
    for n in frames {
        let (replay, served) = bare(Recording::parse(text, Some(n)).expect("a recording"));
        let found = differences(&replay, &served, &expected);
        assert!(!found.is_empty(), "{}: nobody notices that frame {n} is left out", whole.scenario);
    }
}

/// Replays to the bare loop.
fn bare(r: Recording) -> (Replay, Ledger) {
    let clock = ManualClock::new();
    let pages_of = r.pages_of;
    let replay = Replay::new(r, &clock, Pace::AtOnce);
    let served = list_and_watch(&replay, &clock, pages_of);
    (replay, served)
}

/// In what the outcome of a replay is not the expected one.
fn differences(replay: &Replay, found: &Ledger, expected: &Ledger) -> Vec<String> {
    let unfinished = (!replay.is_over()).then(|| format!("the recording was not asked for to its end: {replay:?}"));
    replay.problems().into_iter().chain(unfinished).chain(found.differences(expected)).collect()
}

/// A request that the file cannot answer fails, and is put on record with what was asked.
#[test]
fn a_request_that_does_not_fit_is_a_problem() {
    let clock = ManualClock::new();
    let stop = Stop::with_clock(&clock);
    let begin = || Replay::new(recording("configmaps-expired"), &clock, Pace::AtOnce);
    let watch = |replay: &Replay, from: &str| replay.watch(&stop, &watch_from(from)).map(drop);

    let replay = begin();
    assert!(watch(&replay, "2031").is_err(), "a watch where the file has a list");
    assert_eq!(replay.problems().len(), 1);
    assert!(replay.problems()[0].contains("a watch from \"2031\""), "{:?}", replay.problems());

    let replay = begin();
    let list = |version| ListParams { version, limit: None, continue_token: None, scope: Scope::default() };
    let everything = |replay: &Replay, version| replay.list(&stop, &list(version), &mut |_| ControlFlow::Continue(()));
    assert_eq!(everything(&replay, VersionMatch::MostRecent).expect("a list").version, "2031");
    assert!(everything(&replay, VersionMatch::MostRecent).is_err(), "a list where the file has a watch");
    assert!(replay.is_over(), "a replay with a problem is over");

    let replay = begin();
    everything(&replay, VersionMatch::Any).expect("a list");
    assert!(watch(&replay, "2030").is_err(), "a watch from another version");

    // A stream that is closed with frames still to come.
    let replay = begin();
    everything(&replay, VersionMatch::Any).expect("a list");
    watch(&replay, "2031").expect("a watch");
    assert!(replay.problems()[0].contains("the closing of a stream"), "{:?}", replay.problems());

    // A probe of a silent watch is answered at any time, and moves nothing.
    let replay = begin();
    everything(&replay, VersionMatch::Any).expect("a list");
    let probe = ListParams { limit: Some(1), ..list(VersionMatch::NotOlderThan("2031".to_owned())) };
    replay.list(&stop, &probe, &mut |_| ControlFlow::Continue(())).expect("an answer");
    assert_eq!((replay.lists().len(), replay.problems().len()), (1, 0));
}

/// Lists, then watches, and asks again at once what was not answered; keeps its position as long as it can.
fn list_and_watch(source: &Replay, clock: &ManualClock, pages_of: Option<u32>) -> Ledger {
    let stop = Stop::with_clock(clock);
    let wake = Wake::new(&stop, clock);
    let mut store = Ledger::default();
    let mut cause = Cause::Initial;
    let mut start = if pages_of.is_some() { VersionMatch::MostRecent } else { VersionMatch::Any };
    let mut position: Option<String> = None;
    while source.problems().is_empty() {
        let Some(from) = position.clone() else {
            position = list(source, &stop, &start, pages_of).map(|(version, items)| {
                store.replace(items.iter(), std::mem::replace(&mut cause, Cause::Relist));
                version
            });
            continue;
        };
        let ended = match source.watch(&stop, &watch_from(&from)) {
            Err(e) => Some(e),
            Ok(mut stream) => loop {
                let frame = match stream.next(&wake, Deadline::at(clock.now())) {
                    Next::Event(WatchEvent::Added(o)) => Frame::Added(o),
                    Next::Event(WatchEvent::Modified(o)) => Frame::Modified(o),
                    Next::Event(WatchEvent::Deleted(o)) => Frame::Deleted(o),
                    Next::Event(WatchEvent::Bookmark { version }) => Frame::Bookmark(version),
                    Next::Failed(e) => break Some(e),
                    Next::End => break None,
                    Next::Deadline => return store,
                    other => panic!("unexpected {other:?}"),
                };
                store.watched(&frame);
                position = Some(frame.version().to_owned());
            },
        };
        if ended.is_some_and(|e| *e.kind() == SourceErrorKind::Expired) {
            start = VersionMatch::NotOlderThan(position.take().unwrap_or_default());
        }
    }
    store
}

/// One initial state: every page, or all at once when a page has expired. `None` when it was refused.
fn list(source: &Replay, stop: &Stop, start: &VersionMatch, pages_of: Option<u32>) -> Option<(String, Vec<serde_json::Value>)> {
    let mut items = Vec::new();
    let mut limit = pages_of;
    let mut continue_token = None;
    loop {
        let version = start.clone();
        let first = continue_token.is_none();
        let params = ListParams { version, limit, continue_token, scope: Scope::default() };
        let answer = source.list(stop, &params, &mut |item| {
            items.push(item.expect("a decoded object"));
            ControlFlow::Continue(())
        });
        continue_token = match answer {
            Ok(end) if end.continue_token.is_none() => return Some((end.version, items)),
            Ok(end) => end.continue_token,
            Err(e) if *e.kind() == SourceErrorKind::Expired && !first => {
                items.clear();
                limit = None;
                None
            }
            Err(_) => return None,
        };
    }
}

fn watch_from(version: &str) -> WatchParams {
    WatchParams { from: version.to_owned(), timeout: Duration::from_secs(300), bookmarks: true, scope: Scope::default() }
}
