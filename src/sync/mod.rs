//! The facade: the only room that names `std::sync`, `std::thread`, parking_lot or the machine's clock.
//!
//! Every other room takes its locks, atomics, parking, threads and time from here, so that one build can stand on
//! std, another on a model checker, and tests on a clock that is moved by hand. Two kinds of lock:
//!
//! * [`Mutex`] is *counted*: [`call_out`] asserts that a thread holds none of them when it enters user code.
//! * [`Turn`] orders writers among themselves and may be held while an index function runs; readers, producers and
//!   handlers never take one.
//!
//! Blocking is built from one primitive, parking ([`park()`]), which the [`ManualClock`] can see.

mod std;
use self::std as backend;

pub(crate) use backend::{Arc, Lazy, Once, Weak, atomic, thread_local};

pub mod call_out;
mod census;
mod clock;
mod lock;
mod park;
mod stop;
mod thread;
mod wait;

pub use census::NotSettled;
pub use clock::{Clock, Instant, ManualClock};
pub(crate) use lock::{Mutex, MutexGuard, Turn};
pub(crate) use park::{Door, Monitor, Unparker, park, unparker};
pub use stop::{Gate, Stop, StopGuard, Wake, WakeGuard, Woken};
pub(crate) use thread::{JoinHandle, ThreadId, spawn, this_thread};
pub use wait::{Deadline, Synced, WaitError, wait_all_synced};

#[cfg(test)]
mod tests;
