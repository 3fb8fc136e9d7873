//! TLS: certificate, key and, for mutual TLS, the authority of the clients' certificates.

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result, bail};
use tokio_rustls::rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};

use crate::config::Config;

/// Reads the files that the options name; none when TLS is not asked for.
///
/// # Errors
///
/// Names the option and the file: cannot be read, holds no certificate or key, or key and certificate differ.
pub fn read(config: &Config) -> Result<Option<Arc<ServerConfig>>> {
    let (cert, key) = match (&config.tls_cert, &config.tls_key) {
        (Some(cert), Some(key)) => (cert, key),
        (None, None) if config.tls_client_ca.is_none() => return Ok(None),
        _ => bail!("--tls-cert and --tls-key: give both, also with --tls-client-ca"),
    };
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match &config.tls_client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates("tls-client-ca", path)? {
                roots.add(certificate).with_context(|| format!("--tls-client-ca: {}", path.display()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().context("--tls-client-ca")?)
        }
    };
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| anyhow::anyhow!("--tls-key: {}: no private key can be read: {error}", key.display()))?;
    let mut tls = builder
        .with_single_cert(certificates("tls-cert", cert)?, private)
        .with_context(|| format!("--tls-cert: {} and --tls-key: {}", cert.display(), key.display()))?;
    tls.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Some(Arc::new(tls)))
}

fn certificates(option: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let shown = || format!("--{option}: {}", path.display());
    let found = CertificateDer::pem_file_iter(path).map_err(anyhow::Error::from).with_context(shown)?;
    let found = found.collect::<Result<Vec<_>, _>>().map_err(anyhow::Error::from).with_context(shown)?;
    if found.is_empty() {
        bail!("{} holds no certificate", shown());
    }
    Ok(found)
}
