//! The embedded server's faults lead a reflector the same way as the scripted source does, whose cells are written out in
//! `cells`: every class of failure in every place where it can come.

use super::{script::*, *};
use crate::{
    flow::{Delta, DeltaSink, SinkError},
    memory::{Fault, Pod, Server},
    reflector::{Action, During},
    source::SourceErrorKind as Kind,
};

/// Takes everything.
struct Drain;

impl DeltaSink<Pod> for Drain {
    fn apply(&self, batch: &mut Vec<Delta<Pod>>) -> Result<(), SinkError> {
        batch.clear();
        Ok(())
    }
}

type Failure = (During, FailureKind, Action, Duration);

fn failures(told: &Mutex<Vec<ReflectorEvent>>) -> Vec<Failure> {
    let failed = |e: &ReflectorEvent| match e {
        ReflectorEvent::Failed { during, kind, action, wait, .. } => Some((*during, kind.clone(), *action, *wait)),
        _ => None,
    };
    told.lock().iter().filter_map(failed).collect()
}

const FOR: f64 = 60.0;

/// What a reflector meets on the embedded server, and how many requests it makes.
fn embedded(initial: InitialState, faults: Vec<Fault>) -> (Vec<Failure>, usize) {
    let clock = ManualClock::new();
    let server = Server::builder(&clock).first_version(10).build();
    server.faults(faults);
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let reflector = Reflector::builder(server.source::<Pod>(), Drain)
        .clock(&clock)
        .seed(7)
        .initial(initial)
        .backoff(Backoff { jitter: 0.0, ..Backoff::default() })
        .relist_spread(Duration::ZERO)
        .silence(Duration::MAX)
        .observe(move |e| tell.lock().push(e.clone()))
        .build();
    let stop = Stop::with_clock(&clock);
    let stopping = stop.clone();
    let thread = spawn(&clock, "reflector", move || reflector.run(&stopping)).unwrap();
    clock.advance(secs(FOR));
    stop.stop();
    assert_eq!(thread.join(), Ok(Ok(())));
    assert_eq!(server.open_streams(), 0);
    (failures(&told), server.requests().len())
}

fn scripted(initial: InitialState, script: Script) -> (Vec<Failure>, usize) {
    let script = (0..8).fold(script, |s, _| s.list("10:"));
    let mut w = World::start_with(script.streaming(), Recorder::default(), |b| b.initial(initial));
    w.advance(FOR);
    assert_eq!(w.stop(), Ok(()));
    (failures(&w.told), w.asked().len())
}

fn kinds() -> Vec<Kind> {
    let mut kinds = vec![
        Kind::Expired,
        Kind::Unauthorized,
        Kind::Forbidden,
        Kind::NotFound,
        Kind::WatchListUnsupported,
        Kind::ConnectionRefused,
        Kind::Connect,
        Kind::Transport,
        Kind::Timeout,
        Kind::Decode,
        Kind::Other,
    ];
    for retry_after in [None, Some(secs(7.0))] {
        kinds.extend([Kind::TooLargeVersion { retry_after }, Kind::TooManyRequests { retry_after }]);
        for (code, reason) in [(500, "StoreReadError"), (500, ""), (503, ""), (400, "BadRequest"), (422, "Invalid")] {
            kinds.push(Kind::Server { code, reason: reason.to_owned(), retry_after });
        }
    }
    kinds
}

#[test]
fn every_class_of_failure_leads_the_same_way_wherever_it_comes_from() {
    use InitialState::{Any, Streamed};
    let relist = || Fault::fail_after(0, Kind::Expired).on_watch();
    for kind in kinds() {
        let k = || kind.clone();
        for n in [1, 4] {
            let often = |script: Script, more: fn(Script, Kind) -> Script| (0..n).fold(script, |s, _| more(s, k()));
            let list = || Script::new().list("10:");
            let lived: fn(Script, Kind) -> Script = |s, k| s.watch_breaks("/2", k);
            let at_once: fn(Script, Kind) -> Script = |s, k| s.watch_breaks("", k);
            let state = |s: Script| (0..4).fold(s, |s, _| s.watch("B@10"));
            let cases = [
                ("list", Any, vec![Fault::refuse(k()).on_list().times(n)], often(Script::new(), Script::list_fails)),
                (
                    "later list",
                    Any,
                    vec![relist(), Fault::refuse(k()).on_list().nth(2).times(n)],
                    often(list().watch_breaks("", Kind::Expired), Script::list_fails),
                ),
                ("watch", Any, vec![Fault::refuse(k()).on_watch().times(n)], often(list(), Script::watch_fails)),
                ("stream", Any, vec![Fault::fail_after(0, k()).on_watch().times(n)], often(list(), at_once)),
                ("stream that lived", Any, vec![Fault::fail_in(secs(2.0), k()).on_watch().times(n)], often(list(), lived)),
                (
                    "streamed state",
                    Streamed,
                    vec![Fault::refuse(k()).on_streamed().times(n)],
                    state(often(Script::new(), Script::watch_fails)),
                ),
                (
                    "stream before the end of its state",
                    Streamed,
                    vec![Fault::fail_after(0, k()).on_streamed().times(n)],
                    state(often(Script::new(), at_once)),
                ),
            ];
            for (place, initial, faults, script) in cases {
                if initial == Streamed && kind == Kind::WatchListUnsupported && n > 1 {
                    // Told once, it is not asked for again; the script would answer plain watches so.
                    continue;
                }
                let expected = scripted(initial, script);
                assert!(!expected.0.is_empty(), "{place}, {kind:?}: no failure");
                assert_eq!(embedded(initial, faults), expected, "{place}, {n} times {kind:?}");
            }
        }
    }
}

#[test]
fn orderly_ends_lead_the_same_way_wherever_they_come_from() {
    use InitialState::{Any, Streamed};
    // Not more than three: the fourth is no streamed state any more.
    for n in [1, 3] {
        let often = |script: Script, frames: &str| (0..n).fold(script, |s, _| s.watch(frames));
        let list = || Script::new().list("10:");
        let cases = [
            (Any, vec![Fault::close_after(0).on_watch().times(n)], often(list(), ".")),
            (Any, vec![Fault::close_in(secs(0.5)).on_watch().times(n)], often(list(), "/0.5 .")),
            (Streamed, vec![Fault::close_after(0).on_streamed().times(n)], often(Script::new(), ".").watch("B@10")),
            (Streamed, vec![Fault::no_end_mark().times(n)], often(Script::new(), "").watch("B@10")),
        ];
        for (initial, faults, script) in cases {
            let what = format!("{faults:?}");
            assert_eq!(embedded(initial, faults), scripted(initial, script), "{what}");
        }
    }
}
