//! Calls of several threads to one [`Indexer`] have an order in which a plain map gives the same answers.

use super::{Index, Indexer, Stored, Write};
use crate::sync::prove::lin::{History, Sequential, histories, refutes};
use std::collections::BTreeMap;

type Model = BTreeMap<u8, u8>;

#[derive(Clone, Debug)]
pub enum Op {
    Put(u8, u8),
    Delete(u8),
    Apply(Vec<(u8, Option<u8>)>),
    Replace(Vec<(u8, u8)>),
    Get(u8),
    /// The keys that have a value, by the index.
    Find(u8),
    All,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Value(Option<u8>),
    Keys(Vec<u8>),
    All(Model),
    Done,
}

impl Sequential for Model {
    type Op = Op;
    type Answer = Answer;

    fn step(&mut self, _thread: usize, op: &Op) -> Option<Answer> {
        Some(match op {
            Op::Put(key, value) => Answer::Value(self.insert(*key, *value)),
            Op::Delete(key) => Answer::Value(self.remove(key)),
            Op::Apply(batch) => {
                for (key, value) in batch {
                    match value {
                        Some(value) => self.insert(*key, *value),
                        None => self.remove(key),
                    };
                }
                Answer::Done
            }
            Op::Replace(all) => {
                *self = all.iter().copied().collect();
                Answer::Done
            }
            Op::Get(key) => Answer::Value(self.get(key).copied()),
            Op::Find(value) => Answer::Keys(self.iter().filter(|(_, v)| *v == value).map(|(k, _)| *k).collect()),
            Op::All => Answer::All(self.clone()),
        })
    }
}

impl Op {
    fn draw(rng: &mut fastrand::Rng) -> Self {
        let (key, value) = (rng.u8(..3), rng.u8(..3));
        match rng.u8(..10) {
            0..3 => Self::Put(key, value),
            3 => Self::Delete(key),
            4 => Self::Apply((0..3).map(|key| (key, rng.bool().then_some(value))).collect()),
            5 => Self::Replace((0..key).map(|key| (key, value)).collect()),
            6 => Self::Get(key),
            7 | 8 => Self::Find(value),
            _ => Self::All,
        }
    }

    fn call(&self, store: &Indexer<u8, u8>, index: &Index<u8>) -> Answer {
        match self {
            Self::Put(key, value) => Answer::Value(store.put(*key, *value).unwrap().map(|old| *old)),
            Self::Delete(key) => Answer::Value(store.delete(key).unwrap().map(|old| *old)),
            Self::Apply(batch) => {
                let writes = batch.iter().map(|(key, value)| value.map_or(Write::Delete(*key), |value| Write::Put(*key, value)));
                assert_eq!(store.apply(writes), []);
                Answer::Done
            }
            Self::Replace(all) => {
                assert_eq!(store.replace(all.iter().copied()), Ok(vec![]));
                Answer::Done
            }
            Self::Get(key) => Answer::Value(store.get(key).map(|stored| *stored)),
            Self::Find(value) => {
                let mut keys: Vec<_> = store.by_index(index, value).unwrap().iter().map(|s| *Stored::key(s)).collect();
                keys.sort_unstable();
                Answer::Keys(keys)
            }
            Self::All => Answer::All(store.snapshot().iter().map(|s| (*Stored::key(s), **s)).collect()),
        }
    }
}

/// Three threads call whatever they like, four times each.
fn anything(number: u64, history: &History<Model>) {
    let mut rng = fastrand::Rng::with_seed(number);
    let store = Indexer::<u8, u8>::new();
    let index = store.add_index("value", |_, value: &u8, emit| emit(*value)).unwrap();
    let threads = [0, 1, 2].map(|thread| {
        let ops: Vec<_> = (0..4).map(|_| Op::draw(&mut rng)).collect();
        let (store, index, history) = (store.clone(), index.clone(), history.clone());
        shuttle::thread::spawn(move || {
            for op in ops {
                history.call(thread, op, |op| op.call(&store, &index));
            }
        })
    });
    threads.into_iter().for_each(|t| t.join().unwrap());
}

#[test]
fn whatever_several_threads_call_has_an_order() {
    histories("store: three threads, any calls", 20_000, Model::default, anything);
    refutes("indexer: a batch is one version", 20_000, Model::default, || anything);
}
