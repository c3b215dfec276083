//! Which client a request comes from.
//!
//! Owns the ways to tell one client from another. A header that a client could have written itself is never
//! believed: forwarding headers count only as far as declared proxies wrote them, read from the right.

use std::{fmt, net::IpAddr, net::SocketAddr, str, sync::Arc};

#[cfg(feature = "axum")]
use axum::extract::ConnectInfo;
use http::{HeaderName, HeaderValue, header, request::Parts};

use super::{
    cidr::{Cidr, masked_v6},
    scope::key_of,
};
use flowgate_core::Key;

/// The address at the other end of the connection. Put it into a request's extensions where connections are accepted,
/// unless axum's `ConnectInfo<SocketAddr>` is there (feature `axum`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// How one client is told from another.
///
/// IPv6 clients are told apart by their first 64 bits: one customer gets that many, and chooses the rest.
#[derive(Clone)]
pub struct Identity(Source);

#[derive(Clone)]
enum Source {
    Peer,
    Hops { hops: usize, header: HeaderName },
    Trusted { proxies: Arc<[Cidr]>, header: HeaderName },
    By(Arc<ClientFn>),
}

type ClientFn = dyn Fn(&Parts) -> Option<String> + Send + Sync;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The lane of those who cannot be told apart.
const UNKNOWN: &str = "unknown";
/// How many hops of a forwarding header are looked at; what lies further left was not written by anyone declared.
const MOST_HOPS: usize = 64;
const IPV6_CLIENT_BITS: u8 = 64;

impl Identity {
    /// Tells clients apart by the address of their connection. Forwarding headers are not read.
    pub fn peer() -> Self {
        Identity(Source::Peer)
    }

    /// Expects exactly `hops` proxies of yours, each of which appends to `X-Forwarded-For`, and takes the entry that
    /// the first of them wrote, counted from the right. A request with fewer entries did not come through all of
    /// them, and is known by the address of its connection. Nobody else may be able to connect, because such a client
    /// could write as many entries as it likes; if that is not certain, use [`Identity::trusted`]. 0 is the same as
    /// [`Identity::peer`].
    pub fn hops(hops: usize) -> Self {
        Identity(Source::Hops { hops: hops.min(MOST_HOPS), header: X_FORWARDED_FOR })
    }

    /// Trusts proxies at these addresses: `X-Forwarded-For` is read from the right for as long as it was written by
    /// one of them. The first address that is not theirs is the client.
    pub fn trusted(proxies: impl IntoIterator<Item = Cidr>) -> Self {
        let proxies = proxies.into_iter().collect();
        Identity(Source::Trusted { proxies, header: X_FORWARDED_FOR })
    }

    /// Reads `Forwarded` (RFC 7239) instead of `X-Forwarded-For`, for proxies that write it. The other header is not
    /// read.
    pub fn forwarded(self) -> Self {
        let header = header::FORWARDED;
        Identity(match self.0 {
            Source::Hops { hops, .. } => Source::Hops { hops, header },
            Source::Trusted { proxies, .. } => Source::Trusted { proxies, header },
            other => other,
        })
    }

    /// Tells clients apart by what the function returns: a user id, a tenant, an API key. `None` means unknown; all
    /// of those share one lane.
    pub fn by(client: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        Identity(Source::By(Arc::new(client)))
    }

    /// Returns the key of this request's client.
    pub fn key(&self, request: &Parts) -> Key {
        if let Source::By(client) = &self.0 {
            return key_of(client(request).as_deref().unwrap_or(UNKNOWN));
        }
        self.address(request).map_or_else(|| Key::new(UNKNOWN), |address| Key::new(&text_of(address)))
    }

    /// Returns the key for a request head that is not a request yet, by the address of its connection, and the values
    /// of a header in the order of their lines. [`Identity::by`] has no request to look at then, so the client is
    /// unknown.
    pub fn key_of<'h, V>(&'h self, peer: SocketAddr, values: impl FnOnce(&'h HeaderName) -> V) -> String
    where
        V: DoubleEndedIterator<Item = &'h [u8]>,
    {
        match self.0 {
            Source::By(_) => UNKNOWN.to_owned(),
            _ => text_of(self.address_of(peer, values)),
        }
    }

    /// Returns the client's address, if clients are told apart by address.
    pub fn address(&self, request: &Parts) -> Option<IpAddr> {
        let values = |header| request.headers.get_all(header).iter().map(HeaderValue::as_bytes);
        Some(self.address_of(peer_of(request)?, values))
    }

    fn address_of<'h, V>(&'h self, peer: SocketAddr, values: impl FnOnce(&'h HeaderName) -> V) -> IpAddr
    where
        V: DoubleEndedIterator<Item = &'h [u8]>,
    {
        let peer = peer.ip();
        let address = match &self.0 {
            Source::Peer | Source::By(_) => peer,
            Source::Hops { hops: 0, .. } => peer,
            Source::Hops { hops, header } => {
                let written = from_the_right(header, values(header)).nth(hops - 1);
                written.flatten().unwrap_or(peer)
            }
            Source::Trusted { proxies, header } => {
                let is_ours = |address| proxies.iter().any(|block| block.contains(address));
                let mut client = peer;
                let mut written = from_the_right(header, values(header)).take(MOST_HOPS);
                while is_ours(client)
                    && let Some(Some(address)) = written.next()
                {
                    client = address;
                }
                client
            }
        };
        address.to_canonical()
    }
}

/// The peer's address, by whoever accepted the connection.
pub(crate) fn peer_of(request: &Parts) -> Option<SocketAddr> {
    let peer = request.extensions.get::<Peer>().map(|&Peer(address)| address);
    #[cfg(feature = "axum")]
    let peer = peer
        .or_else(|| request.extensions.get::<ConnectInfo<Peer>>().map(|&ConnectInfo(Peer(address))| address))
        .or_else(|| request.extensions.get::<ConnectInfo<SocketAddr>>().map(|&ConnectInfo(address)| address));
    peer
}

/// What the proxies wrote, the nearest first; `None` for an entry that is not an address.
fn from_the_right<'h, V>(header: &HeaderName, lines: V) -> impl Iterator<Item = Option<IpAddr>> + use<'h, V>
where
    V: DoubleEndedIterator<Item = &'h [u8]>,
{
    let is_standard = *header == header::FORWARDED;
    let entries = lines.rev().flat_map(|line| split_from_the_right(line, b','));
    entries.map(move |entry| {
        let entry = if is_standard { node_of(entry)? } else { entry };
        address_in(str::from_utf8(entry).ok()?.trim())
    })
}

/// The parts of a list, the last first. What a proxy put into quotes is no separator: it may have copied it from the client,
/// as into `host="…"`. From the right even a quote that a client left open is none of ours.
pub(super) fn split_from_the_right(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut is_quoted = false;
        let at = (0..text.len()).rev().find(|&at| {
            is_quoted ^= text[at] == b'"' && !is_escaped(text, at);
            text[at] == separator && !is_quoted
        });
        rest = at.map(|at| &text[..at]);
        Some(at.map_or(text, |at| &text[at + 1..]))
    })
}

fn is_escaped(text: &[u8], at: usize) -> bool {
    text[..at].iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

/// The `for` of one element of `Forwarded`, if it has one and no more.
fn node_of(element: &[u8]) -> Option<&[u8]> {
    let mut nodes = split_from_the_right(element, b';').filter_map(|pair| {
        let at = pair.iter().position(|&byte| byte == b'=')?;
        pair[..at].trim_ascii().eq_ignore_ascii_case(b"for").then(|| pair[at + 1..].trim_ascii())
    });
    let node = nodes.next().filter(|_| nodes.next().is_none())?;
    let quoted = node.strip_prefix(b"\"").and_then(|node| node.strip_suffix(b"\""));
    Some(quoted.unwrap_or(node))
}

/// An address with or without a port, an IPv6 one with or without brackets.
fn address_in(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    if let Ok(socket) = text.parse::<SocketAddr>() {
        return Some(socket.ip());
    }
    text.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

fn text_of(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("{}/{IPV6_CLIENT_BITS}", masked_v6(address, IPV6_CLIENT_BITS)),
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Peer => f.write_str("Peer"),
            Source::Hops { hops, header } => write!(f, "Hops({hops}, {header})"),
            Source::Trusted { proxies, header } => write!(f, "Trusted({proxies:?}, {header})"),
            Source::By(_) => f.write_str("By(..)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(peer: &str, name: &str, lines: &[&str]) -> Parts {
        let mut request = http::Request::builder().uri("/");
        for line in lines {
            request = request.header(name, *line);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        parts.extensions.insert(Peer(SocketAddr::new(peer.parse().unwrap(), 9)));
        parts
    }

    fn trusted(blocks: &[&str]) -> Identity {
        Identity::trusted(blocks.iter().map(|block| block.parse().unwrap()))
    }

    fn seen(identity: &Identity, peer: &str, lines: &[&str]) -> String {
        identity.key(&request(peer, "x-forwarded-for", lines)).to_string()
    }

    #[test]
    fn h2_undeclared_forwarding_headers_are_never_believed() {
        // Seen to fail: with `Source::Peer` reading the header, the spoofed address is the key; with the leftmost entry for
        // `trusted`, whoever connects; with `forwarded` making hops of a peer.
        assert_eq!(seen(&Identity::peer(), "9.9.9.9", &["1.1.1.1"]), "9.9.9.9");
        assert_eq!(seen(&Identity::hops(0), "9.9.9.9", &["1.1.1.1"]), "9.9.9.9");
        assert_eq!(seen(&trusted(&["10.0.0.0/8"]), "9.9.9.9", &["1.1.1.1"]), "9.9.9.9");
        let parts = request("9.9.9.9", "forwarded", &["for=1.1.1.1"]);
        assert_eq!(Identity::peer().forwarded().key(&parts).to_string(), "9.9.9.9");
    }

    #[test]
    fn h2_a_peer_is_one_client_however_its_address_is_written_and_told() {
        // Seen to fail: without `to_canonical`, an IPv4 client of a dual-stack socket is a /64 of all IPv4 clients; without
        // either `ConnectInfo`, it is unknown.
        assert_eq!(seen(&Identity::peer(), "::ffff:9.9.9.9", &[]), "9.9.9.9");
        assert_eq!(seen(&Identity::peer(), "2001:db8:1:2:3:4:5:6", &[]), "2001:db8:1:2::/64");
        #[cfg(feature = "axum")]
        {
            let address: SocketAddr = "9.9.9.9:9".parse().unwrap();
            let (mut parts, ()) = http::Request::new(()).into_parts();
            parts.extensions.insert(ConnectInfo(address));
            assert_eq!(Identity::peer().key(&parts).to_string(), "9.9.9.9");
            parts.extensions.clear();
            parts.extensions.insert(ConnectInfo(Peer(address)));
            assert_eq!(Identity::peer().key(&parts).to_string(), "9.9.9.9");
        }
    }

    #[test]
    fn h2_hops_are_counted_from_the_right() {
        // Seen to fail: counted from the left, the client's own `6.6.6.6` is believed; with the lines in the order they came;
        // with entries that are no addresses passed over.
        let lines = ["6.6.6.6, 1.1.1.1", "10.0.0.2"];
        assert_eq!(seen(&Identity::hops(1), "10.0.0.1", &lines), "10.0.0.2");
        assert_eq!(seen(&Identity::hops(2), "10.0.0.1", &lines), "1.1.1.1");
        assert_eq!(
            seen(&Identity::hops(4), "10.0.0.1", &lines),
            "10.0.0.1",
            "did not come through all of them"
        );
        assert_eq!(seen(&Identity::hops(1), "10.0.0.1", &["nonsense"]), "10.0.0.1");
        assert_eq!(seen(&Identity::hops(1), "10.0.0.1", &["6.6.6.6, unknown"]), "10.0.0.1");
        assert_eq!(seen(&Identity::hops(3), "10.0.0.1", &["1.1.1.1", "10.0.0.3", "10.0.0.2"]), "1.1.1.1");
    }

    #[test]
    fn h2_no_more_hops_are_followed_than_anyone_has() {
        // Seen to fail: without `take(MOST_HOPS)` the first of a hundred is the client, and without `min(MOST_HOPS)` a hundred
        // hops are counted.
        let line = (0..100).map(|hop| format!("10.0.0.{hop}")).collect::<Vec<_>>().join(",");
        assert_eq!(seen(&trusted(&["10.0.0.0/8"]), "10.0.0.100", &[&line]), "10.0.0.36");
        assert_eq!(seen(&Identity::hops(100), "10.0.0.100", &[&line]), "10.0.0.36");
    }

    #[test]
    fn h2_trusted_proxies_are_followed_until_the_first_that_is_not() {
        // Seen to fail: with the leftmost entry, `6.6.6.6`, which the client wrote itself; with what is no address passed over;
        // without ports, or without brackets.
        let ours = trusted(&["10.0.0.0/8", "fd00::/8"]);
        assert_eq!(seen(&ours, "10.0.0.1", &["6.6.6.6, 1.1.1.1, 10.0.0.2"]), "1.1.1.1");
        assert_eq!(seen(&ours, "fd00::1", &["1.1.1.1:4711"]), "1.1.1.1");
        assert_eq!(seen(&ours, "10.0.0.1", &["[2001:db8:1:2:3::4]:80"]), "2001:db8:1:2::/64");
        assert_eq!(seen(&ours, "10.0.0.1", &["[2001:db8:1:2:3::4]"]), "2001:db8:1:2::/64");
        assert_eq!(seen(&ours, "10.0.0.1", &["1.1.1.1, garbage, 10.0.0.2"]), "10.0.0.2");
        assert_eq!(seen(&ours, "10.0.0.1", &["\"6.6.6.6, 1.1.1.1"]), "1.1.1.1");
        assert_eq!(seen(&ours, "10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(seen(&ours, "::ffff:10.0.0.1", &["1.1.1.1"]), "1.1.1.1");
    }

    #[test]
    fn h2_the_standard_header_is_read_where_it_is_declared_and_then_alone() {
        // Seen to fail: with both headers read, the undeclared one names the client; with `forwarded` ignored for hops.
        let ours = trusted(&["10.0.0.0/8"]).forwarded();
        let parts = request("10.0.0.1", "forwarded", &["for=6.6.6.6, for=\"[2001:db8::1]:80\";proto=https"]);
        assert_eq!(ours.key(&parts).to_string(), "2001:db8::/64");
        assert_eq!(seen(&ours, "10.0.0.1", &["1.1.1.1"]), "10.0.0.1");
        let hops = Identity::hops(2).forwarded();
        assert_eq!(hops.key(&parts).to_string(), "6.6.6.6");
        assert_eq!(seen(&hops, "10.0.0.1", &["1.1.1.1, 10.0.0.2"]), "10.0.0.1");
    }

    #[test]
    fn h2_an_element_of_the_standard_header_is_read_as_the_standard_has_it() {
        // Seen to fail: with `for` in lower case only, and without any of the trims; each line by itself.
        let ours = trusted(&["10.0.0.0/8"]).forwarded();
        for (line, client) in [
            ("For=1.1.1.1;Proto=http", "1.1.1.1"),
            ("proto=https; for = \"1.1.1.1\" ;by=10.0.0.9", "1.1.1.1"),
            ("for=\"1.1.1.1:4711\"", "1.1.1.1"),
            ("for=\"[2001:db8::1]\"", "2001:db8::/64"),
            ("for=\"[2001:db8::1]:_port\"", "10.0.0.1"),
            ("for=1.1.1.1, for=_hidden", "10.0.0.1"),
            ("for=1.1.1.1, for=unknown", "10.0.0.1"),
            ("for=1.1.1.1, by=10.0.0.9", "10.0.0.1"),
            ("for=1.1.1.1;for=6.6.6.6", "10.0.0.1"),
            ("for=1.1.1.1, for=10.0.0.2;proto=http", "1.1.1.1"),
        ] {
            let parts = request("10.0.0.1", "forwarded", &[line]);
            assert_eq!(ours.key(&parts).to_string(), client, "{line}");
        }
    }

    #[test]
    fn h2_what_a_proxy_quotes_from_its_client_is_never_believed() {
        // Seen to fail: split at every comma and semicolon, with quotes trimmed off whatever is left, a `Host` of
        // `a,for=6.6.6.6` is a client of that address; with quotes followed from the left, one that the client left open hides
        // what the proxy wrote; without `is_escaped`, and with any backslash as an escape.
        let ours = trusted(&["10.0.0.0/8"]).forwarded();
        for line in [
            r#"for=1.1.1.1;host="a,for=6.6.6.6""#,
            r#"host="a;for=6.6.6.6";for=1.1.1.1"#,
            r#"for=", for=1.1.1.1;host="x""#,
            r#"for=1.1.1.1;host="a\",for=6.6.6.6,b\"c""#,
            r#"for=1.1.1.1;host="a\\", for=10.0.0.2;host="b\",for=6.6.6.6""#,
        ] {
            let parts = request("10.0.0.1", "forwarded", &[line]);
            assert_eq!(ours.key(&parts).to_string(), "1.1.1.1", "{line}");
        }
    }

    #[test]
    fn h2_those_who_cannot_be_told_apart_share_a_lane() {
        // Seen to fail: with the request's own address in memory as the key of each, and with another word for `by`.
        let (parts, ()) = http::Request::new(()).into_parts();
        assert_eq!(Identity::peer().key(&parts).to_string(), "unknown");
        assert_eq!(Identity::by(|_| None).key(&parts).to_string(), "unknown");
        assert_eq!(Identity::by(|_| Some("tenant-42".into())).key(&parts).to_string(), "tenant-42");
    }
}
