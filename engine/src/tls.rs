//! TLS: certificate, key and, for mutual TLS, the authority of the clients' certificates.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, bail};
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

use crate::config::Config;

/// Longest time until a connection has agreed on TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Reads the files that the options name; none when TLS is not asked for.
///
/// # Errors
///
/// Names the options and the files: cannot be read, hold no certificate or key, or key and certificate differ.
pub fn read(config: &Config) -> Result<Option<ServerTlsConfig>> {
    let (cert, key) = match (&config.tls_cert, &config.tls_key) {
        (Some(cert), Some(key)) => (cert, key),
        (None, None) if config.tls_client_ca.is_none() => return Ok(None),
        _ => bail!("--tls-cert and --tls-key: give both, also with --tls-client-ca"),
    };
    let identity = Identity::from_pem(text("tls-cert", cert)?, text("tls-key", key)?);
    let mut tls = ServerTlsConfig::new().timeout(HANDSHAKE).identity(identity);
    let mut options = format!("--tls-cert: {}, --tls-key: {}", cert.display(), key.display());
    if let Some(path) = &config.tls_client_ca {
        tls = tls.client_ca_root(Certificate::from_pem(text("tls-client-ca", path)?));
        options.push_str(&format!(", --tls-client-ca: {}", path.display()));
    }
    // What the files hold shows when a server is made of them.
    Server::builder().tls_config(tls.clone()).with_context(|| options)?;
    Ok(Some(tls))
}

fn text(option: &str, path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("--{option}: cannot read {}", path.display()))
}
