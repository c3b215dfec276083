//! `[server]`: where the program's own server listens, and whose limits govern.
//!
//! Owns the checked section and how it is read.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use super::{
    Proxy,
    gateway::{MOST_CONNECTIONS, file},
    read::{Entry, Fields, Read},
};

/// What an address may be, in words.
const ADDRESS: &str = "an address and a port, like \"127.0.0.1:8080\" or \"[::1]:0\"";

/// What a proxy may be, in words.
const PROXY: &str = "a URL like \"http://10.0.0.1:3128\"";

const MOST_REQUESTS: u32 = 100_000;

/// The section `[server]`; it is there with its defaults even if the file has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// Where to listen; port 0 takes any free one.
    pub(crate) listen: SocketAddr,
    /// How many requests of the API are under way at once.
    pub(crate) max_requests: u32,
    /// How many connections are open at once.
    pub(crate) max_connections: u32,
    /// How long one may take until the head of its next request is there.
    pub(crate) idle_timeout: Duration,
    /// Whose limits govern where a key did not choose; `None`: as the store has it.
    pub(crate) flow_control_mode: Option<FlowControlMode>,
    /// The proxy that deliveries go by; `None`: they go straight.
    pub(crate) egress_proxy: Option<Proxy>,
    /// Certificates that deliveries believe beside the public ones, as PEM.
    pub(crate) egress_ca: Option<PathBuf>,
}

/// Whose limits govern what waits for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowControlMode {
    /// Each message waits under its own.
    Own,
    /// The newest ones sent govern all that wait.
    Latest,
}

impl Server {
    pub(super) fn read(fields: &Fields<'_>) -> Read<Self> {
        let modes = [("own", FlowControlMode::Own), ("latest", FlowControlMode::Latest)];
        let listen = fields.read("listen", address);
        let mode = fields.optional("flow_control_mode", |entry| entry.choice(&modes));
        let max_requests = fields.read("max_requests", |entry| entry.small(1..=MOST_REQUESTS));
        let max_connections = fields.read("max_connections", |entry| entry.small(1..=MOST_CONNECTIONS));
        let idle_timeout = fields.time("idle_timeout");
        let proxy = fields.optional("egress_proxy", |entry| entry.parsed(PROXY));
        let certificates = fields.optional("egress_ca", file);
        Ok(Server {
            listen: listen?,
            max_requests: max_requests?,
            max_connections: max_connections?,
            idle_timeout: idle_timeout?,
            flow_control_mode: mode?,
            egress_proxy: proxy?,
            egress_ca: certificates?,
        })
    }
}

/// An address to listen on.
pub(super) fn address(entry: &Entry<'_>) -> Read<SocketAddr> {
    entry.text(ADDRESS)?.parse().map_err(|_| entry.wrong(ADDRESS))
}
