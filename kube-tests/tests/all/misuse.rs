//! What a user may get wrong, and what then happens.

use crate::{
    errors::list,
    world::{pods, two_pods},
};
use informer::{kube::Io, source::VersionMatch};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A client needs a runtime when it is made, which plain threads have not. `Io::client` has one.
#[test]
fn a_client_is_made_where_there_is_no_runtime() {
    let server = two_pods();
    let made = catch_unwind(AssertUnwindSafe(|| kube::Client::try_from(server.config()).is_ok()));
    assert!(made.is_err(), "kube's own way panics on a plain thread");
    Io::shared().unwrap().client(server.config()).unwrap();
}

/// It blocks that thread of the runtime, and nothing worse: other threads of it go on.
#[test]
fn inside_an_async_task_it_blocks_and_does_not_panic() {
    let server = two_pods();
    let source = pods(&server);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let version = runtime.block_on(async { tokio::spawn(async move { list(&source, VersionMatch::Any) }).await.unwrap() });
    assert_eq!(version.unwrap(), "102");
}

/// Even on the only thread of a runtime.
#[test]
fn on_the_only_thread_of_a_runtime_it_works_as_well() {
    let server = two_pods();
    let source = pods(&server);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(runtime.block_on(async { list(&source, VersionMatch::Any) }).unwrap(), "102");
}
