//! The feature `kube` against an API server on plain threads. One program, since each would link all of kube.
//!
//! The informers' clocks are moved by hand; the network is real. A test waits until the server, or the reflector's hook,
//! has seen what it waits for, and moves the clock by the wait that it was told of. Nothing sleeps.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests use the user's types")]

#[path = "../../../tests/replay/answer.rs"]
mod answer;
mod errors;
mod faults;
mod http2;
mod kinds;
mod messages;
mod misuse;
mod requests;
mod stop;
mod streamed;
mod streams;
mod threads;
mod world;
