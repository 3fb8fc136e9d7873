//! Connections, accepted until the sidecar drains.

use std::{io, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
};
use tokio_stream::wrappers::ReceiverStream;

/// Pause after the system could not accept, as when it has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections until `stopped` is true, and then closes the listener: tonic would hold on to it while it drains,
/// and who connects would wait for nothing.
pub fn accept(listener: TcpListener, mut stopped: watch::Receiver<bool>) -> ReceiverStream<io::Result<TcpStream>> {
    let (ready, connections) = mpsc::channel(64);
    tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stopped.wait_for(|stopped| *stopped) => return, // Or the server is gone.
            };
            match accepted {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true); // Slower without, and as good.
                    if ready.send(Ok(stream)).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    });
    ReceiverStream::new(connections)
}
