//! Replays what a real API server once answered to client-go (`tests/data/recordings/`) to this crate's informer.
//!
//! [`Recording`] is a file as read: the answers, in order. [`Ledger`] is what must come of them, computed by a small
//! model that shares no code with the replay. [`Replay`] is the source that gives the answers again, on a clock.
//! [`run`] puts an informer behind it. Shared by `tests/recordings.rs` and `examples/replay.rs`.
#![allow(dead_code, unused_imports, reason = "neither the tests nor the example use all of it")]
#![allow(clippy::disallowed_types, reason = "a user's code, with a user's locks")]

mod answer;
mod ledger;
mod recording;
mod run;
mod source;

pub use ledger::{Ledger, Tale, Told, same_story};
pub use recording::{Answer, Frame, Recording, deciding_frames, frame_lines};
pub use run::{Outcome, run, run_in};
pub use source::{Form, Pace, Replay};

use serde_json::Value;

/// `namespace/name`, or `name`: how the files name objects.
pub fn key_of(object: &Value) -> String {
    match (text(object, "namespace"), text(object, "name")) {
        ("", name) => name.to_owned(),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// The object's version.
pub fn version_of(object: &Value) -> &str {
    text(object, "resourceVersion")
}

/// A text of the object's metadata, empty when there is none.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or("")
}
