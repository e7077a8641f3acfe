//! The thread for the network begins with its first user and ends with its last. A program of its own: in others somebody
//! is always using it.
#![cfg(target_os = "linux")]

use informer::{
    kube::{Io, KubeSource},
    source::{ListerWatcher, Scope, WatchParams},
    sync::Stop,
};
use k8s_openapi::api::core::v1::Pod;
use kube_tests::server::Server;
use std::{fs, time::Duration};

fn threads(name: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks.filter(|t| fs::read_to_string(t.path().join("comm")).is_ok_and(|n| n.trim() == name)).count()
}

#[test]
fn the_thread_ends_with_its_last_user_and_begins_again_with_the_next() {
    let server = Server::plain();
    // A thread names itself when it begins, and the system strikes it off a moment after it was joined.
    let network = |what: &str, n: usize| server.wait(what, |_| threads("kube-io") == n);
    for _ in 0..3 {
        network("nobody uses it yet", 0);
        let io = Io::shared().unwrap();
        let same = Io::shared().unwrap();
        network("one for both", 1);
        let source = KubeSource::<Pod>::new(&io, io.client(server.config()).unwrap());
        drop((io, same));
        network("a source uses it", 1);
        let (from, timeout, scope) = ("100".to_owned(), Duration::from_secs(60), Scope::default());
        let params = WatchParams { from, timeout, bookmarks: true, initial_events: false, scope };
        let stream = source.watch(&Stop::new(), &params).unwrap();
        drop(source);
        network("an open watch uses it", 1);
        drop(stream);
        network("nobody uses it any more", 0);
        server.wait("no connection is left", |s| s.open_connections() == 0);
    }
}
