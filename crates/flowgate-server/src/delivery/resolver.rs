//! Names become addresses; with the deny list, never those of this machine or of a private network.
//!
//! The check is made on the addresses that are connected to, so a name that changes its mind in between gains nothing.

use std::{
    future::Future,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    task::{Context, Poll},
};

use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;

/// Looks up names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resolver {
    pub(super) denies_private: bool,
}

type Addresses = std::vec::IntoIter<SocketAddr>;

impl Service<Name> for Resolver {
    type Response = Addresses;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Addresses>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let denies_private = self.denies_private;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let allowed: Vec<SocketAddr> =
                found.iter().copied().filter(|at| !denies_private || !is_private(at.ip())).collect();
            if allowed.is_empty() && !found.is_empty() {
                return Err(denied());
            }
            Ok(allowed.into_iter())
        })
    }
}

/// Why there is no connection.
fn denied() -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        "its address is private, and this server does not deliver to private addresses",
    )
}

/// Whether a URL's host is such an address itself: those are never looked up. Nor is this machine's own name by a proxy.
pub(super) fn check(host: &str) -> io::Result<()> {
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    if name == "localhost" || name.ends_with(".localhost") {
        return Err(denied());
    }
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match address {
        Ok(address) if is_private(address) => Err(denied()),
        // A number is an address as well, in one of many forms, and who looks it up may be a proxy.
        Err(_) if ends_in_number(&name) => Err(denied()),
        _ => Ok(()),
    }
}

/// Whether a name, without a dot behind it, is an address or none at all (the URL standard).
pub(crate) fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let hex =
        last.get(..2).filter(|start| start.eq_ignore_ascii_case("0x")).map(|start| &last[start.len()..]);
    hex.is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
        || !last.is_empty() && last.bytes().all(|digit| digit.is_ascii_digit())
}

/// Of this machine, of a private or shared network, of a link, or of nobody.
fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => is_private_v4(v4),
        IpAddr::V6(v6) => is_private_v6(v6),
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_unspecified()
        || address.is_broadcast()
        || address.is_multicast()
        || first == 0
        || first >= 240
        || first == 100 && (64..128).contains(&second)
        || first == 192 && second == 0 && third == 0
        || first == 198 && (second == 18 || second == 19)
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    // An IPv4 address inside another form (NAT64, 6to4, the oldest one) is judged as what it leads to.
    let inner = match (first, second) {
        (0x0064, 0xff9b) | (0, 0) => Some(Ipv4Addr::from(u128::from(address) as u32)),
        (0x2002, _) => Some(Ipv4Addr::from((u128::from(address) >> 80) as u32)),
        _ => None,
    };
    address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || first & 0xfe00 == 0xfc00
        || first & 0xffc0 == 0xfe80
        || first & 0xffc0 == 0xfec0
        || inner.is_some_and(is_private_v4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_known_in_every_form() {
        // Seen to fail: with nothing but addresses of four parts or in brackets looked at, behind a proxy a number led here.
        for host in [
            "127.0.0.1",
            "127.9.9.9",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "198.18.0.1",
            "192.0.0.170",
            "[fec0::1]",
            "255.255.255.255",
            "224.0.0.1",
            "[::1]",
            "[::]",
            "[fd00::1]",
            "[fe80::1]",
            "[::ffff:10.0.0.1]",
            "[64:ff9b::10.0.0.1]",
            "[2002:a00:1::]",
            "localhost",
            "LOCALHOST.",
            "a.localhost",
            "127.0.0.1.",
            "2130706433",
            "0x7f000001",
            "127.1",
            "0177.0.0.1",
            "127.0.0.0x1.",
            "[::7f00:1]",
        ] {
            assert!(check(host).is_err(), "{host}");
        }
        for host in [
            "example.com",
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "[2606:4700::1111]",
            "[64:ff9b::1.1.1.1]",
            "1.example",
            "7.0x.example",
        ] {
            assert!(check(host).is_ok(), "{host}");
        }
    }
}
