//! Runs the server from bound sockets to a clean end.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};
use tonic::transport::server::Router;
use tower::layer::util::{Identity, Stack};
use zeitnot_proto::v1::{model_service_server::ModelServiceServer, prediction_service_server::PredictionServiceServer};

use crate::{
    access::AccessLayer,
    admin,
    cache::Cache,
    config::Config,
    connections,
    credentials::Credentials,
    memory,
    metrics::Metrics,
    model_files,
    models::{Loader, Models, Opener},
    observe::ObserveLayer,
    readiness::Readiness,
    reload,
    rerank::{kit, stage::Stage},
    service::Service,
};

/// How long a worker may take to end when its queue has ended.
const WORKER_LIMIT: Duration = Duration::from_secs(5);
/// How often idle connections are pinged, and how long the answer may take.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// Largest header list of a request, in bytes.
const MAX_HEADER_BYTES: u32 = 16 * 1024;
/// Streams that a client may reset before they were accepted; more end its connection.
const MAX_PENDING_RESETS: usize = 64;

/// Sockets to serve on.
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

/// What may happen to a server from outside.
pub struct Signals<S> {
    /// Done when the server is to end.
    pub shutdown: S,
    /// A word for every request to reload models, keys and certificates.
    pub hangups: mpsc::Receiver<()>,
}

/// Serves until told to end and what was accepted is answered. `opener` opens the models.
///
/// Order of the end: NOT_SERVING; serve on for the drain delay; stop accepting; finish what was accepted, up to the
/// drain limit.
///
/// # Errors
///
/// When a model or the credentials cannot be loaded, or a port fails.
pub async fn run(
    config: Config,
    listeners: Listeners,
    opener: Opener,
    signals: Signals<impl Future<Output = ()> + Send + 'static>,
) -> Result<()> {
    let config = Arc::new(config);
    let metrics = Metrics::new()?;
    let (health, health_service) = tonic_health::server::health_reporter();
    let readiness = Readiness::new(health, metrics.clone()).await;
    let credentials = Arc::new(Credentials::read(Arc::clone(&config), metrics.clone())?);
    if config.api_keys.is_some() && config.tls_cert.is_none() {
        tracing::warn!("API keys are sent unencrypted, unless something before this server adds TLS");
    }
    let cache = Cache::new(config.cache_mib * 1024 * 1024);
    let models = Arc::new(ArcSwap::from_pointee(Models::default()));
    let (changed, mut changes) = mpsc::unbounded_channel();
    let loader = Loader::new(Arc::clone(&config), metrics.clone(), cache.clone(), opener, changed);
    let (reloader, reloading) = reload::channel(loader, Arc::clone(&models), metrics.clone());

    let admin = axum::serve(listeners.admin, admin::routes(metrics.clone(), cache.clone()));
    let admin = tokio::spawn(async move { admin.await });

    let stage = Stage::new(&config, metrics.rerank.clone())?;
    let service = Service::new(Arc::clone(&models), Arc::clone(&config), cache, reloader.clone(), stage);
    let (stop, mut stopped) = watch::channel(false);
    let incoming =
        connections::accept(listeners.grpc, &config, Arc::clone(&credentials), metrics.clone(), stopped.clone());
    let router = services(service, &config, &credentials, &metrics)?.add_service(health_service);
    let mut grpc = tokio::spawn(router.serve_with_incoming_shutdown(incoming, async move {
        let _ = stopped.wait_for(|stopped| *stopped).await; // The sender's end means the same as its word.
    }));

    let (started, mut starting) = oneshot::channel();
    let stamps = {
        let config = Arc::clone(&config);
        move || [model_files::stamps(&config.model), kit::stamps(&config.rerank)].concat()
    };
    let reloading = tokio::spawn(reloading.run(stamps, config.watch_interval(), started));
    let Signals { shutdown, mut hangups } = signals;
    let watching = credentials.keep_current(config.watch_interval());
    tokio::pin!(shutdown, watching);
    let mut loaded = false;
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            result = &mut starting, if !loaded => {
                result.context("the task that loads models died")??;
                loaded = true;
                metrics.started.set(1);
                readiness.set(models.load().are_able()).await;
                tracing::info!("ready");
            }
            Some(()) = changes.recv(), if loaded => {
                readiness.set(models.load().are_able()).await;
                tokio::task::spawn_blocking(memory::trim);
            }
            Some(()) = hangups.recv() => {
                credentials.reload();
                let reloader = reloader.clone();
                tokio::spawn(async move { reloader.reload().await }); // The log tells; two under way do for a third.
            }
            () = &mut watching => {}
            ended = &mut grpc => return ended.context("the gRPC server died")?.context("the gRPC server failed"),
        }
    }

    readiness.set(false).await;
    drain(&config, stop, grpc).await?;
    admin.abort();
    reloading.abort();
    let _ = reloading.await; // It was told to end; with it ends what else could send on `changes` than workers.
    // A queue ends with its model, and the workers with their queue.
    models.store(Arc::new(Models::default()));
    let ended = async { while changes.recv().await.is_some() {} };
    if tokio::time::timeout(WORKER_LIMIT, ended).await.is_err() {
        tracing::warn!("a worker is still busy");
    }
    tracing::info!("stopped");
    Ok(())
}

/// Serves on for a while, stops accepting, and lets what was accepted finish, up to the drain limit.
async fn drain(config: &Config, stop: watch::Sender<bool>, mut grpc: JoinHandle<Served>) -> Result<()> {
    tracing::info!(delay_ms = config.drain_delay_ms, "draining");
    tokio::time::sleep(config.drain_delay()).await;
    let _ = stop.send(true); // The server has ended already when nobody listens.
    match tokio::time::timeout(config.drain_limit(), &mut grpc).await {
        Ok(ended) => ended.context("the gRPC server died")?.context("the gRPC server failed"),
        Err(_) => {
            tracing::warn!(limit_ms = config.drain_limit_ms, "the drain limit passed with requests open");
            grpc.abort();
            Ok(())
        }
    }
}

/// How a gRPC server ends.
type Served = Result<(), tonic::transport::Error>;

/// Layers of every service, the outer one first.
type Layers = Stack<AccessLayer, Stack<ObserveLayer, Identity>>;

/// Everything the gRPC port serves, but health.
fn services(
    service: Service,
    config: &Config,
    credentials: &Arc<Credentials>,
    metrics: &Metrics,
) -> Result<Router<Layers>> {
    let limit = config.max_message_bytes;
    Ok(tonic::transport::Server::builder()
        .max_concurrent_streams(config.max_streams)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .http2_max_pending_accept_reset_streams(Some(MAX_PENDING_RESETS))
        .layer(ObserveLayer::new(metrics.clone(), config.access_log, config.max_deadline()))
        .layer(AccessLayer::new(Arc::clone(credentials)))
        .add_optional_service(config.reflection.then(|| reflection().build_v1()).transpose()?)
        .add_optional_service(config.reflection.then(|| reflection().build_v1alpha()).transpose()?)
        .add_service(PredictionServiceServer::new(service.clone()).max_decoding_message_size(limit))
        .add_service(ModelServiceServer::new(service).max_decoding_message_size(limit)))
}

/// Describes the services to clients, in the newer and the older reflection protocol.
fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(zeitnot_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
}
