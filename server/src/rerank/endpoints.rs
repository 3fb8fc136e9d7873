//! The engine sidecars there are: found, called over one connection each, and the least busy one first.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use tokio::task::JoinHandle;
use tonic::transport::{Certificate, Channel, ClientTlsConfig};
use zeitnot_proto::engine::v1::engine_service_client::EngineServiceClient;

use super::{
    address::Address,
    breaker::{Breaker, Pass, Verdict},
};
use crate::metrics::{EngineMetrics, Held, RerankMetrics};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(1);
/// How often connections are pinged, and how long the answer may take.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3));
/// How often names are looked up.
const LOOK_UP: Duration = Duration::from_secs(5);
/// Largest answer of a sidecar, in bytes; one for 16 candidates takes less than a thousand.
const LARGEST_ANSWER: usize = 64 * 1024;

/// A client of one sidecar.
pub type Client = EngineServiceClient<Channel>;

/// All sidecars.
#[derive(Debug)]
pub struct Endpoints {
    all: Arc<ArcSwap<Vec<Arc<Endpoint>>>>,
    turn: AtomicUsize,
    looking_up: Option<JoinHandle<()>>,
}

/// One sidecar.
#[derive(Debug)]
pub struct Endpoint {
    /// Where it is.
    uri: String,
    connector: tonic::transport::Endpoint,
    in_flight: AtomicUsize,
    metrics: EngineMetrics,
    line: Mutex<Line>,
}

/// The way to a sidecar.
#[derive(Debug)]
struct Line {
    client: Client,
    breaker: Breaker,
}

/// A question to a sidecar, from before it is sent until its end. Dropped without one, nobody waited for it.
#[derive(Debug)]
pub struct Ticket {
    endpoint: Arc<Endpoint>,
    pass: Pass,
    asked: Instant,
    ended: bool,
    /// Whether its sidecar is given enough time to be blamed for silence.
    pub fair: bool,
    _held: Held,
}

/// Sidecars by their URIs, with the name that the certificate of a looked-up one is for.
type Found = BTreeMap<String, Option<String>>;

/// How to find sidecars and connect to them.
#[derive(Clone, Debug)]
struct Finder {
    addresses: Vec<Address>,
    authority: Option<Vec<u8>>,
    metrics: RerankMetrics,
}

impl Endpoints {
    /// The sidecars at these addresses. Names are looked up from now on until this is dropped; within a runtime.
    ///
    /// # Errors
    ///
    /// When an address or the authority's certificate cannot be used.
    pub fn new(addresses: Vec<Address>, authority: Option<Vec<u8>>, metrics: RerankMetrics) -> Result<Self> {
        let finder = Finder { addresses, authority, metrics };
        let named = finder.addresses.iter().filter_map(|address| match address {
            Address::One(uri) => Some((uri.clone(), None)),
            Address::Dns { .. } => None,
        });
        let known = finder.endpoints(named.collect(), &[])?;
        finder.metrics.engines.set(known.len() as i64);
        let all = Arc::new(ArcSwap::from_pointee(known));
        let changing = finder.addresses.iter().any(|address| matches!(address, Address::Dns { .. }));
        let looking_up = changing.then(|| tokio::spawn(finder.keep_current(Arc::clone(&all))));
        Ok(Endpoints { all, turn: AtomicUsize::new(0), looking_up })
    }

    /// The least busy sidecar that may be asked and was not yet; among equals each in its turn.
    pub fn pick(&self, asked: &[Ticket]) -> Option<Ticket> {
        let all = self.all.load();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let (early, late) = all.split_at(turn.checked_rem(all.len()).unwrap_or(0));
        let fresh = |endpoint: &&Arc<Endpoint>| !asked.iter().any(|ticket| Arc::ptr_eq(&ticket.endpoint, endpoint));
        let mut order = late.iter().chain(early).filter(fresh).collect::<Vec<_>>();
        order.sort_by_key(|endpoint| endpoint.in_flight.load(Ordering::Relaxed));
        order.into_iter().find_map(Endpoint::enter)
    }
}

impl Drop for Endpoints {
    fn drop(&mut self) {
        if let Some(task) = &self.looking_up {
            task.abort();
        }
    }
}

impl Finder {
    /// Their endpoints; those known already are kept as they are.
    fn endpoints(&self, found: Found, known: &[Arc<Endpoint>]) -> Result<Vec<Arc<Endpoint>>> {
        let endpoint = |(uri, name)| match known.iter().find(|endpoint| endpoint.uri == uri) {
            Some(endpoint) => Ok(Arc::clone(endpoint)),
            None => self.endpoint(uri, name).map(Arc::new),
        };
        found.into_iter().map(endpoint).collect()
    }

    fn endpoint(&self, uri: String, name: Option<String>) -> Result<Endpoint> {
        let mut connector = Channel::from_shared(uri.clone())
            .with_context(|| format!("--engines: `{uri}`"))?
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE.0)
            .keep_alive_timeout(KEEPALIVE.1)
            .keep_alive_while_idle(true);
        if let Some(authority) = self.authority.as_ref().filter(|_| uri.starts_with("https:")) {
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority));
            let tls = match name {
                Some(name) => tls.domain_name(name),
                None => tls,
            };
            connector = connector.tls_config(tls).context("--engine-tls-ca")?;
        }
        let metrics = self.metrics.engine(&uri);
        let line = Mutex::new(Line { client: connect(&connector), breaker: Breaker::default() });
        Ok(Endpoint { uri, connector, in_flight: AtomicUsize::new(0), metrics, line })
    }

    /// Looks names up again and again. A name that cannot be looked up leaves all as it is.
    async fn keep_current(self, all: Arc<ArcSwap<Vec<Arc<Endpoint>>>>) {
        let mut well = true;
        loop {
            match self.look_up().await.and_then(|found| self.endpoints(found, &all.load())) {
                Ok(found) => {
                    let changed = found.iter().map(|endpoint| &endpoint.uri).ne(all.load().iter().map(|own| &own.uri));
                    if changed {
                        let uris = found.iter().map(|endpoint| &endpoint.uri).collect::<Vec<_>>();
                        tracing::info!(engines = ?uris, "engines found");
                        self.metrics.engines.set(found.len() as i64);
                        all.store(Arc::new(found));
                    }
                    well = true;
                }
                Err(error) => {
                    // Once a failure, not every few seconds.
                    if std::mem::replace(&mut well, false) {
                        tracing::warn!(error = format!("{error:#}"), "engines cannot be looked up, those known stay");
                    }
                }
            }
            tokio::time::sleep(LOOK_UP).await;
        }
    }

    async fn look_up(&self) -> Result<Found> {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        let mut all = Found::new();
        for address in &self.addresses {
            match address {
                Address::One(uri) => drop(all.insert(uri.clone(), None)),
                Address::Dns { host, port } => {
                    let found = tokio::net::lookup_host((host.as_str(), *port)).await.with_context(|| host.clone())?;
                    all.extend(found.map(|address| (format!("{scheme}://{address}"), Some(host.clone()))));
                }
            }
        }
        Ok(all)
    }
}

/// A client that connects when it is first used.
fn connect(connector: &tonic::transport::Endpoint) -> Client {
    Client::new(connector.connect_lazy()).max_decoding_message_size(LARGEST_ANSWER)
}

impl Endpoint {
    fn enter(self: &Arc<Self>) -> Option<Ticket> {
        let asked = Instant::now();
        let pass = {
            let mut line = self.line();
            let pass = line.breaker.pass(asked)?;
            self.metrics.breaker.set(line.breaker.level());
            pass
        };
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        let held = Held::new(&self.metrics.in_flight);
        Some(Ticket { endpoint: Arc::clone(self), pass, asked, ended: false, fair: false, _held: held })
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        // Nothing that can panic runs under the lock.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.metrics.forget();
    }
}

impl Ticket {
    /// A client of its sidecar.
    pub fn client(&self) -> Client {
        self.endpoint.line().client.clone()
    }

    /// Where its sidecar is.
    pub fn uri(&self) -> &str {
        &self.endpoint.uri
    }

    /// How long ago it was asked.
    pub fn age(&self) -> Duration {
        self.asked.elapsed()
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// The sidecar answered well, or as well as it had time to.
    pub fn answered(&mut self, outcome: &str) {
        self.end(outcome);
        self.endpoint.metrics.seconds.observe(self.asked.elapsed().as_secs_f64());
        let closed = {
            let mut line = self.endpoint.line();
            let closed = line.breaker.succeeded();
            self.endpoint.metrics.breaker.set(line.breaker.level());
            closed
        };
        if closed {
            tracing::info!(engine = self.uri(), "the engine answers again");
        }
    }

    /// The sidecar failed by its own fault.
    pub fn failed(&mut self, outcome: &str, why: &str) {
        self.end(outcome);
        let verdict = {
            let mut line = self.endpoint.line();
            let verdict = line.breaker.failed(self.pass, Instant::now());
            if verdict != Verdict::Unchanged {
                // A connection into nowhere is not tried again: the next request makes another.
                line.client = connect(&self.endpoint.connector);
            }
            self.endpoint.metrics.breaker.set(line.breaker.level());
            verdict
        };
        if let Verdict::Opened(pause) = verdict {
            self.endpoint.metrics.opened.inc();
            tracing::warn!(engine = self.uri(), why, pause_ms = pause.as_millis() as u64, "the engine is left alone");
        }
    }

    /// The question ended in a way that says nothing about the sidecar's health.
    pub fn excused(&mut self, outcome: &str) {
        self.end(outcome);
        let mut line = self.endpoint.line();
        line.breaker.abandoned(self.pass, Instant::now());
        self.endpoint.metrics.breaker.set(line.breaker.level());
    }

    fn end(&mut self, outcome: &str) {
        self.ended = true;
        self.endpoint.metrics.ended(outcome);
        self.endpoint.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.ended {
            self.excused("cancelled");
        }
    }
}
