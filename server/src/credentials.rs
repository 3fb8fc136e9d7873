//! API keys and certificates, read again when their files change. What cannot be read leaves what was there in place.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Result;
use arc_swap::ArcSwapOption;
use tokio_rustls::rustls::ServerConfig;

use crate::{config::Config, keys::Keys, metrics::Metrics, model_files::stamp, tls, watch::Watch};

/// What clients are let in by.
pub struct Credentials {
    config: Arc<Config>,
    metrics: Metrics,
    keys: ArcSwapOption<Keys>,
    tls: ArcSwapOption<ServerConfig>,
}

impl Credentials {
    /// Reads the files that the options name.
    ///
    /// # Errors
    ///
    /// Names the option and the file.
    pub fn read(config: Arc<Config>, metrics: Metrics) -> Result<Self> {
        let (keys, tls) = (ArcSwapOption::new(read_keys(&config)?), ArcSwapOption::new(tls::read(&config)?));
        Ok(Credentials { config, metrics, keys, tls })
    }

    /// The keys, when keys are needed.
    pub fn keys(&self) -> Option<Arc<Keys>> {
        self.keys.load_full()
    }

    /// How to greet clients, when connections are encrypted.
    pub fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.load_full()
    }

    /// Reads the files again, keys and certificates each by themselves. Connections and requests under way are left
    /// alone; limits start afresh.
    /// Whether all could be read.
    pub fn reload(&self) -> bool {
        let keys = self.note("keys", read_keys(&self.config).map(|keys| self.keys.store(keys)));
        let certificates = self.note("certificates", tls::read(&self.config).map(|tls| self.tls.store(tls)));
        keys && certificates
    }

    fn note(&self, what: &str, outcome: Result<()>) -> bool {
        let well = outcome.is_ok();
        let label = match outcome {
            Ok(()) => {
                tracing::info!(what, "reloaded");
                "changed"
            }
            Err(error) => {
                tracing::error!(what, error = format!("{error:#}"), "cannot be read, the old ones hold on");
                "failed"
            }
        };
        self.metrics.credential_reloads.with_label_values(&[what, label]).inc();
        well
    }

    /// Looks at the files every `interval` and reads them when they have changed; never with 0.
    pub async fn keep_current(&self, interval: Duration) {
        let paths = self.config.credential_files();
        if interval.is_zero() || paths.is_empty() {
            return std::future::pending().await;
        }
        let stamps = || paths.iter().filter_map(|path: &PathBuf| stamp(path)).collect();
        let mut watch = Watch::new(stamps());
        let mut ticks = tokio::time::interval(interval);
        loop {
            ticks.tick().await;
            if watch.has_settled(stamps()) {
                if self.reload() { watch.succeeded() } else { watch.failed() }
            }
        }
    }
}

fn read_keys(config: &Config) -> Result<Option<Arc<Keys>>> {
    config.api_keys.as_deref().map(|path| Keys::read(path).map(Arc::new)).transpose()
}
