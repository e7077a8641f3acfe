//! Panics of other people's code, and sources that answer oddly: nothing is lost, nothing hangs, nothing loops.

use super::{script::*, *};
use crate::source::{Next, SourceErrorKind as Kind};

#[test]
fn b54_a_source_that_panics_is_asked_again_with_backoff() {
    let script = Script::new().page(Page::Panic("list")).list("10: a@1").watch_answers(Watch::Panic("watch"));
    let mut w = World::start(script.frames(vec![Frame::Panic("next")]).watch("~a@11"));
    w.advance(20.0);
    let story = [
        "0 list any limit 500",
        "0 ! List Other: SameRequest after 0.8",
        "0.8 list any limit 500",
        "0.8 watch 10",
        "0.8 ! Watch Other: SameWatch after 1.6",
        "2.4 watch 10",
        "2.4 ! Stream Other: SameWatch after 3.2",
        "5.6 watch 10",
    ];
    assert_eq!(w.story(), story);
    assert_eq!(w.given(), ["all@10 a@1", "~a@11"]);
    assert_eq!(w.stop(), Ok(()));
    assert_contained(&w.clock, &["list", "watch", "next"]);
}

#[test]
fn a_stream_that_panics_in_the_middle_of_a_batch_loses_nothing_of_it() {
    let frames = |text: &str| text.split(' ').map(frame).collect::<Vec<_>>();
    let mut broken = frames("~a@11 ~a@12");
    broken.push(Frame::Panic("ready"));
    let mut w = World::start(Script::new().list("10: a@1").frames(broken).watch("~a@13"));
    w.advance(2.0);
    assert_eq!(w.given(), ["all@10 a@1", "~a@11", "~a@12", "~a@13"]);
    assert_eq!(w.asked()[1..], ["0 watch 10", "0.8 watch 12"]);
    assert_eq!(w.stop(), Ok(()));
    assert_contained(&w.clock, &["ready"]);
}

#[test]
fn a_stream_whose_drop_panics_is_closed_all_the_same() {
    let script = Script::new().panicking(Panics::DropOfStream).list("10:").watch("/1 .");
    let mut w = World::start(script);
    w.advance(2.0);
    assert_eq!(w.asked()[1..], ["0 watch 10", "1 watch 10"]);
    assert_eq!(w.stop(), Ok(()));
    assert_contained(&w.clock, &["drop of a stream", "drop of a stream"]);
}

#[test]
fn an_order_of_versions_that_panics_is_no_order() {
    let mut w = World::start(Script::new().panicking(Panics::Compare).list("10: a@1").watch("~a@11"));
    assert_eq!(w.reflector.last_version(), "11");
    assert_eq!(w.stop(), Ok(()));
    assert_contained(&w.clock, &["compare 11 10"]);
}

#[test]
fn metadata_that_panics_costs_its_object_only_and_deletes_nothing() {
    let mut w = World::start(Script::new().panicking(Panics::Meta).list("10: a@1 meta@2 b@3").watch("~a@11 ~meta@12"));
    assert_eq!(w.given(), ["all@10 a@1 b@3 incomplete", "~a@11"]);
    assert!(w.story().last().unwrap().contains("! Stream Unreadable: InitialState"), "which object it was nobody knows");
    assert_eq!(w.stop(), Ok(()));
    assert_contained(&w.clock, &["meta of meta", "meta of meta"]);
}

#[test]
fn a_transform_that_panics_counts_as_one_that_fails() {
    let mut w = World::start(Script::new().list("10: a@1 panic@2").watch("~panic@11 -panic@12"));
    assert_eq!(w.given(), ["all@10 a@1 keep panic", "b@11", "-panic missed None", "b@12"]);
    assert_eq!(w.stop(), Ok(()));
    assert_contained(&w.clock, &["transform of panic"; 3]);
}

#[test]
fn a_hook_that_panics_harms_nothing() {
    let script = Script::new().list("10: a@1").watch_breaks("~a@11", Kind::Expired).list("20: a@11");
    let mut w = World::start_with(script, Recorder::default(), |b| b.observe(|_| panic!("the hook")));
    assert_eq!(w.given(), ["all@10 a@1", "~a@11", "all@20 a@11"]);
    assert_eq!(w.stop(), Ok(()));
    // Listing, Listed, Watching, Ended, Failed; Listing, Listed, Watching; Ended.
    assert_contained(&w.clock, &["the hook"; 9]);
}

#[test]
fn a_sink_that_panics_when_asked_what_it_knows_is_taken_to_know_nothing() {
    let sink = Recorder { on_known: Mutex::new(Some(Box::new(|| panic!("known")))), ..Recorder::default() };
    let mut w = World::start_with(Script::new().list("10: a@1"), sink, |b| b);
    assert_eq!(w.given(), ["all@10 a@1"]);
    assert_eq!(w.stop(), Ok(()));
    assert_contained(&w.clock, &["known"]);
}

#[test]
fn an_error_whose_text_panics_is_told_by_its_class() {
    #[derive(Debug)]
    struct Bad;
    impl std::fmt::Display for Bad {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("no text")
        }
    }
    impl std::error::Error for Bad {}
    let error = crate::source::SourceError::caused_by(Kind::Forbidden, Bad);
    let mut w = World::start(Script::new().page(Page::Fail(error)).list("10:"));
    w.advance(2.0);
    assert_eq!(w.asked(), ["0 list any limit 500", "0.8 list any limit 500", "0.8 watch 10"]);
    assert!(w.reflector.health().last_error.unwrap().message.contains("not allowed"));
    assert_eq!(w.stop(), Ok(()));
    assert_contained(&w.clock, &["no text"]);
}

#[test]
fn a_source_that_stops_or_times_out_by_itself_is_asked_again_and_not_in_a_loop() {
    for (odd, kind) in [(Frame::Odd(|| Next::Stopped), "Stopped"), (Frame::Odd(|| Next::Deadline), "Timeout")] {
        let mut w = World::start(Script::new().list("10:").frames(vec![odd]));
        w.advance(2.0);
        let failed = format!("0 ! Stream {kind}: SameWatch after 0.8");
        assert_eq!(w.story()[2..], [failed.as_str(), "0.8 watch 10"]);
        assert_eq!(w.stop(), Ok(()));
    }
}

#[test]
fn a_nudge_interrupts_nothing_for_good() {
    let frames = vec![Frame::Odd(|| Next::Woken), Frame::Odd(|| Next::Woken), frame("~a@11")];
    let mut w = World::start(Script::new().list("10: a@1").frames(frames));
    assert_eq!(w.given(), ["all@10 a@1", "~a@11"]);
    assert_eq!(w.asked().len(), 2);
    assert_eq!(w.stop(), Ok(()));
}

#[test]
fn a_panic_of_an_erased_sink_closes_the_stream_and_comes_out_of_run() {
    use crate::{
        flow::{Delta, DeltaSink, Opaque, SinkError},
        reflector::{Options, ingest},
    };
    struct Defect;
    impl DeltaSink<Opaque> for Defect {
        fn apply(&self, batch: &mut Vec<Delta<Opaque>>) -> Result<(), SinkError> {
            assert!(batch.drain(..).all(|d| matches!(d, Delta::ReplacedAll { .. })), "a defect of ours");
            Ok(())
        }
    }
    let clock = ManualClock::new();
    let script = Arc::new(Script::new().list("10:").watch("+a@11").on(&clock));
    let options = Options { clock: clock.clock(), ..Options::default() };
    let raw = ingest(script.clone(), Item::transform);
    let reflector = Arc::new(Reflector::erased(raw, Arc::new(Defect), options));
    let running = reflector.clone();
    let thread = spawn(&clock, "reflector", move || running.run(&Stop::new())).unwrap();
    assert!(thread.join().unwrap_err().contains("a defect of ours"));
    assert_eq!(script.open(), 0);
    let stopped = Stop::new();
    stopped.stop();
    assert_eq!(reflector.run(&stopped), Ok(()), "not taken for running any more");
}
