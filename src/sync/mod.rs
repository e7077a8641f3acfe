//! The facade: the only room that names `std::sync`, `std::thread`, parking_lot or the machine's clock.
//!
//! Every other room takes its locks, atomics, parking, threads and time from here, so that one build can stand on
//! std, another on a model checker, and tests on a clock that is moved by hand. Two kinds of lock:
//!
//! * `Mutex` is *counted*: [`call_out`] asserts that a thread holds none of them when it enters user code.
//! * `Turn` orders writers among themselves and may be held while an index function runs; readers, producers and
//!   handlers never take one.
//!
//! Blocking is built from one primitive, parking (`park`), which the [`ManualClock`] can see.
//!
//! # Backends
//! `std` is everybody's. `--cfg informer_loom` and `--cfg informer_shuttle` (each with the feature of that checker) put
//! the whole crate on a model checker; `prove` runs the models then. What must hold in a model is the same in all
//! three, and each backend says at its top where it is weaker or stronger than the machine.

#[cfg(all(informer_loom, informer_shuttle))]
compile_error!("choose one of --cfg informer_loom and --cfg informer_shuttle");
#[cfg(all(informer_loom, not(feature = "loom")))]
compile_error!("--cfg informer_loom goes with --features loom");
#[cfg(all(informer_shuttle, not(feature = "shuttle")))]
compile_error!("--cfg informer_shuttle goes with --features shuttle");

#[cfg(not(informer_loom))]
mod cell;
#[cfg(any(informer_loom, informer_shuttle))]
mod checked;
#[cfg(informer_loom)]
mod loom;
#[cfg(informer_shuttle)]
mod shuttle;
#[cfg(not(any(informer_loom, informer_shuttle)))]
mod std;

#[cfg(informer_loom)]
use self::loom as backend;
#[cfg(informer_shuttle)]
use self::shuttle as backend;
#[cfg(not(any(informer_loom, informer_shuttle)))]
use self::std as backend;

pub(crate) use backend::{Alive, Arc, CheckedArc, Once, Seed, UnsafeCell, Weak, atomic, constant, for_ever, lazy, thread_local};

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

#[cfg(any(informer_loom, informer_shuttle))]
#[doc(hidden)]
pub mod prove;
#[cfg(any(informer_loom, informer_shuttle))]
pub(crate) use prove::{keep, order};

/// What `prove` has in builds for a model checker; here the places of mutants are nothing at all.
#[cfg(not(any(informer_loom, informer_shuttle)))]
mod unbroken {
    use super::atomic::Ordering;

    /// `ordering`.
    #[inline(always)]
    pub(crate) const fn order(_place: &str, ordering: Ordering) -> Ordering {
        ordering
    }

    /// True.
    #[inline(always)]
    pub(crate) const fn keep(_place: &str) -> bool {
        true
    }
}
#[cfg(not(any(informer_loom, informer_shuttle)))]
pub(crate) use unbroken::{keep, order};

#[cfg(all(test, informer_shuttle))]
mod freeze;
#[cfg(all(test, informer_shuttle))]
mod lin;
#[cfg(all(test, informer_loom))]
mod model;
#[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
mod tests;
