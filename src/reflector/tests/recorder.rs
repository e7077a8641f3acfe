//! The sink that writes down.

use super::script::Item;
use crate::{
    flow::{Deleted, Delta, DeltaSink, KeyRef, Object, ObjectKey, SinkError},
    sync::{Gate, Mutex},
};
use std::collections::VecDeque;

/// A sink that writes down what it is given, refuses on demand, and knows what it was told to know.
#[derive(Default)]
pub(super) struct Recorder {
    pub(super) given: Mutex<Vec<String>>,
    pub(super) objects: Mutex<Vec<Object<Item>>>,
    pub(super) known: Mutex<Vec<Object<Item>>>,
    /// What it does with the next batches, one entry each; then it takes all.
    pub(super) moods: Mutex<VecDeque<Mood>>,
    pub(super) batches: Mutex<Vec<usize>>,
    /// Called when the sink is asked what it knows.
    pub(super) on_known: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

pub(super) enum Mood {
    Take,
    Refuse,
    /// Takes so many, and refuses the rest.
    TakeSome(usize),
    Panic,
    Closed,
    /// Waits at the gate, then takes all.
    Wait(Gate),
    WaitThenClosed(Gate),
}

impl Recorder {
    pub(super) fn moods(moods: impl IntoIterator<Item = Mood>) -> Self {
        Self { moods: Mutex::new(moods.into_iter().collect()), ..Self::default() }
    }
}

impl DeltaSink<Item> for Recorder {
    fn apply(&self, batch: &mut Vec<Delta<Item>>) -> Result<(), SinkError> {
        let mood = self.moods.lock().pop_front().unwrap_or(Mood::Take);
        let take = match mood {
            Mood::Take => batch.len(),
            Mood::Wait(gate) => {
                gate.wait();
                batch.len()
            }
            Mood::TakeSome(n) => n,
            Mood::WaitThenClosed(gate) => {
                gate.wait();
                return Err(SinkError::Closed);
            }
            Mood::Refuse => return Err(SinkError::Refused("not now".into())),
            Mood::Closed => return Err(SinkError::Closed),
            Mood::Panic => panic!("the sink panics"),
        };
        let all = take == batch.len();
        self.batches.lock().push(take);
        for delta in batch.drain(..take) {
            self.given.lock().push(text(&delta));
            match delta {
                Delta::Added(o) | Delta::Updated(o) => self.objects.lock().push(o),
                Delta::ReplacedAll { objects, .. } => self.objects.lock().extend(objects),
                Delta::Deleted(_) | Delta::Bookmark { .. } => {}
            }
        }
        if all { Ok(()) } else { Err(SinkError::Refused("no more".into())) }
    }

    fn known(&self, key: KeyRef<'_>) -> Option<Object<Item>> {
        let call = self.on_known.lock().take();
        if let Some(call) = call {
            call();
        }
        self.known.lock().iter().find(|o| Object::key(o).name() == key.name).cloned()
    }
}

fn text(delta: &Delta<Item>) -> String {
    match delta {
        Delta::Added(o) => format!("+{o:?}"),
        Delta::Updated(o) => format!("~{o:?}"),
        Delta::Deleted(Deleted::Observed(o)) => format!("-{o:?}"),
        Delta::Deleted(Deleted::Missed { key, last_known }) => format!("-{key} missed {last_known:?}"),
        Delta::Bookmark { version } => format!("b@{version}"),
        Delta::ReplacedAll { version, objects, kept, complete, new_era } => {
            let objects: Vec<_> = objects.iter().map(|o| format!(" {o:?}")).collect();
            let kept: Vec<_> = kept.iter().map(|k: &ObjectKey| format!(" keep {k}")).collect();
            let marks = [("incomplete", !complete), ("era", *new_era)];
            let marks: String = marks.iter().filter(|(_, on)| *on).map(|(m, _)| format!(" {m}")).collect();
            format!("all@{version}{}{}{marks}", objects.concat(), kept.concat())
        }
    }
}
