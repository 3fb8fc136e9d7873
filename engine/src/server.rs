//! Runs the sidecar from bound sockets to a clean end.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use tokio::{
    net::TcpListener,
    sync::watch,
    task::{JoinError, JoinHandle},
    time::timeout,
};
use tonic::{
    Request, Status,
    service::{Interceptor, interceptor::InterceptedService},
    transport::server::{Router, Server},
};
use zeitnot_proto::engine::v1::engine_service_server::EngineServiceServer;

use crate::{
    admin, cache::Cache, config::Config, connections, deadline::Deadline, engines::Engines, metrics::Metrics,
    readiness::Readiness, service::Service, tls,
};

/// How often idle connections are pinged, and how long the answer may take.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// Most requests at the same time on one connection.
const MAX_STREAMS: u32 = 1024;
/// Largest header list of a request, in bytes.
const MAX_HEADER_BYTES: u32 = 16 * 1024;
/// Streams that a client may reset before they were accepted; more end its connection.
const MAX_PENDING_RESETS: usize = 64;
/// Largest request, in bytes; one with all candidates has two thousand.
const MAX_MESSAGE_BYTES: usize = 16 * 1024;
/// How much later than its deadline a request ends whose message has not come.
const MESSAGE_SLACK: Duration = Duration::from_secs(1);
/// How long requests whose search was given up may take to tell their clients.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Sockets to serve on.
#[derive(Debug)]
pub struct Listeners {
    grpc: TcpListener,
    admin: TcpListener,
}

impl Listeners {
    /// Binds both ports; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// When an address is taken or not ours, naming the option.
    pub async fn bind(config: &Config) -> Result<Self> {
        let bind = |option: &'static str, address: SocketAddr| async move {
            TcpListener::bind(address).await.with_context(|| format!("--{option}: cannot listen on {address}"))
        };
        Ok(Listeners {
            grpc: bind("listen", config.listen).await?,
            admin: bind("admin-listen", config.admin_listen).await?,
        })
    }

    /// Address of the gRPC port.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn grpc_address(&self) -> Result<SocketAddr> {
        Ok(self.grpc.local_addr()?)
    }

    /// Address of the admin port.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn admin_address(&self) -> Result<SocketAddr> {
        Ok(self.admin.local_addr()?)
    }
}

/// Serves until `shutdown` is done and what was accepted is answered. The engine is started meanwhile.
///
/// Order of the end: NOT_SERVING; serve on for the drain delay; stop accepting; finish what was accepted, up to the
/// shutdown limit; end the engines, whose requests are told so.
///
/// # Errors
///
/// When certificates cannot be read, or a port fails.
pub async fn run(config: Config, listeners: Listeners, shutdown: impl Future<Output = ()> + Send) -> Result<()> {
    let metrics = Metrics::new()?;
    let (health, health_service) = tonic_health::server::health_reporter();
    let readiness = Readiness::new(health, metrics.clone()).await;
    let cache = Cache::new(config.cache_entries);
    let engines = Engines::new(&config, metrics.clone());
    let service = Service::new(Arc::clone(&engines), cache.clone(), metrics.clone(), &config);
    let router = services(service, &config)?.add_service(health_service);

    let (stop, mut stopped) = watch::channel(false);
    let incoming = connections::accept(listeners.grpc, stopped.clone());
    let mut grpc = tokio::spawn(router.serve_with_incoming_shutdown(incoming, async move {
        let _ = stopped.wait_for(|stopped| *stopped).await; // The sender's end means the same as its word.
    }));
    let admin = axum::serve(listeners.admin, admin::routes(metrics, cache));
    let admin = tokio::spawn(async move { admin.await });
    let (drain, draining) = watch::channel(false);
    let keeping = tokio::spawn(Arc::clone(&engines).keep(readiness, draining));

    tokio::select! {
        () = shutdown => {}
        ended = &mut grpc => return clean(ended),
    }
    tracing::info!(delay_ms = config.drain_delay_ms, "draining");
    let _ = drain.send(true); // The keeper ends with us alone.
    tokio::time::sleep(config.drain_delay()).await;
    let _ = stop.send(true); // The server has ended already when nobody listens.
    let ended = finish(&config, &engines, grpc).await;
    // With the keeper ends a start that is under way.
    keeping.abort();
    let _ = keeping.await; // It was told to end.
    engines.shutdown().await;
    admin.abort();
    tracing::info!("stopped");
    ended
}

/// How a gRPC server ends.
type Served = Result<(), tonic::transport::Error>;

/// Lets what was accepted finish, up to the shutdown limit; then its engines end and it is told so.
async fn finish(config: &Config, engines: &Engines, mut grpc: JoinHandle<Served>) -> Result<()> {
    if let Ok(ended) = timeout(config.shutdown_limit(), &mut grpc).await {
        return clean(ended);
    }
    tracing::warn!(limit_ms = config.shutdown_limit_ms, "the shutdown limit passed with requests open");
    engines.shutdown().await;
    match timeout(LAST_WORDS, &mut grpc).await {
        Ok(ended) => clean(ended),
        Err(_) => {
            grpc.abort();
            Ok(())
        }
    }
}

fn clean(ended: Result<Served, JoinError>) -> Result<()> {
    ended.context("the gRPC server died")?.context("the gRPC server failed")
}

/// Notes when each request must be done, as its headers arrive.
#[derive(Clone, Copy, Debug)]
struct Stamp {
    limit: Duration,
}

impl Interceptor for Stamp {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let deadline = Deadline::of(request.metadata(), self.limit);
        request.extensions_mut().insert(deadline);
        Ok(request)
    }
}

/// Everything the gRPC port serves, but health.
fn services(service: Service, config: &Config) -> Result<Router> {
    let limit = config.max_deadline();
    let service = EngineServiceServer::new(service).max_decoding_message_size(MAX_MESSAGE_BYTES);
    let mut server = Server::builder()
        .timeout(limit + MESSAGE_SLACK)
        .max_concurrent_streams(MAX_STREAMS)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .http2_max_pending_accept_reset_streams(Some(MAX_PENDING_RESETS));
    if let Some(tls) = tls::read(config)? {
        server = server.tls_config(tls)?;
    }
    Ok(server
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?)
        .add_service(InterceptedService::new(service, Stamp { limit })))
}

/// Describes the services to clients, in the newer and the older reflection protocol.
fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(zeitnot_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
        // The descriptors hold the prediction service, too, which is not served here.
        .with_service_name("zeitnot.engine.v1.EngineService")
        .with_service_name("grpc.health.v1.Health")
}
