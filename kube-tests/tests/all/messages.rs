//! Messages say what to do, and never what an object holds.

use crate::{
    errors::{list, next, watch},
    world::{pods, two_pods},
};
use informer::{
    kube::{Io, KubeSource},
    source::{ListParams, ListerWatcher, Next, Scope, SourceError, SourceErrorKind, VersionMatch},
    sync::Stop,
};
use k8s_openapi::api::core::v1::Pod;
use kube_tests::{
    server::{Fault, Inject, On, Server, line, status},
    tls::authority,
};
use serde_json::{Value, json};
use std::{
    error::Error,
    net::TcpListener,
    ops::ControlFlow,
    sync::{Mutex, Once},
};

/// An error and all that lies beneath it, as the reflector tells it.
fn whole(e: &SourceError) -> String {
    let mut text = format!("{e} / {e:?}");
    let mut beneath = e.source();
    while let Some(e) = beneath {
        text.push_str(&format!(": {e}"));
        beneath = e.source();
    }
    text
}

fn source(config: kube::Config) -> KubeSource<Pod> {
    let io = Io::shared().unwrap();
    let client = io.client(config).unwrap();
    KubeSource::new(&io, client)
}

#[track_caller]
fn fails(config: kube::Config, kind: &SourceErrorKind, says: &str) {
    let error = list(&source(config), VersionMatch::Any).expect_err("it cannot work");
    assert_eq!(error.kind(), kind, "{}", whole(&error));
    assert!(whole(&error).contains(says), "{says:?} is not in {}", whole(&error));
}

#[test]
fn a_server_that_is_not_there() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    fails(config, &SourceErrorKind::ConnectionRefused, "is the server running");
    let config = kube::Config::new("http://no-such-host.invalid:1".parse().unwrap());
    fails(config, &SourceErrorKind::Connect, "does not resolve");
}

#[test]
fn tls_that_fits_works_and_the_wrong_authority_name_or_scheme_say_so() {
    let ours = authority(&["127.0.0.1"], &[]);
    let server = Server::tls(&ours);
    server.put_named("pods", "ns", "a", json!({}));
    assert_eq!(list(&source(server.config()), VersionMatch::Any).unwrap(), "101");

    let mut wrong = server.config();
    wrong.root_cert = Some(vec![authority(&["127.0.0.1"], &[]).root]);
    fails(wrong, &SourceErrorKind::Connect, "certificate-authority");

    let elsewhere = Server::tls(&authority(&["elsewhere.example"], &[]));
    fails(elsewhere.config(), &SourceErrorKind::Connect, "tls-server-name");

    // TLS to a port that speaks HTTP.
    let plain = two_pods();
    let mut https = kube::Config::new(format!("https://{}", plain.address()).parse().unwrap());
    https.root_cert = Some(vec![ours.root]);
    fails(https, &SourceErrorKind::Connect, "speaks no TLS");

    // And the other way round, as a real server answers.
    let server = two_pods();
    server.fault(On::List, Fault::text(400, &[], "Client sent an HTTP request to an HTTPS server.\n"));
    let kind = SourceErrorKind::Server { code: 400, reason: String::new(), retry_after: None };
    fails(server.config(), &kind, "must begin with https");
}

#[test]
fn a_user_without_rights_is_told_by_the_server_what_is_missing() {
    let server = two_pods();
    let message = "pods is forbidden: User \"viewer\" cannot list resource \"pods\" in API group \"\" at the cluster scope";
    server.fault(On::List, Fault::status(403, "Forbidden", message, Value::Null));
    fails(server.config(), &SourceErrorKind::Forbidden, message);
    server.fault(On::List, Fault::status(401, "Unauthorized", "Unauthorized", Value::Null));
    fails(server.config(), &SourceErrorKind::Unauthorized, "check the user's token or certificate");
}

#[test]
fn a_long_message_is_cut_and_stays_one_line() {
    let server = two_pods();
    server.fault(On::List, Fault::status(500, "", &"very\nlong ".repeat(10_000), Value::Null));
    let error = list(&pods(&server), VersionMatch::Any).expect_err("an error");
    let text = error.to_string();
    assert!(text.len() < 1000 && !text.contains('\n') && text.contains('…'), "{} bytes", text.len());
}

/// A proxy may say anything, for ever.
#[test]
fn an_endless_answer_that_is_an_error_is_read_in_part() {
    let server = two_pods();
    server.fault(On::List, Fault::text(502, &[], &"hunter2".repeat(1 << 20)));
    let error = list(&pods(&server), VersionMatch::Any).expect_err("an error");
    assert_eq!(*error.kind(), SourceErrorKind::Server { code: 502, reason: String::new(), retry_after: None });
    assert!(!whole(&error).contains("hunter2"));
}

/// Everything that is logged, by whoever logs.
struct Logged;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl log::Log for Logged {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        LINES.lock().unwrap().push(format!("{} {}", record.target(), record.args()));
    }

    fn flush(&self) {}
}

#[test]
fn no_body_is_ever_in_a_log_or_in_the_text_of_an_error() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Logged).unwrap();
        log::set_max_level(log::LevelFilter::Trace);
    });
    const SECRET: &str = "hunter2-of-this-test";
    let server = two_pods();
    let source = pods(&server);
    let mut texts = Vec::new();

    // Neither an object that cannot be decoded, in a list and in a stream..
    let bad = json!({"metadata": {"namespace": "ns", "name": "bad", "resourceVersion": "5"}, "spec": {"containers": SECRET}});
    let body = json!({"kind": "PodList", "metadata": {"resourceVersion": "9"}, "items": [bad]});
    server.fault(On::List, Fault::json(200, &body));
    let params = ListParams { version: VersionMatch::Any, limit: None, continue_token: None, scope: Scope::default() };
    let end = source.list(&Stop::new(), &params, &mut |item| {
        texts.push(format!("{:?}", item.expect_err("it is no pod")));
        ControlFlow::Continue(())
    });
    assert_eq!((end.unwrap().version.as_str(), texts.len()), ("9", 1));
    let mut stream = watch(&source, "102").unwrap();
    server.wait("the watch", |s| s.open_watches() == 1);
    server.inject(Inject::Line(line("MODIFIED", &bad)));
    let Next::Event(event) = next(&mut *stream) else { panic!("no event") };
    texts.push(format!("{event:?}"));
    // .. nor a frame or a body that is no JSON at all, nor one that ends too early..
    server.inject(Inject::Line(format!("{{\"type\": \"ADDED\", \"object\": {SECRET}")));
    let Next::Failed(error) = next(&mut *stream) else { panic!("no error") };
    texts.push(whole(&error));
    for body in [format!("{{\"items\": [{SECRET}"), format!("\"{SECRET}"), format!("{{\"metadata\": {{\"name\": \"{SECRET}\"")] {
        server.fault(On::List, Fault::text(200, &[], &body));
        texts.push(whole(&list(&source, VersionMatch::Any).expect_err("no list")));
    }
    // .. nor an error that is not a Status, or says that it is none.
    server.fault(On::List, Fault::json(500, &json!({"kind": "Secret", "message": SECRET, "data": SECRET})));
    texts.push(whole(&list(&source, VersionMatch::Any).expect_err("an error")));
    let frame = status(200, "", "", json!({"causes": [{"reason": SECRET, "message": SECRET}]}));
    server.fault(On::Watch, Fault::Lines(vec![line("ERROR", &frame)]));
    let Next::Failed(error) = next(&mut *watch(&source, "102").unwrap()) else { panic!("no error") };
    texts.push(whole(&error));

    let logged = LINES.lock().unwrap();
    assert!(logged.iter().any(|l| l.contains("requesting")), "kube's client logs nothing, so this looks at nothing");
    for text in texts.iter().chain(logged.iter()) {
        assert!(!text.contains(SECRET), "{text}");
    }
}
