//! Changes what is served without a restart: one task that loads models beside those being served and swaps them.
//!
//! It is woken by SIGHUP, by the RPC `ReloadModels`, and by files that changed. Loads never overlap.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot};

use crate::{
    error::ServiceError,
    metrics::Metrics,
    model_files::Stamp,
    models::{Loader, Models},
    watch::Watch,
};

/// What a reload changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Names of the models that were loaded.
    pub loaded: Vec<String>,
    /// Names of the models that are no longer served.
    pub removed: Vec<String>,
}

/// Asks for reloads.
#[derive(Clone, Debug)]
pub struct Reloader {
    commands: mpsc::Sender<oneshot::Sender<Result<Changes, ServiceError>>>,
}

impl Reloader {
    /// Reloads the models and waits for the outcome.
    ///
    /// # Errors
    ///
    /// [`ServiceError::ReloadFailed`], and then nothing has changed; [`ServiceError::Reloading`] when two others are under way;
    /// [`ServiceError::Starting`] before the first load.
    pub async fn reload(&self) -> Result<Changes, ServiceError> {
        let (reply, answer) = oneshot::channel();
        // One reload may wait for another; more would only find the files as those two did.
        self.commands.try_send(reply).map_err(|_| ServiceError::Reloading)?;
        answer.await.map_err(|_| ServiceError::Starting)?
    }
}

/// The task that reloads.
pub struct Reloading {
    commands: mpsc::Receiver<oneshot::Sender<Result<Changes, ServiceError>>>,
    loader: Loader,
    models: Arc<ArcSwap<Models>>,
    metrics: Metrics,
}

/// A reloader and its task.
pub fn channel(loader: Loader, models: Arc<ArcSwap<Models>>, metrics: Metrics) -> (Reloader, Reloading) {
    let (sender, commands) = mpsc::channel(2);
    (Reloader { commands: sender }, Reloading { commands, loader, models, metrics })
}

impl Reloading {
    /// Loads the models and tells on `started`. Then obeys commands, and looks at the files every `interval` by their
    /// `stamps`, until every [`Reloader`] is gone.
    pub async fn run(
        mut self,
        stamps: impl Fn() -> Vec<Stamp>,
        interval: Duration,
        started: oneshot::Sender<anyhow::Result<()>>,
    ) {
        let mut watch = Watch::new(stamps());
        let first = self.loader.load(&Models::default()).await;
        let _ = started.send(first.map(|loaded| self.swap(loaded))); // The server may have been told to end.
        let mut ticks = tokio::time::interval(interval.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                command = self.commands.recv() => {
                    let Some(reply) = command else { return };
                    watch = Watch::new(stamps());
                    let _ = reply.send(self.reload().await); // Whoever asked may have left.
                }
                _ = ticks.tick(), if !interval.is_zero() => {
                    if watch.has_settled(stamps()) {
                        match self.reload().await {
                            Ok(_) => watch.succeeded(),
                            Err(_) => watch.failed(), // Told in the log and the metrics.
                        }
                    }
                }
            }
        }
    }

    async fn reload(&self) -> Result<Changes, ServiceError> {
        let served = self.models.load_full();
        let result = self.loader.load(&served).await;
        let (label, outcome) = match result {
            Ok(loaded) => {
                let (new, gone) = (loaded.names_loaded_since(&served), served.names_beyond(&loaded));
                let changes = Changes { loaded: new, removed: gone };
                let label = if served.is_same(&loaded) { "unchanged" } else { "changed" };
                self.swap(loaded);
                tracing::info!(loaded = ?changes.loaded, removed = ?changes.removed, "reloaded");
                (label, Ok(changes))
            }
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "reload failed, what was served is served on");
                ("failed", Err(ServiceError::ReloadFailed(format!("{error:#}"))))
            }
        };
        self.metrics.reloads.with_label_values(&[label]).inc();
        outcome
    }

    fn swap(&self, loaded: Models) {
        self.metrics.models.reset();
        for model in loaded.all() {
            let labels =
                [&*model.metadata.name, &model.metadata.version, &model.metadata.encoding, model.provider.name()];
            self.metrics.models.with_label_values(&labels).set(1);
        }
        self.models.store(Arc::new(loaded));
    }
}
