//! Runs the server from bound sockets to a clean end.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
    task::JoinHandle,
};
use tonic::transport::server::{Router, TcpIncoming};
use tower::layer::util::{Identity, Stack};
use zeitnot_proto::v1::{model_service_server::ModelServiceServer, prediction_service_server::PredictionServiceServer};

use crate::{
    admin, config::Config, counting::CountLayer, metrics::Metrics, models::Models, readiness::Readiness,
    service::Service,
};

/// How long a worker may take to end when its queue has ended.
const WORKER_LIMIT: Duration = Duration::from_secs(2);

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

/// Serves until `shutdown` is done and what was accepted is answered.
///
/// Order of the end: NOT_SERVING; serve on for the drain delay; stop accepting; finish what was accepted, up to the
/// drain limit.
///
/// # Errors
///
/// When the model cannot be loaded or a port fails.
pub async fn run(
    config: Config,
    listeners: Listeners,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let config = Arc::new(config);
    let metrics = Metrics::new()?;
    let (health, health_service) = tonic_health::server::health_reporter();
    let readiness = Readiness::new(health, metrics.clone()).await;
    let models = Arc::new(ArcSwap::from_pointee(Models::default()));
    let (dead, mut deaths) = mpsc::unbounded_channel();

    let admin = axum::serve(listeners.admin, admin::routes(metrics.clone()));
    let admin = tokio::spawn(async move { admin.await });

    let service = Service::new(Arc::clone(&models), Arc::clone(&config));
    let (stop, stopped) = oneshot::channel::<()>();
    let incoming = TcpIncoming::from(listeners.grpc).with_nodelay(Some(true));
    let router = services(service, &config, metrics.clone())?.add_service(health_service);
    let mut grpc = tokio::spawn(router.serve_with_incoming_shutdown(incoming, async {
        let _ = stopped.await; // The sender's end means the same as its word.
    }));

    let loading = Models::load(&config, &metrics, &dead);
    tokio::pin!(shutdown, loading);
    let mut loaded = false;
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            result = &mut loading, if !loaded => {
                models.store(Arc::new(result?));
                loaded = true;
                readiness.set(true).await;
                tracing::info!("ready");
            }
            Some(worker) = deaths.recv() => {
                tracing::error!(worker, "a worker died");
                readiness.set(false).await;
            }
            ended = &mut grpc => {
                return ended.context("the gRPC server died")?.context("the gRPC server failed");
            }
        }
    }

    readiness.set(false).await;
    drain(&config, stop, grpc).await?;
    admin.abort();
    // The queue ends with its last sender, and the workers with their queue.
    models.store(Arc::new(Models::default()));
    while metrics.workers.get() > 0 {
        let Ok(Some(_)) = tokio::time::timeout(WORKER_LIMIT, deaths.recv()).await else { break };
    }
    tracing::info!("stopped");
    Ok(())
}

/// Serves on for a while, stops accepting, and lets what was accepted finish, up to the drain limit.
async fn drain(config: &Config, stop: oneshot::Sender<()>, mut grpc: JoinHandle<Served>) -> Result<()> {
    tracing::info!(delay_ms = config.drain_delay_ms, "draining");
    tokio::time::sleep(config.drain_delay()).await;
    let _ = stop.send(()); // The server has ended already when nobody listens.
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

/// Everything the gRPC port serves, but health.
fn services(service: Service, config: &Config, metrics: Metrics) -> Result<Router<Stack<CountLayer, Identity>>> {
    let limit = config.max_message_bytes;
    Ok(tonic::transport::Server::builder()
        .layer(CountLayer::new(metrics))
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
