//! The reflector alone, with a user's own sink, on what a real API server answered (`tests/data/recordings/`): the sink
//! ends up with what the file says, by the lists that the file needs and no other, and a 410 is answered at once.
#![allow(clippy::disallowed_types, reason = "a user's code, with a user's locks")]

mod replay;

use informer::{
    flow::{Cause, Deleted, Delta, DeltaSink, Object, SinkError},
    reflector::{Backoff, Reflector, ReflectorEvent},
    sync::{ManualClock, Stop},
};
use replay::{Frame, Ledger, Pace, Recording, Replay};
use serde_json::Value;
use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

const FILES: [&str; 17] = [
    "configmaps-cut-short",
    "configmaps-expired",
    "configmaps-expired-watch-list",
    "configmaps-idle-bookmarks",
    "configmaps-list-watch",
    "configmaps-paged",
    "configmaps-paged-expired",
    "configmaps-rights-revoked",
    "configmaps-server-killed",
    "configmaps-server-stopped",
    "configmaps-watch-list",
    "leases-storm",
    "nodes-cluster-scoped",
    "pods-lifecycle",
    "pods-selector",
    "widgets-custom",
    "widgets-definition-removed",
];

/// A store of one's own.
#[derive(Default)]
struct Store(Mutex<(Ledger, bool)>);

impl DeltaSink<Value> for Store {
    fn apply(&self, batch: &mut Vec<Delta<Value>>) -> Result<(), SinkError> {
        let (store, listed) = &mut *self.0.lock().expect("the store");
        for delta in batch.drain(..) {
            match delta {
                Delta::Added(o) | Delta::Updated(o) => store.put(&o, Cause::Watch),
                Delta::Deleted(Deleted::Observed(o)) => store.watched(&Frame::Deleted((*o).clone())),
                Delta::ReplacedAll { objects, kept, complete, new_era, .. } => {
                    assert!(kept.is_empty() && complete && !new_era);
                    let cause = if std::mem::replace(listed, true) { Cause::Relist } else { Cause::Initial };
                    store.replace(objects.iter().map(|o: &Object<Value>| &**o), cause);
                }
                Delta::Bookmark { .. } => {}
                Delta::Deleted(Deleted::Missed { key, .. }) => panic!("{key} missed"),
            }
        }
        Ok(())
    }
}

#[test]
fn a_reflector_alone_ends_every_recording_where_it_ended_by_the_lists_it_needs() {
    for name in FILES {
        let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/recordings")).join(name);
        let recording = Recording::read(&path.with_extension("jsonl")).unwrap_or_else(|e| panic!("{name}: {e}"));
        let expected = Ledger::expected(&recording);
        let scope = recording.scope.clone();
        let clock = ManualClock::new();
        let source = Replay::new(recording, &clock, Pace::Recorded);
        let store = Arc::new(Store::default());
        let told = Arc::new(Mutex::new(Vec::new()));
        let hook = told.clone();
        let reflector = Reflector::builder(source.clone(), store.clone())
            .clock(&clock)
            .scope(scope)
            .relist_spread(Duration::ZERO)
            .backoff(Backoff { jitter: 0.0, ..Backoff::default() })
            .observe(move |e| hook.lock().expect("the events").push(e.clone()))
            .build();
        let stop = Stop::with_clock(&clock);
        std::thread::scope(|s| {
            let running = s.spawn(|| reflector.run(&stop));
            // From its first request on it is a thread of the clock.
            while source.lists().is_empty() {
                std::thread::yield_now();
            }
            clock.advance(Duration::from_secs(250));
            stop.stop();
            assert_eq!(running.join().expect("no panic"), Ok(()), "{name}");
        });
        assert_eq!(source.problems(), Vec::<String>::new(), "{name}");
        let told = told.lock().expect("the events");
        let (store, _) = &*store.0.lock().expect("the store");
        assert_eq!(store.versions(), expected.versions(), "{name}: {told:#?}");
        assert_eq!(store.bodies, expected.bodies, "{name}");
        assert_eq!(store.story, expected.story, "{name}");
        assert_eq!((store.unchanged, store.unknown), (expected.unchanged, expected.unknown), "{name}");
        let lists = told.iter().filter(|e| matches!(e, ReflectorEvent::Listed { .. })).count();
        let needed =
            if name.contains("expired") && !name.contains("paged") || name.contains("stopped") || name.contains("removed") {
                2
            } else {
                1
            };
        assert_eq!(lists, needed, "{name}: {told:#?}");
        for at in source.expired() {
            assert!(source.lists().contains(&at), "{name}: a 410 at {at:?}, lists at {:?}", source.lists());
        }
    }
}
