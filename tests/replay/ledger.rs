//! A small store that keeps the story of each key. Fed with a recording it says what must come of it, whatever the
//! pipeline does inside; fed by a handler, what came.

use super::{Answer, Frame, Recording, key_of, version_of};
use informer::{flow::Cause, source::compare_decimal};
use serde_json::Value;
use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// One call of a handler, for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Added {
        version: String,
        cause: Cause,
    },
    Updated {
        from: String,
        to: String,
        cause: Cause,
    },
    /// With the deletion's version, when the source told of the deletion.
    Deleted {
        version: Option<String>,
        cause: Cause,
    },
}

impl Told {
    /// An update to the same version: client-go tells those after a relist, this crate does not.
    pub fn is_repeat(&self) -> bool {
        matches!(self, Self::Updated { from, to, .. } if from == to)
    }

    /// The same, whatever it was told for: client-go does not say.
    pub fn same_as(&self, other: &Self) -> bool {
        let without = |told: &Self| {
            let mut told = told.clone();
            match &mut told {
                Self::Added { cause, .. } | Self::Updated { cause, .. } | Self::Deleted { cause, .. } => *cause = Cause::Watch,
            }
            told
        };
        without(self) == without(other)
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = match self {
            Self::Added { version, cause } => write!(f, "+{version}").map(|()| cause),
            Self::Updated { from, to, cause } => write!(f, "{from}→{to}").map(|()| cause),
            Self::Deleted { version, cause } => write!(f, "-{}", version.as_deref().unwrap_or("?")).map(|()| cause),
        }?;
        match cause {
            Cause::Initial => f.write_str("(initial)"),
            Cause::Relist => f.write_str("(relist)"),
            _ => Ok(()),
        }
    }
}

/// A story in one line.
pub struct Tale<'a>(pub &'a [Told]);

impl fmt::Display for Tale<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        for (i, told) in self.0.iter().enumerate() {
            write!(f, "{}{told}", if i == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

/// Whether two stories are the same, whatever each call was made for.
pub fn same_story(a: &[Told], b: &[Told]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same_as(b))
}

/// What handlers were told and what is stored, or what must be.
#[derive(Debug, Default)]
pub struct Ledger {
    /// What a handler is told, by key.
    pub story: BTreeMap<String, Vec<Told>>,
    /// The stored objects in the end.
    pub bodies: BTreeMap<String, Value>,
    /// Objects told to nobody because their version was the stored one.
    pub unchanged: usize,
    /// Deletes of unknown keys, told to nobody.
    pub unknown: usize,
}

impl Ledger {
    /// What must come of a recording: replays the answers; where the file has the server's own history, the first state and then the history, because
    /// this crate keeps its position where client-go lists again. A gap in the history is a list.
    pub fn expected(recording: &Recording) -> Self {
        let mut all = Self::default();
        let mut states = recording.places.iter().filter_map(|p| match &p.answer {
            Answer::State(state) => Some(state),
            _ => None,
        });
        if recording.history.is_empty() {
            let mut cause = Cause::Initial;
            for place in &recording.places {
                match &place.answer {
                    Answer::State(state) => all.replace(state.items(), std::mem::replace(&mut cause, Cause::Relist)),
                    Answer::Watch(watch) => watch.frames.iter().for_each(|(_, frame)| all.watched(frame)),
                    Answer::Refused { .. } | Answer::Broken(_) => {}
                }
            }
            return all;
        }
        let mut position = states.next().map_or(String::new(), |state| {
            all.replace(state.items(), Cause::Initial);
            state.version().to_owned()
        });
        let newer = |a: &str, b: &str| compare_decimal(a, b) == Some(Ordering::Greater);
        for part in &recording.history {
            if newer(&part.from, &position)
                && let Some(state) = states.find(|s| !newer(&part.from, s.version()))
            {
                all.replace(state.items(), Cause::Relist);
                state.version().clone_into(&mut position);
            }
            for event in part.events.iter().filter(|e| newer(e.version(), &position)) {
                all.watched(event);
            }
            if let Some(last) = part.events.last().filter(|e| newer(e.version(), &position)) {
                last.version().clone_into(&mut position);
            }
        }
        all
    }

    /// Version by key in the end.
    pub fn versions(&self) -> BTreeMap<String, String> {
        self.bodies.iter().map(|(k, o)| (k.clone(), version_of(o).to_owned())).collect()
    }

    /// In what this is not as `expected`; empty when it is.
    pub fn differences(&self, expected: &Self) -> Vec<String> {
        let stories = self.story.keys().chain(expected.story.keys());
        let keys: BTreeSet<&String> = stories.chain(self.bodies.keys()).chain(expected.bodies.keys()).collect();
        let mut all = Vec::new();
        for key in keys {
            let (told, wanted) = (self.told(key), expected.told(key));
            if told != wanted {
                all.push(format!("{key} was told {}, not {}", Tale(told), Tale(wanted)));
            }
            match (self.bodies.get(key), expected.bodies.get(key)) {
                (Some(_), None) => all.push(format!("{key} is stored, and does not exist")),
                (None, Some(_)) => all.push(format!("{key} exists, and is not stored")),
                (Some(a), Some(b)) if a != b => all.push(format!("{key} is stored with another body")),
                _ => {}
            }
        }
        all
    }

    /// The story of one key.
    pub fn told(&self, key: &str) -> &[Told] {
        self.story.get(key).map_or(&[], Vec::as_slice)
    }

    fn tell(&mut self, key: &str, told: Told) {
        self.story.entry(key.to_owned()).or_default().push(told);
    }

    /// An object was listed or watched.
    pub fn put(&mut self, object: &Value, cause: Cause) {
        let (key, version) = (key_of(object), version_of(object).to_owned());
        let told = match self.bodies.get(&key).map(version_of) {
            None => Told::Added { version, cause },
            // The body that came first with a version stays.
            Some(old) if old == version => return self.unchanged += 1,
            Some(old) => Told::Updated { from: old.to_owned(), to: version, cause },
        };
        self.tell(&key, told);
        self.bodies.insert(key, object.clone());
    }

    /// This is the whole state.
    pub fn replace<'a>(&mut self, items: impl Iterator<Item = &'a Value>, cause: Cause) {
        let items: BTreeMap<String, &Value> = items.map(|o| (key_of(o), o)).collect();
        let gone: Vec<String> = self.bodies.keys().filter(|k| !items.contains_key(*k)).cloned().collect();
        for key in gone {
            self.bodies.remove(&key);
            self.tell(&key, Told::Deleted { version: None, cause });
        }
        items.values().for_each(|o| self.put(o, cause));
    }

    /// A frame came.
    pub fn watched(&mut self, frame: &Frame) {
        match frame {
            Frame::Added(o) | Frame::Modified(o) => self.put(o, Cause::Watch),
            Frame::Deleted(o) => {
                let key = key_of(o);
                match self.bodies.remove(&key) {
                    None => self.unknown += 1,
                    Some(_) => self.tell(&key, Told::Deleted { version: Some(version_of(o).to_owned()), cause: Cause::Watch }),
                }
            }
            Frame::Bookmark(_) => {}
        }
    }
}
