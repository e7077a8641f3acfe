//! Operations on a ring by one thread that has both ends, checked against a plain queue. Tests draw them from bytes, and
//! so does the fuzz target.

use super::ring_of;
use crate::sync::{Arc, Clock};
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Push(u8),
    Wake,
    /// Left out when it would wait.
    Pop,
    Close,
    DropConsumer,
    DropProducer,
}

impl Op {
    fn draw(byte: &mut dyn FnMut() -> u8) -> Self {
        match byte() {
            0..120 => Self::Push(byte()),
            120..240 => Self::Pop,
            240..250 => Self::Wake,
            250..253 => Self::Close,
            253 => Self::DropProducer,
            _ => Self::DropConsumer,
        }
    }
}

/// Draws operations as long as there are bytes.
pub(crate) fn program(bytes: &[u8]) -> Vec<Op> {
    let (mut left, mut ops) = (bytes.iter(), Vec::new());
    while !left.as_slice().is_empty() {
        ops.push(Op::draw(&mut || left.next().copied().unwrap_or(0)));
    }
    ops
}

/// Does `ops` with a ring of segments of `N` slots.
///
/// # Panics
/// When the ring differs from a plain queue: in what comes out, in how many there are, in what it has dropped.
pub(crate) fn check<const N: usize>(ops: &[Op]) {
    let (producer, consumer) = ring_of::<(u8, Arc<()>), N>(&Clock::real());
    let (mut producer, mut consumer) = (Some(producer), Some(consumer));
    let mark = Arc::new(());
    // The item popped last counts until the consumer comes back, though it is dropped here at once.
    let (mut queue, mut in_hand, mut closed) = (VecDeque::new(), 0, false);
    for op in ops {
        match (*op, &producer, &mut consumer) {
            (Op::Push(x), Some(producer), _) => {
                let refused = producer.push((x, mark.clone())).map_err(|(x, _)| x);
                assert_eq!(refused, if closed { Err(x) } else { Ok(()) }, "{op:?} of {ops:?}");
                queue.extend((!closed).then_some(x));
            }
            (Op::Wake, Some(producer), _) => producer.wake(),
            (Op::Pop, _, Some(consumer)) if closed || !queue.is_empty() => {
                let want = if closed { None } else { queue.pop_front() };
                assert_eq!(consumer.pop().map(|(x, _)| x), want, "{op:?} of {ops:?}");
                in_hand = usize::from(want.is_some());
            }
            (Op::Close, Some(producer), _) => {
                producer.close();
                closed = true;
            }
            (Op::DropProducer, ..) => producer = None,
            (Op::DropConsumer, ..) => {
                consumer = None;
                queue.clear();
                (in_hand, closed) = (0, true);
            }
            _ => {}
        }
        if let Some(producer) = &producer {
            assert_eq!(producer.len(), queue.len() + in_hand, "after {op:?} of {ops:?}");
        }
        if producer.is_none() && consumer.is_none() {
            break;
        }
        assert_eq!(Arc::strong_count(&mark), 1 + queue.len(), "after {op:?} of {ops:?}");
    }
    drop((producer, consumer));
    assert_eq!(Arc::strong_count(&mark), 1, "everything is dropped once");
}
