//! Connections: accepted, counted, bounded, and greeted with TLS where it is asked for, each without holding up others.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use prometheus::IntCounter;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch},
    time::Sleep,
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::either::Either;
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::{
    config::Config,
    credentials::Credentials,
    metrics::{Held, Metrics},
};

/// Pause after the system could not accept, as when it has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A connection ready for HTTP/2. It keeps its place among the bounded number of connections.
#[derive(Debug)]
pub struct Connection {
    stream: Either<TcpStream, Box<TlsStream<TcpStream>>>,
    info: TcpConnectInfo,
    /// What is still to come of the client's greeting, and until when.
    greeting: Option<Greeting>,
    _place: (OwnedSemaphorePermit, Held),
}

/// HTTP/2 starts with 24 bytes of the client's. The server behind this waits for them for ever.
#[derive(Debug)]
struct Greeting {
    left: usize,
    limit: Pin<Box<Sleep>>,
    late: IntCounter,
}

/// Length of HTTP/2's connection preface, in bytes.
const PREFACE: usize = 24;

/// What every connection is greeted with.
struct Greeter {
    credentials: Arc<Credentials>,
    metrics: Metrics,
    limit: Duration,
    ready: mpsc::Sender<io::Result<Connection>>,
}

/// Accepts connections until `stopped` is true, and then closes the listener: tonic would hold on to it while it drains,
/// and who connects would wait for nothing.
pub fn accept(
    listener: TcpListener,
    config: &Config,
    credentials: Arc<Credentials>,
    metrics: Metrics,
    mut stopped: watch::Receiver<bool>,
) -> ReceiverStream<io::Result<Connection>> {
    let (ready, connections) = mpsc::channel(64);
    let places = Arc::new(Semaphore::new(config.max_connections));
    let greeter = Arc::new(Greeter { credentials, metrics, limit: config.handshake_limit(), ready });
    tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stopped.wait_for(|stopped| *stopped) => return, // Or the server is gone.
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            match Arc::clone(&places).try_acquire_owned() {
                Ok(place) => drop(tokio::spawn(Arc::clone(&greeter).greet(stream, place))),
                Err(_) => greeter.refuse("limit"),
            }
        }
    });
    ReceiverStream::new(connections)
}

impl Greeter {
    async fn greet(self: Arc<Self>, stream: TcpStream, place: OwnedSemaphorePermit) {
        let place = (place, Held::new(&self.metrics.connections));
        let info = stream.connect_info();
        let limit = tokio::time::Instant::now() + self.limit;
        let stream = match tokio::time::timeout_at(limit, shake_hands(stream, self.credentials.tls())).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a connection failed before it could be used");
                return self.refuse("handshake");
            }
            Err(_) => return self.refuse("timeout"),
        };
        let late = self.metrics.refused_connections.with_label_values(&["timeout"]);
        let limit = Box::pin(tokio::time::sleep_until(limit));
        let greeting = Some(Greeting { left: PREFACE, limit, late });
        let _ = self.ready.send(Ok(Connection { stream, info, greeting, _place: place })).await; // The server may have ended.
    }

    fn refuse(&self, reason: &str) {
        self.metrics.refused_connections.with_label_values(&[reason]).inc();
    }
}

/// Greets the client with TLS where that is asked for.
async fn shake_hands(
    stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
) -> io::Result<Either<TcpStream, Box<TlsStream<TcpStream>>>> {
    stream.set_nodelay(true)?;
    match tls {
        None => Ok(Either::Left(stream)),
        Some(tls) => Ok(Either::Right(Box::new(TlsAcceptor::from(tls).accept(stream).await?))),
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.info.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Some(greeting) = &mut self.greeting {
            let come = buffer.filled().len() - before;
            greeting.left = greeting.left.saturating_sub(come);
            if greeting.left == 0 {
                self.greeting = None;
            } else if greeting.limit.as_mut().poll(context).is_ready() {
                greeting.late.inc();
                self.greeting = None;
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
