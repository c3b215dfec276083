//! Whose certificates are believed by deliveries: the public roots, and those of a file.

use std::{path::Path, sync::Arc};

use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem, pem::PemObject},
};

/// What is wrong with a file of certificates.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum TrustError {
    #[error("cannot read the certificates of {0}: {1}")]
    File(String, pem::Error),

    #[error("{0} has no certificate in it that can be trusted")]
    Empty(String),
}

/// TLS towards endpoints, with these roots beside the public ones.
pub(super) fn client(more: Option<&Path>) -> Result<ClientConfig, TrustError> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(path) = more {
        let name = || path.display().to_string();
        let wrong = |error| TrustError::File(name(), error);
        let found = CertificateDer::pem_file_iter(path).map_err(wrong)?;
        let found = found.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        if roots.add_parsable_certificates(found).0 == 0 {
            return Err(TrustError::Empty(name()));
        }
    }
    let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let client = client.with_safe_default_protocol_versions().expect("ring speaks TLS 1.2 and 1.3");
    Ok(client.with_root_certificates(roots).with_no_client_auth())
}
