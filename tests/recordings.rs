//! What a real API server answered, replayed (`tests/data/recordings/`).
#![allow(clippy::disallowed_types, reason = "a user's code, with a user's locks")]

mod replay;

use informer::{
    flow::Cause,
    informer::Engine,
    source::{ListParams, ListerWatcher, Next, Scope, SourceErrorKind, VersionMatch, WatchEvent, WatchParams},
    sync::{Deadline, ManualClock, Stop, Wake},
};
use replay::{
    Answer, Form, Frame, Ledger, Outcome, Pace, Recording, Replay, Tale, Told, deciding_frames, frame_lines, key_of, same_story,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    path::PathBuf,
    time::Duration,
};

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

/// The files in which a watch is told that its version is too old.
const WITH_410: [&str; 4] =
    ["configmaps-expired", "configmaps-expired-watch-list", "configmaps-server-stopped", "widgets-definition-removed"];

const ENGINES: [Engine; 2] = [Engine::Merged, Engine::Decoupled];

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
        assert!(same_story(story, &theirs[key]), "{name}: {key}: {} against {}", Tale(story), Tale(&theirs[key]));
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
    let (pages_of, scope) = (r.pages_of, r.scope.clone());
    let replay = Replay::new(r, &clock, Pace::AtOnce);
    let served = list_and_watch(&replay, &clock, pages_of, &scope);
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
    assert!(replay.problems()[0].contains("a watch (\"2031\""), "{:?}", replay.problems());

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

    // A streamed state, where a list may be asked for only; and one of another version.
    let streamed = |from: &str| WatchParams { initial_events: true, ..watch_from(from) };
    let replay = begin();
    assert!(replay.watch(&stop, &streamed("")).is_err());
    let replay = Replay::in_form(Form::Streamed, recording("configmaps-watch-list"), &clock, Pace::AtOnce);
    replay.watch(&stop, &streamed("")).expect("the first state");
    assert!(replay.watch(&stop, &streamed("1")).is_err(), "a state where the file has a watch");
    assert!(replay.problems().last().expect("a problem").contains("a streamed state (\"1\""), "{:?}", replay.problems());

    // A request for other objects, and a watch that would be sent no bookmarks.
    for params in [
        WatchParams { scope: Scope { labels: Some("a=b".to_owned()), ..Scope::default() }, ..watch_from("2031") },
        WatchParams { bookmarks: false, ..watch_from("2031") },
    ] {
        let replay = begin();
        everything(&replay, VersionMatch::Any).expect("a list");
        assert!(replay.watch(&stop, &params).is_err(), "{params:?}");
    }

    // A probe of a silent watch is answered at any time, and moves nothing.
    let replay = begin();
    everything(&replay, VersionMatch::Any).expect("a list");
    let probe = ListParams { limit: Some(1), ..list(VersionMatch::NotOlderThan("2031".to_owned())) };
    replay.list(&stop, &probe, &mut |_| ControlFlow::Continue(())).expect("an answer");
    assert_eq!((replay.lists().len(), replay.problems().len()), (1, 0));
}

/// Lists, then watches, and asks again at once what was not answered; keeps its position as long as it can.
fn list_and_watch(source: &Replay, clock: &ManualClock, pages_of: Option<u32>, scope: &Scope) -> Ledger {
    let stop = Stop::with_clock(clock);
    let wake = Wake::new(&stop, clock);
    let mut store = Ledger::default();
    let mut cause = Cause::Initial;
    let mut start = if pages_of.is_some() { VersionMatch::MostRecent } else { VersionMatch::Any };
    let mut position: Option<String> = None;
    while source.problems().is_empty() {
        let Some(from) = position.clone() else {
            let params = ListParams { version: start.clone(), limit: pages_of, continue_token: None, scope: scope.clone() };
            position = list(source, &stop, params).map(|(version, items)| {
                store.replace(items.iter(), std::mem::replace(&mut cause, Cause::Relist));
                version
            });
            continue;
        };
        let ended = match source.watch(&stop, &WatchParams { scope: scope.clone(), ..watch_from(&from) }) {
            Err(e) => Some(e),
            Ok(mut stream) => loop {
                let frame = match stream.next(&wake, Deadline::at(clock.now())) {
                    Next::Event(WatchEvent::Added(o)) => Frame::Added(o),
                    Next::Event(WatchEvent::Modified(o)) => Frame::Modified(o),
                    Next::Event(WatchEvent::Deleted(o)) => Frame::Deleted(o),
                    Next::Event(WatchEvent::Bookmark { version, .. }) => Frame::Bookmark(version),
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
fn list(source: &Replay, stop: &Stop, first: ListParams) -> Option<(String, Vec<Value>)> {
    let mut items = Vec::new();
    let mut params = first;
    loop {
        let answer = source.list(stop, &params, &mut |item| {
            items.push(item.expect("a decoded object"));
            ControlFlow::Continue(())
        });
        params.continue_token = match answer {
            Ok(end) if end.continue_token.is_none() => return Some((end.version, items)),
            Ok(end) => end.continue_token,
            Err(e) if *e.kind() == SourceErrorKind::Expired && params.continue_token.is_some() => {
                items.clear();
                params.limit = None;
                None
            }
            Err(_) => return None,
        };
    }
}

fn watch_from(version: &str) -> WatchParams {
    WatchParams {
        from: version.to_owned(),
        timeout: Duration::from_secs(300),
        bookmarks: true,
        initial_events: false,
        scope: Scope::default(),
    }
}

// ---- the whole pipeline ---------------------------------------------------------------------------------------------

fn run(r: Recording, engine: Engine) -> Outcome {
    run_in(Form::Listed, r, engine)
}

fn run_in(form: Form, r: Recording, engine: Engine) -> Outcome {
    replay::run_in(form, r, engine).unwrap_or_else(|e| panic!("{engine:?}, {form:?}: {e}"))
}

fn every_recording_comes_out_as_it_must(engine: Engine) {
    for c in &CASES {
        let r = recording(c.name);
        let expected = Ledger::expected(&r);
        let outcome = run(r, engine);
        assert_eq!(outcome.differences(&expected), Vec::<String>::new(), "{}", c.name);
        assert_eq!(outcome.replay.lists().len(), c.lists, "{}: lists", c.name);
    }
}

/// End state, bodies, the story of each key, lists, and the versions that resumed watches and relists ask with.
#[test]
fn every_recording_comes_out_as_it_must_on_one_thread() {
    every_recording_comes_out_as_it_must(Engine::Merged);
}

#[test]
fn every_recording_comes_out_as_it_must_with_a_queue_in_between() {
    every_recording_comes_out_as_it_must(Engine::Decoupled);
}

/// The form in which a state came does not matter: the very same must come of it, by as many requests for a state. Eight
/// files began in this form with client-go, too.
#[test]
fn every_recording_comes_out_the_same_with_its_states_as_the_beginning_of_a_watch() {
    assert_eq!(CASES.iter().filter(|c| recording(c.name).streamed).count(), 8);
    for engine in ENGINES {
        for c in &CASES {
            let r = recording(c.name);
            let expected = Ledger::expected(&r);
            let outcome = run_in(Form::Streamed, r, engine);
            assert_eq!(outcome.differences(&expected), Vec::<String>::new(), "{}, {engine:?}", c.name);
            assert_eq!(outcome.replay.lists().len(), c.lists, "{}, {engine:?}: states asked for", c.name);
            // Each state was one request together with the watch after it.
            let listed = run(recording(c.name), engine).replay.watches().len();
            assert_eq!(outcome.replay.watches().len() + c.lists, listed, "{}, {engine:?}: watches", c.name);
            if WITH_410.contains(&c.name) {
                assert_eq!(outcome.waits(), [Duration::ZERO], "{}, {engine:?}: from the 410 to the next state", c.name);
            }
        }
    }
}

/// ... and a frame that decides where a watch resumes is missed in that form as well.
#[test]
fn the_frame_that_decides_where_a_streamed_watch_resumes_is_noticed_when_left_out() {
    for c in &CASES {
        let text = file(c.name);
        let whole = Recording::parse(&text, None).expect("a recording");
        let expected = Ledger::expected(&whole);
        for n in if whole.streamed { deciding_frames(&text) } else { Vec::new() } {
            let damaged = Recording::parse(&text, Some(n)).expect("a recording");
            let found = run_in(Form::Streamed, damaged, Engine::Merged).differences(&expected);
            assert!(!found.is_empty(), "{}: nobody notices that frame {n} is left out", c.name);
        }
    }
}

/// client-go took 2.5 to 9.6 seconds: its 410 shared a backoff with the refused connections before it.
#[test]
fn the_list_that_follows_a_410_starts_at_the_410s_own_time() {
    for name in WITH_410 {
        // In the fourth file client-go had thrown its position away before it could be told.
        let (client, kept) = (recording(name).client_waits, !WITH_HISTORY.contains(&name));
        assert!(client.len() == usize::from(kept) && client.iter().all(|w| w.as_secs() >= 2), "{name}: {client:?}");
        for engine in ENGINES {
            assert_eq!(run(recording(name), engine).waits(), [Duration::ZERO], "{name}, {engine:?}");
        }
    }
}

/// Nothing of the pipeline holds an event back: a handler is told of each at the very moment at which the source has
/// it, and of what one watch brings in the order of the watch. Pages, and the whole list that replaces an expired page,
/// are asked for without a pause.
#[test]
fn each_event_is_told_at_the_time_at_which_the_server_sent_it() {
    let mut files = 0;
    for c in &CASES {
        let r = recording(c.name);
        let [state, watch] = &r.places[..] else {
            continue;
        };
        let (Answer::State(state), Answer::Watch(watch)) = (&state.answer, &watch.answer) else {
            panic!("{}: not a state and a watch", c.name)
        };
        files += 1;
        let begun: Duration = state.pages.iter().map(|p| p.after).sum();
        let initial = state.items().map(key_of).collect::<BTreeSet<_>>();
        let object = |frame: &Frame| match frame {
            Frame::Added(o) | Frame::Modified(o) | Frame::Deleted(o) => Some(key_of(o)),
            Frame::Bookmark(_) => None,
        };
        let watched = watch.frames.iter().filter_map(|(after, frame)| Some((begun + *after, object(frame)?)));
        let watched: Vec<(Duration, String)> = watched.collect();
        for (engine, form) in ENGINES.into_iter().flat_map(|e| [(e, Form::Listed), (e, Form::Streamed)]) {
            let told = run_in(form, recording(c.name), engine).told;
            let told: Vec<(Duration, String)> = told.into_iter().map(|(at, key, _)| (at.since_start(), key)).collect();
            let (first, rest) = told.split_at(initial.len().min(told.len()));
            assert!(first.iter().all(|(at, _)| *at == begun), "{}, {engine:?}: the first state came late", c.name);
            assert_eq!(first.iter().map(|(_, key)| key.clone()).collect::<BTreeSet<_>>(), initial, "{}", c.name);
            assert_eq!(rest, watched, "{}, {engine:?}, {form:?}", c.name);
        }
    }
    assert_eq!(files, 5, "files with one state and one watch");
}

/// A lost event cannot hide: no relist repairs it in these files.
#[test]
fn each_frame_left_out_of_a_single_watch_is_noticed() {
    for engine in ENGINES {
        notice(&file("pods-lifecycle"), 0..69, engine);
    }
}

/// ... and in every file the frame before an end that decides from where the watch is resumed.
#[test]
fn the_frame_that_decides_where_a_watch_resumes_is_noticed_when_left_out() {
    for c in &CASES {
        let text = file(c.name);
        for engine in ENGINES {
            notice(&text, deciding_frames(&text), engine);
        }
    }
}

/// The truth of a file is held against what is stored, whatever its answers say.
#[test]
fn a_file_that_contradicts_its_truth_is_noticed() {
    let damaged = || Recording::parse(&file("pods-lifecycle"), Some(68)).expect("a recording");
    let expected = Ledger::expected(&damaged());
    for engine in ENGINES {
        let found = run(damaged(), engine).differences(&expected);
        assert!(found.len() == 1 && found[0].contains("the server had"), "{found:?}");
    }
}

fn notice(text: &str, frames: impl IntoIterator<Item = usize>, engine: Engine) {
    let whole = Recording::parse(text, None).expect("a recording");
    let expected = Ledger::expected(&whole);
    for n in frames {
        let outcome = run(Recording::parse(text, Some(n)).expect("a recording"), engine);
        let found = outcome.differences(&expected);
        assert!(!found.is_empty(), "{}, {engine:?}: nobody notices that frame {n} is left out", whole.scenario);
    }
}
