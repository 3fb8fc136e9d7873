//! Requests to terminate.

use anyhow::Result;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a shell reports of a process ended by SIGTERM or SIGINT.
const ENDED_BY_SIGNAL: i32 = 128;

/// Done at the first SIGTERM or SIGINT. A second one, of either kind, ends the process at once.
///
/// # Errors
///
/// When the system does not take the handlers.
pub fn requested() -> Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        either(&mut terminate, &mut interrupt).await;
        tokio::spawn(async move {
            let number = either(&mut terminate, &mut interrupt).await;
            tracing::warn!("told a second time to end, ending at once");
            std::process::exit(ENDED_BY_SIGNAL + number);
        });
    })
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) -> i32 {
    tokio::select! {
        _ = terminate.recv() => SignalKind::terminate().as_raw_value(),
        _ = interrupt.recv() => SignalKind::interrupt().as_raw_value(),
    }
}
