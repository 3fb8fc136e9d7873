//! Options of the re-ranking.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::rerank::{address::Address, kit};

/// The options.
#[derive(Args, Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Options of the re-ranking")]
pub struct RerankOptions {
    /// Whether engines are asked when a request does not say; `auto` when engines are named, else `off`
    #[arg(long, env = "ZEITNOT_RERANK", value_enum)]
    pub rerank: Option<DefaultMode>,
    /// Engine sidecars, separated by commas: http://HOST:PORT, https://HOST:PORT, or dns:HOST:PORT for all addresses of a
    /// name, which is looked up again and again
    #[arg(long, env = "ZEITNOT_ENGINES", value_delimiter = ',', num_args = 1, action = clap::ArgAction::Set)]
    pub engines: Vec<String>,
    /// Authority (PEM) that signed the sidecars' certificates; with it `dns:` sidecars are called by TLS, too
    #[arg(long, env = "ZEITNOT_ENGINE_TLS_CA")]
    pub engine_tls_ca: Option<PathBuf>,
    /// How long past its search's time a sidecar may be silent until another one is asked, too, in milliseconds
    #[arg(long, env = "ZEITNOT_ENGINE_HEDGE_MS", default_value_t = 50)]
    pub engine_hedge_ms: u64,
    /// How much longer engines search than 100 ms in bullet, 200 ms in blitz or an unknown time control, 500 ms in longer
    /// games, as a factor
    #[arg(long, env = "ZEITNOT_ENGINE_BUDGET", default_value_t = 1.0)]
    pub engine_budget: f64,
    /// Least rating of a mover for whom engines are asked by themselves
    #[arg(long, env = "ZEITNOT_RERANK_RATING", default_value_t = 2500)]
    pub rerank_rating: u16,
    /// File of the re-ranker (ONNX) in place of the embedded one; `none` for none: evidence then changes no probability
    #[arg(long, env = "ZEITNOT_RERANKER")]
    pub reranker: Option<PathBuf>,
    /// Folder of players' styles, NAME.json each
    #[arg(long, env = "ZEITNOT_STYLES")]
    pub styles: Option<PathBuf>,
}

fn is_none(path: &Path) -> bool {
    path.as_os_str() == "none"
}

/// Whether engines are asked when a request does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DefaultMode {
    /// No.
    Off,
    /// From a rating up, where a search is worth its time.
    Auto,
}

impl RerankOptions {
    /// What is wrong with the values, naming the option.
    ///
    /// # Errors
    ///
    /// A sentence for people.
    pub fn check(&self) -> Result<()> {
        if !(0.01..=100.0).contains(&self.engine_budget) {
            bail!("--engine-budget: {} is not between 0.01 and 100", self.engine_budget);
        }
        if self.engine_hedge_ms > 60_000 {
            bail!("--engine-hedge-ms: {} is more than 60000", self.engine_hedge_ms);
        }
        let addresses = self.addresses()?;
        if self.engine_tls_ca.is_none() && addresses.iter().any(Address::is_encrypted) {
            bail!("--engine-tls-ca: give the authority of the https:// engines");
        }
        Ok(())
    }

    /// What is wrong with the files the options name. The re-ranker is looked for, not loaded.
    ///
    /// # Errors
    ///
    /// A sentence for people, naming the option and the file.
    pub fn check_files(&self) -> Result<()> {
        if let Some(path) = self.reranker_file() {
            std::fs::metadata(path).with_context(|| format!("--reranker: cannot read {}", path.display()))?;
        }
        self.tls_authority()?;
        kit::styles(self).map(drop)
    }

    /// The re-ranker's file, if one is named.
    pub fn reranker_file(&self) -> Option<&PathBuf> {
        self.reranker.as_ref().filter(|path| !is_none(path))
    }

    /// Whether there is to be no re-ranker at all.
    pub fn without_reranker(&self) -> bool {
        self.reranker.as_ref().is_some_and(|path| is_none(path))
    }

    /// Where the sidecars are.
    ///
    /// # Errors
    ///
    /// Names the option and the address.
    pub fn addresses(&self) -> Result<Vec<Address>> {
        let read = |text: &String| Address::from_str(text).with_context(|| format!("--engines: `{text}`"));
        self.engines.iter().map(read).collect()
    }

    /// The authority of the sidecars' certificates, as PEM.
    ///
    /// # Errors
    ///
    /// Names the option and the file.
    pub fn tls_authority(&self) -> Result<Option<Vec<u8>>> {
        let read = |path: &PathBuf| {
            std::fs::read(path).with_context(|| format!("--engine-tls-ca: cannot read {}", path.display()))
        };
        self.engine_tls_ca.as_ref().map(read).transpose()
    }

    /// Whether engines are asked when a request does not say.
    pub fn default_mode(&self) -> DefaultMode {
        let by_engines = if self.engines.is_empty() { DefaultMode::Off } else { DefaultMode::Auto };
        self.rerank.unwrap_or(by_engines)
    }

    /// How long past its search's time a sidecar may be silent until another one is asked.
    pub fn hedge(&self) -> Duration {
        Duration::from_millis(self.engine_hedge_ms)
    }
}
