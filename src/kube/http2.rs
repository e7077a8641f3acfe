//! A client over HTTP/2 (feature `kube-http2`): one connection for all watches, which notices by pings when it is dead.
//!
//! kube's own clients speak HTTP/1.1, one connection for each watch. Here the connection is one, and each watch a stream
//! in it. *A watch that nobody reads does not hold up the others*: what a stream may have under way is small, and what the
//! connection may have is more than any number of streams can fill.

use super::{error, io::Io};
use crate::source::{SourceError, SourceErrorKind};
use ::kube::{
    Client, Config,
    client::{Body, ConfigExt},
};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use std::time::Duration;
use tower::{BoxError, ServiceBuilder};

/// client-go: `HTTP2_READ_IDLE_TIMEOUT_SECONDS`, `HTTP2_PING_TIMEOUT_SECONDS`.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// What a stream may have under way, unread.
const STREAM_WINDOW: u32 = 1 << 20;
/// What all streams of a connection may: as much as HTTP/2 can say.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;

impl Io {
    /// A client whose requests share one connection, with kube's own retries off. A connection that is silent is pinged
    /// every 30 s and taken for dead when no answer comes in 15 s; then each of its watches is told, and resumes.
    ///
    /// TLS is rustls; its provider is the application's choice (`kube`'s feature `ring` or `aws-lc-rs`). A server that
    /// knows no HTTP/2, or that is not reached by TLS, is spoken to as by [`Io::client`]. A server limits the streams of a
    /// connection, a kube-apiserver to 100 unless told otherwise: with more informers than that, use several clients.
    /// It stops working when the last `Io` is gone. *Blocks*: while a credential plugin runs.
    ///
    /// # Errors
    /// [`Other`](SourceErrorKind::Other), with what is wrong with the configuration; also when it asks for a proxy, which
    /// this client cannot use.
    pub fn http2_client(&self, config: Config) -> Result<Client, SourceError> {
        if config.proxy_url.is_some() {
            let context = "the configuration asks for a proxy, and `http2_client` knows none; use `client`";
            return Err(SourceError::new(SourceErrorKind::Other).with_context(context));
        }
        self.inside(|| client(config))
    }
}

fn client(config: Config) -> Result<Client, SourceError> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(config.connect_timeout);
    let tls = config.rustls_client_config().map_err(error::no_client)?;
    let mut connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let Ok(name) = name.clone().try_into() else {
            let context = "the configuration's tls-server-name is no name";
            return Err(SourceError::new(SourceErrorKind::Other).with_context(context));
        };
        connector = connector.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let client = legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .http2_keep_alive_while_idle(true)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .build::<_, Body>(connector.enable_all_versions().wrap_connector(http));
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(error::no_client)?)
        .layer(config.extra_headers_layer().map_err(error::no_client)?)
        .map_err(BoxError::from)
        .service(client);
    Ok(Client::new(service, config.default_namespace))
}
