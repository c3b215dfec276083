//! The address of a database, and TLS towards it.
//!
//! Owns what `sslmode` means: what it means to PostgreSQL's own clients. `prefer`, the default, encrypts where the server
//! can; `require` insists on it; neither asks who the server is. `verify-full` does: by `sslrootcert`, or else by the roots
//! that browsers trust.

use std::{
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use flowgate_core::OptionError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::{
    Client, Config, Connection, Socket,
    config::{SslMode, TargetSessionAttrs},
    tls::{ChannelBinding, MakeTlsConnect, TlsConnect},
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        self, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
        pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
    },
};

use crate::store::StoreError;

const MODES: &str = "disable, prefer, require or verify-full";

/// Those that keep any text.
const ENCODINGS: [&str; 2] = ["UTF8", "SQL_ASCII"];

/// Where a database is, and how it is reached.
#[derive(Clone)]
pub struct Address {
    config: Config,
    tls: Tls,
}

/// Without the user and the password.
impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Address")
            .field("hosts", &self.config.get_hosts())
            .field("ports", &self.config.get_ports())
            .field("database", &self.config.get_dbname())
            .finish_non_exhaustive()
    }
}

impl Address {
    /// Reads a URL: `sslmode` and `sslrootcert` here, everything else as PostgreSQL's clients do. Timeouts
    /// and keep-alives that it does not set are set so that a server which is gone is noticed.
    pub fn parse(url: &str) -> Result<Self, StoreError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut roots, mut rest) = (None, None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value),
                Some(("sslrootcert", value)) => roots = Some(decoded(value)),
                _ => rest.push(pair),
            }
        }
        let url = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        let mut config: Config =
            url.parse().map_err(|error: tokio_postgres::Error| StoreError::Database {
                doing: "reading its address",
                why: std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string),
            })?;
        let (ssl_mode, is_verified) = match mode.unwrap_or("prefer") {
            "disable" => (SslMode::Disable, false),
            "prefer" => (SslMode::Prefer, false),
            "require" => (SslMode::Require, false),
            "verify-full" => (SslMode::Require, true),
            other => return Err(OptionError::new("sslmode", format_args!("{other:?}"), MODES).into()),
        };
        config.ssl_mode(ssl_mode);
        notice_the_end(&mut config, &url);
        // A standby answers, and takes nothing: kept, it would be asked in vain for as long as it lives, whoever is the
        // primary by then.
        if !url.contains("target_session_attrs") {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let tls = if is_verified { Tls::verified(roots.as_deref())? } else { Tls::unverified()? };
        if let Some(roots) = roots.filter(|_| !is_verified) {
            let accepted = "a file of certificates together with sslmode=verify-full";
            return Err(OptionError::new("sslrootcert", format_args!("{roots:?}"), accepted).into());
        }
        Ok(Address { config, tls })
    }

    /// Connects.
    pub async fn connect(&self) -> Result<(Client, Connection<Socket, Stream>), tokio_postgres::Error> {
        self.config.connect(self.tls.clone()).await
    }

    /// Why the database will not do, if it cannot store all text: what it cannot store it would refuse, with all that is
    /// written together with it.
    pub fn misfit(connection: &Connection<Socket, Stream>) -> Option<String> {
        let encoding = connection.parameter("server_encoding").filter(|known| !ENCODINGS.contains(known))?;
        Some(format!(
            "its encoding is {encoding}, which cannot store all text; create a database with ENCODING 'UTF8'"
        ))
    }
}

/// A peer that vanished says nothing, and Linux waits for two hours: what the address does not say is set so that it is noticed
/// in half a minute.
fn notice_the_end(config: &mut Config, url: &str) {
    if config.get_application_name().is_none() {
        config.application_name("flowgate");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(Duration::from_secs(10));
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(Duration::from_secs(15));
    }
    // What has a default of its own is known to be said only by its name.
    if !url.contains("keepalives") {
        config.keepalives_idle(Duration::from_secs(10));
        config.keepalives_interval(Duration::from_secs(5));
        config.keepalives_retries(3);
    }
}

/// What `%2F` and the like stand for.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.filter(|_| byte == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Makes TLS of a connection.
#[derive(Clone)]
struct Tls(TlsConnector);

impl Tls {
    fn verified(roots: Option<&str>) -> Result<Self, StoreError> {
        let mut store = RootCertStore::empty();
        match roots {
            None => store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Some(path) => {
                let unfit = |why: &dyn fmt::Display| {
                    let accepted = format!("a file of certificates in PEM ({why})");
                    OptionError::new("sslrootcert", format_args!("{path:?}"), accepted)
                };
                let found = CertificateDer::pem_file_iter(path).map_err(|error| unfit(&error))?;
                for certificate in found {
                    let certificate = certificate.map_err(|error| unfit(&error))?;
                    store.add(certificate).map_err(|error| unfit(&error))?;
                }
                if store.is_empty() {
                    return Err(unfit(&"there is none in it").into());
                }
            }
        }
        let config = builder()?.with_root_certificates(store).with_no_client_auth();
        Ok(Tls(TlsConnector::from(Arc::new(config))))
    }

    fn unverified() -> Result<Self, StoreError> {
        let anyone = Arc::new(Anyone(Arc::new(ring::default_provider())));
        let config = builder()?.dangerous().with_custom_certificate_verifier(anyone).with_no_client_auth();
        Ok(Tls(TlsConnector::from(Arc::new(config))))
    }
}

fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, StoreError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    builder
        .with_safe_default_protocol_versions()
        .map_err(|error| StoreError::Database { doing: "setting up TLS", why: error.to_string() })
}

/// Takes every certificate: for the modes of PostgreSQL that encrypt, and do not ask who the server is.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// For one connection, to a server of this name.
struct Towards(TlsConnector, String);

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Stream;
    type TlsConnect = Towards;
    type Error = io::Error;

    fn make_tls_connect(&mut self, name: &str) -> Result<Towards, io::Error> {
        Ok(Towards(self.0.clone(), name.to_owned()))
    }
}

impl TlsConnect<Socket> for Towards {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, io::Error>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let Towards(connector, name) = self;
            let name = ServerName::try_from(name)
                .map_err(|_| io::Error::other("TLS needs the name or the address of the server"))?;
            Ok(Stream(Box::new(connector.connect(name, socket).await?)))
        })
    }
}

/// A connection over TLS.
pub struct Stream(Box<TlsStream<Socket>>);

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

impl tokio_postgres::tls::TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(context)
    }
}
