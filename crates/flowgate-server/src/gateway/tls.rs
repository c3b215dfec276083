//! TLS towards clients.
//!
//! Owns the certificate and the choice of protocol (ALPN).

use std::{fmt, io, path::Path, sync::Arc};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
    },
    server::TlsStream,
};

use crate::config;

const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// What is spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// The certificate, ready for handshakes.
#[derive(Clone)]
pub(super) struct Tls(TlsAcceptor);

/// What is wrong with a certificate or its key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum TlsError {
    #[error("cannot read {0}: {1}")]
    File(String, pem::Error),

    #[error("{0} has no certificate in it")]
    Empty(String),

    #[error("certificate {cert} and key {key}: {error}")]
    Pair { cert: String, key: String, error: rustls::Error },
}

impl Tls {
    /// Reads certificate and key.
    pub(super) fn load(config: &config::Tls) -> Result<Self, TlsError> {
        let name = |path: &Path| path.display().to_string();
        let wrong = |path: &Path| {
            let name = name(path);
            move |error| TlsError::File(name, error)
        };
        let chain = CertificateDer::pem_file_iter(&config.cert).map_err(wrong(&config.cert))?;
        let chain = chain.collect::<Result<Vec<_>, _>>().map_err(wrong(&config.cert))?;
        if chain.is_empty() {
            return Err(TlsError::Empty(name(&config.cert)));
        }
        let key = PrivateKeyDer::from_pem_file(&config.key).map_err(wrong(&config.key))?;
        let pair = |error| TlsError::Pair { cert: name(&config.cert), key: name(&config.key), error };
        let mut server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(pair)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(pair)?;
        server.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
        Ok(Tls(TlsAcceptor::from(Arc::new(server))))
    }

    /// The handshake.
    ///
    /// Cancel safety: dropped, the connection is closed.
    pub(super) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<(TlsStream<S>, Protocol)> {
        let stream = self.0.accept(stream).await?;
        let protocol = match stream.get_ref().1.alpn_protocol() {
            Some(HTTP2) => Protocol::Http2,
            _ => Protocol::Http1,
        };
        Ok((stream, protocol))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}
