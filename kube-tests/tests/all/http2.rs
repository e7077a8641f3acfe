//! One connection for everybody. In front of the server stands a proxy that speaks TLS and HTTP/2 to the client.

use crate::{
    errors::{list, next, watch},
    world::two_pods,
};
use http_body_util::Empty;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    client, server,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use informer::{
    informer::SharedInformer,
    kube::{Io, KubeSource},
    source::{Next, SourceErrorKind, VersionMatch, WatchEvent},
    sync::{Stop, Synced},
};
use k8s_openapi::api::core::v1::Pod;
use kube_tests::{
    server::{Fault, Inject, On, PATIENCE, Server, line},
    tls::authority,
};
use serde_json::json;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};
use tokio_rustls::TlsAcceptor;

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Front {
    address: SocketAddr,
    root: Vec<u8>,
    connections: Arc<AtomicUsize>,
    /// Dropped with all its connections.
    _runtime: Runtime,
}

async fn forward(request: Request<Incoming>, to: SocketAddr) -> Result<Response<Incoming>, Failure> {
    let socket = TcpStream::connect(to).await?;
    let (mut sender, connection) = client::conn::http1::handshake(TokioIo::new(socket)).await?;
    tokio::spawn(connection);
    let target = request.uri().path_and_query().map_or("/", |p| p.as_str()).to_owned();
    let mut behind = Request::get(target).header("host", to.to_string()).body(Empty::<Bytes>::new())?;
    for (name, value) in request.headers() {
        behind.headers_mut().insert(name, value.clone());
    }
    let (mut head, body) = sender.send_request(behind).await?.into_parts();
    // HTTP/2 has no such thing.
    head.headers.remove("transfer-encoding");
    Ok(Response::from_parts(head, body))
}

impl Front {
    fn of(server: &Server) -> Self {
        let to = server.address();
        let authority = authority(&["127.0.0.1"], &[b"h2"]);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, acceptor) = (connections.clone(), TlsAcceptor::from(authority.server.clone()));
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let tls = acceptor.accept(socket).await?;
                    let forward = service_fn(move |request| forward(request, to));
                    let http = server::conn::http2::Builder::new(TokioExecutor::new());
                    http.serve_connection(TokioIo::new(tls), forward).await?;
                    Ok::<_, Failure>(())
                });
            }
        });
        Self { address, root: authority.root, connections, _runtime: runtime }
    }

    fn source(&self) -> KubeSource<Pod> {
        let io = Io::shared().unwrap();
        let mut config = kube::Config::new(format!("https://{}", self.address).parse().unwrap());
        config.root_cert = Some(vec![self.root.clone()]);
        KubeSource::new(&io, io.http2_client(config).unwrap())
    }
}

#[test]
fn thirty_watches_share_one_connection() {
    let server = two_pods();
    let front = Front::of(&server);
    let source = Arc::new(front.source());
    // So that the connection is there before thirty ask for one at once.
    assert_eq!(list(&source, VersionMatch::Any).unwrap(), "102");
    let stop = Stop::new();
    let informers: Vec<_> = (0..30).map(|_| SharedInformer::builder(source.clone()).build().unwrap()).collect();
    let running: Vec<_> = informers.iter().map(|i| i.spawn(&stop).unwrap()).collect();
    for informer in &informers {
        informer.wait_synced(PATIENCE.into()).unwrap();
    }
    server.wait("thirty watches", |s| s.open_watches() == 30);
    server.put_named("pods", "ns", "c", json!({}));
    server.delete("pods", "ns", "a");
    for informer in &informers {
        server.wait("agreement", |_| informer.store().version() == "104");
        assert_eq!(informer.store().len(), 2);
    }
    assert_eq!(front.connections.load(Ordering::SeqCst), 1);
    stop.stop();
    for informer in running {
        informer.join().unwrap();
    }
    server.wait("no watch is left", |s| s.open_watches() == 0);
}

#[test]
fn a_watch_that_nobody_reads_does_not_hold_up_the_others() {
    let server = two_pods();
    let front = Front::of(&server);
    let source = front.source();
    let unread: Vec<_> = (0..8).map(|_| watch(&source, "102").unwrap()).collect();
    server.wait("the watches", |s| s.open_watches() == 8);
    // More than any window of a stream, and together more than a usual window of a connection.
    let long = json!({"metadata": {"namespace": "ns", "name": "a", "resourceVersion": "103"}, "data": "x".repeat(4 << 20)});
    server.inject(Inject::Line(line("MODIFIED", &long)));
    let mut read = watch(&source, "102").unwrap();
    server.put_named("pods", "ns", "c", json!({}));
    let Next::Event(WatchEvent::Added(pod)) = next(&mut *read) else { panic!("no event") };
    assert_eq!(pod.metadata.name.as_deref(), Some("c"));
    assert_eq!(front.connections.load(Ordering::SeqCst), 1);
    drop(unread);
}

#[test]
fn its_failures_are_sorted_as_those_of_any_client() {
    let server = two_pods();
    let front = Front::of(&server);
    let source = front.source();
    server.fault(On::List, Fault::text(429, &[("Retry-After", "2")], "busy"));
    let error = list(&source, VersionMatch::Any).expect_err("busy");
    let two = Some(std::time::Duration::from_secs(2));
    assert_eq!(*error.kind(), SourceErrorKind::TooManyRequests { retry_after: two });
    let mut stream = watch(&source, "102").unwrap();
    server.wait("the watch", |s| s.open_watches() == 1);
    server.inject(Inject::Cut);
    let Next::Failed(error) = next(&mut *stream) else { panic!("no error") };
    assert_eq!(*error.kind(), SourceErrorKind::Transport);

    let address = front.address;
    drop((stream, front));
    let error = list(&source, VersionMatch::Any).expect_err("nobody listens");
    assert!(matches!(error.kind(), SourceErrorKind::ConnectionRefused | SourceErrorKind::Transport), "{address}: {error}");
}

#[test]
fn a_proxy_is_refused_and_not_left_out() {
    let mut config = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
    config.proxy_url = Some("http://127.0.0.1:2".parse().unwrap());
    let error = Io::shared().unwrap().http2_client(config).err().expect("a proxy");
    assert!(error.to_string().contains("use `client`"), "{error}");
}
