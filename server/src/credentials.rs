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

    /// Reads the files again. Connections and requests under way are left alone; limits start afresh.
    pub fn reload(&self) {
        let outcome = (|| anyhow::Ok((read_keys(&self.config)?, tls::read(&self.config)?)))();
        let label = match outcome {
            Ok((keys, tls)) => {
                self.keys.store(keys);
                self.tls.store(tls);
                tracing::info!("credentials reloaded");
                "changed"
            }
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "credentials cannot be read, the old ones hold on");
                "failed"
            }
        };
        self.metrics.credential_reloads.with_label_values(&[label]).inc();
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
                self.reload();
            }
        }
    }
}

fn read_keys(config: &Config) -> Result<Option<Arc<Keys>>> {
    config.api_keys.as_deref().map(|path| Keys::read(path).map(Arc::new)).transpose()
}
