//! Requests to terminate.

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};

/// Done at the first SIGTERM or SIGINT. A second SIGINT ends the process at once.
///
/// # Errors
///
/// When the system does not take the handlers.
pub fn requested() -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tokio::spawn(async move {
            interrupt.recv().await;
            tracing::warn!("interrupted a second time");
            std::process::exit(130);
        });
    })
}
