//! Requests to terminate, and to reload.

use anyhow::Result;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};

/// What a shell reports of a process ended by SIGTERM or SIGINT.
const ENDED_BY_SIGNAL: i32 = 128;

/// Done at the first SIGTERM or SIGINT. A second one, of either kind, ends the process at once.
///
/// # Errors
///
/// When the system does not take the handlers.
pub fn requested() -> Result<impl Future<Output = ()>> {
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

/// A word for every SIGHUP, from now on.
///
/// # Errors
///
/// When the system does not take the handler.
pub fn hangups() -> Result<mpsc::Receiver<()>> {
    let mut hangup = signal(SignalKind::hangup())?;
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            let _ = sender.try_send(()); // One that waits is as good as two.
        }
    });
    Ok(receiver)
}
