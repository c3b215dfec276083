//! `[server]`: where the program's own server listens.
//!
//! Owns the checked section and how it is read.

use std::net::SocketAddr;

use super::read::{Entry, Fields, Read};

/// What an address may be, in words.
const ADDRESS: &str = "an address and a port, like \"127.0.0.1:8080\" or \"[::1]:0\"";

/// The section `[server]`; it is there with its defaults even if the file has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// Where to listen; port 0 takes any free one.
    pub(crate) listen: SocketAddr,
}

impl Server {
    pub(super) fn read(fields: &Fields<'_>) -> Read<Self> {
        Ok(Server { listen: fields.read("listen", address)? })
    }
}

/// An address to listen on.
pub(super) fn address(entry: &Entry<'_>) -> Read<SocketAddr> {
    entry.text(ADDRESS)?.parse().map_err(|_| entry.wrong(ADDRESS))
}
