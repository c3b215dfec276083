//! Headers between two hops.
//!
//! Owns which headers end here, and what the gateway says of the client it speaks for.

use std::{fmt::Write, io, net::SocketAddr, str};

use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::wire::put_line;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Those that belong to one connection, whether `Connection` names them or not.
static HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// What a message is framed and addressed by: not for anybody to drop by naming it in `Connection`.
static NEEDED: [HeaderName; 2] = [header::CONTENT_LENGTH, header::HOST];

/// Which of the headers are there that have to be looked at: found in one go, for most messages have none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    /// Some that belong to one connection.
    hop_by_hop: bool,
    pub(super) te: bool,
    pub(super) upgrade: bool,
    pub(super) expect: bool,
    forwarded: bool,
    forwarded_for: bool,
    forwarded_proto: bool,
    forwarded_host: bool,
    /// Some that a careless upstream takes for others.
    twins: bool,
}

impl Marks {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut marks = Marks::default();
        for name in headers.keys() {
            match *name {
                header::CONNECTION | header::TRANSFER_ENCODING => marks.hop_by_hop = true,
                header::TE => (marks.hop_by_hop, marks.te) = (true, true),
                header::UPGRADE => (marks.hop_by_hop, marks.upgrade) = (true, true),
                header::EXPECT => marks.expect = true,
                header::FORWARDED => marks.forwarded = true,
                _ => match name.as_str() {
                    "http2-settings" | "keep-alive" | "proxy-connection" => marks.hop_by_hop = true,
                    "x-forwarded-for" => marks.forwarded_for = true,
                    "x-forwarded-proto" => marks.forwarded_proto = true,
                    "x-forwarded-host" => marks.forwarded_host = true,
                    name => marks.twins |= is_twin(name),
                },
            }
        }
        marks
    }
}

/// What frames a request or vouches for it.
const VOUCHING: [&str; 5] =
    ["content-length", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "transfer-encoding"];

/// Whether a name is one of those but for its dashes: to an upstream that reads both as one, a stranger would speak for a
/// proxy.
fn is_twin(name: &str) -> bool {
    let is_like = |known: &&str| are_twins(known.as_bytes(), name.as_bytes());
    matches!(name.len(), 14..=17) && name.contains('_') && VOUCHING.iter().any(is_like)
}

/// Whether two names are the same but for `-` in the place of `_`: CGI and its descendants read both as one.
pub(super) fn are_twins(one: &[u8], other: &[u8]) -> bool {
    let as_one = |byte: &u8| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    one.len() == other.len()
        && !one.eq_ignore_ascii_case(other)
        && one.iter().map(as_one).eq(other.iter().map(as_one))
}

/// Takes out what belongs to one connection, and what only looks like something else.
pub(super) fn strip(headers: &mut HeaderMap, marks: Marks) {
    if marks.twins {
        strip_unless(headers, |name| !is_twin(name.as_str()));
    }
    if !marks.hop_by_hop {
        return;
    }
    let named: Vec<HeaderName> = listed(headers, &header::CONNECTION)
        .filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
        .filter(|name| !NEEDED.contains(name))
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Leaves of the trailers of a request what is known only when its body has ended: sums, signatures, statuses. All else has to
/// be known before (RFC 9110, 6.5.1): what frames a request, says where it goes, who sent it, or how it is to be taken. Names
/// for that are without number, and an upstream that adds trailers to the headers would believe them.
pub(super) fn strip_trailers(trailers: &mut HeaderMap) {
    strip_unless(trailers, |name| {
        let text = name.as_str();
        matches!(text, "content-md5" | "server-timing" | "signature" | "signature-input")
            || text.starts_with("grpc-")
            || text.contains("checksum")
            || SUMS.iter().any(|end| text.ends_with(end))
    });
}

/// How the names of sums end.
const SUMS: [&str; 8] = ["digest", "-sum", "-hash", "-md5", "-sha1", "-sha256", "-crc32", "-crc32c"];

/// Takes out of the trailers of a response what frames it, belongs to one connection, or has to be known before its body is
/// read. Whatever else an upstream says there is its own matter.
pub(super) fn strip_response_trailers(trailers: &mut HeaderMap) {
    strip_unless(trailers, |name| {
        let is_late = matches!(
            name.as_str(),
            "age"
                | "cache-control"
                | "content-encoding"
                | "content-range"
                | "content-type"
                | "date"
                | "expires"
                | "location"
                | "retry-after"
                | "set-cookie"
                | "trailer"
                | "vary"
                | "www-authenticate"
        );
        let is_of_proxies = name.as_str().starts_with("proxy-");
        !(is_late || is_of_proxies || HOP_BY_HOP.contains(name) || NEEDED.contains(name))
    });
}

fn strip_unless(trailers: &mut HeaderMap, may_trail: impl Fn(&HeaderName) -> bool) {
    let forbidden: Vec<HeaderName> = trailers.keys().filter(|name| !may_trail(name)).cloned().collect();
    for name in forbidden {
        trailers.remove(name);
    }
}

fn listed<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> + use<'h> {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

/// Who is spoken for: the same for all requests of a connection.
#[derive(Debug)]
pub(super) struct Speaker {
    /// The text of the address, in place: a value would be two more pieces of memory for each connection.
    address: [u8; LONGEST_ADDRESS],
    length: u8,
    is_tls: bool,
}

/// Of an IPv6 address: those of IPv4 are written as such.
const LONGEST_ADDRESS: usize = 39;

impl Speaker {
    pub(super) fn new(peer: SocketAddr, is_tls: bool) -> Self {
        let mut address = [0; LONGEST_ADDRESS];
        let mut rest = &mut address[..];
        io::Write::write_fmt(&mut rest, format_args!("{}", peer.ip().to_canonical()))
            .expect("no address is longer");
        let length = u8::try_from(LONGEST_ADDRESS - rest.len()).expect("it is short");
        Speaker { address, length, is_tls }
    }

    fn address(&self) -> &[u8] {
        &self.address[..usize::from(self.length)]
    }

    fn protocol(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    /// The client as an element of `Forwarded`, in which an IPv6 address is quoted.
    fn element(&self) -> String {
        let address = str::from_utf8(self.address()).expect("an address is plain text");
        let (before, after) = if address.contains(':') { ("\"[", "]\"") } else { ("", "") };
        format!("for={before}{address}{after};proto={}", self.protocol())
    }

    /// What the upstream should know of the client. What others have said before stays where they are trusted to say it: then
    /// lists are added to at their end, and otherwise they begin here.
    pub(super) fn introduction(&self, headers: &HeaderMap, marks: Marks, is_trusted: bool) -> Introduction {
        let host = headers.get(header::HOST);
        let address = if is_trusted && marks.forwarded_for {
            joined(headers, &X_FORWARDED_FOR, self.address())
        } else {
            HeaderValue::from_bytes(self.address()).expect("an address is plain text")
        };
        let forwarded = marks.forwarded.then(|| {
            let mut element = self.element();
            if let Some(host) = host.and_then(|host| host.to_str().ok())
                && !host.contains(['"', '\\'])
            {
                write!(element, ";host=\"{host}\"").expect("a string takes all that is written");
            }
            match is_trusted {
                true => joined(headers, &header::FORWARDED, element.as_bytes()),
                false => HeaderValue::from_str(&element).expect("it is made of values"),
            }
        });
        Introduction {
            address,
            protocol: if is_trusted && marks.forwarded_proto { None } else { Some(self.protocol()) },
            host: if is_trusted && marks.forwarded_host { None } else { host.cloned() },
            keeps_host: is_trusted && marks.forwarded_host,
            lacks_host: host.is_none(),
            forwarded,
            replaces: marks.forwarded || marks.forwarded_for || marks.forwarded_proto || marks.forwarded_host,
        }
    }
}

/// What an upstream is told of the client: each replaces what the request says of it.
#[derive(Debug)]
pub(super) struct Introduction {
    address: HeaderValue,
    protocol: Option<&'static str>,
    host: Option<HeaderValue>,
    /// Whether what the request says of its host stays. What a stranger says of it goes, also where there is nothing to
    /// put in its place.
    keeps_host: bool,
    /// Whether the request names no host.
    pub(super) lacks_host: bool,
    forwarded: Option<HeaderValue>,
    /// Whether there is anything to replace.
    replaces: bool,
}

impl Introduction {
    /// Into the headers.
    pub(super) fn insert(&self, headers: &mut HeaderMap) {
        headers.insert(X_FORWARDED_FOR, self.address.clone());
        if let Some(protocol) = self.protocol {
            headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(protocol));
        }
        match &self.host {
            Some(host) => drop(headers.insert(X_FORWARDED_HOST, host.clone())),
            None if self.keeps_host => {}
            None => drop(headers.remove(X_FORWARDED_HOST)),
        }
        if let Some(forwarded) = &self.forwarded {
            headers.insert(header::FORWARDED, forwarded.clone());
        }
    }

    /// Writes the headers, with these among them.
    pub(super) fn write(&self, headers: &HeaderMap, text: &mut Vec<u8>) {
        for (name, value) in headers {
            if !(self.replaces && self.is_replaced(name)) {
                put_line(text, name.as_str(), value.as_bytes());
            }
        }
        put_line(text, X_FORWARDED_FOR.as_str(), self.address.as_bytes());
        if let Some(protocol) = self.protocol {
            put_line(text, X_FORWARDED_PROTO.as_str(), protocol.as_bytes());
        }
        if let Some(host) = &self.host {
            put_line(text, X_FORWARDED_HOST.as_str(), host.as_bytes());
        }
        if let Some(forwarded) = &self.forwarded {
            put_line(text, header::FORWARDED.as_str(), forwarded.as_bytes());
        }
    }

    fn is_replaced(&self, name: &HeaderName) -> bool {
        match name.as_str() {
            "x-forwarded-for" => true,
            "x-forwarded-proto" => self.protocol.is_some(),
            "x-forwarded-host" => !self.keeps_host,
            "forwarded" => self.forwarded.is_some(),
            _ => false,
        }
    }
}

/// All lines of a list as one, with an item added.
fn joined(headers: &HeaderMap, name: &HeaderName, item: &[u8]) -> HeaderValue {
    let mut text = BytesMut::new();
    for line in headers.get_all(name).iter().map(HeaderValue::as_bytes).chain([item]) {
        if !text.is_empty() {
            text.extend_from_slice(b", ");
        }
        text.extend_from_slice(line);
    }
    HeaderValue::from_maybe_shared(text.freeze()).expect("values with commas between them are a value")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        headers
    }

    /// Introduces a client in the headers, and sees that the same is written.
    fn introduce(peer: &str, headers: &mut HeaderMap, is_trusted: bool) {
        let speaker = Speaker::new(SocketAddr::new(peer.parse().unwrap(), 9), false);
        let introduction = speaker.introduction(headers, Marks::of(headers), is_trusted);
        let mut text = Vec::new();
        introduction.write(headers, &mut text);
        introduction.insert(headers);
        let text = String::from_utf8(text).unwrap();
        let mut written: Vec<&str> = text.lines().collect();
        let mut expected: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        written.sort_unstable();
        expected.sort_unstable();
        assert_eq!(written, expected);
    }

    #[test]
    fn w3_what_belongs_to_one_connection_ends_here() {
        // Seen to fail: without the names that `Connection` lists, `x-mine` is sent on.
        let mut map = headers(&[
            ("connection", "close, X-Mine"),
            ("connection", "host, content-length, not a name"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("te", "gzip"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAMAAABk"),
            ("x-mine", "1"),
            ("host", "a"),
            ("content-length", "1"),
            ("trailer", "x-end"),
        ]);
        let marks = Marks::of(&map);
        strip(&mut map, marks);
        let mut left: Vec<_> = map.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-length", "host", "trailer"]);
    }

    #[test]
    fn w3_what_differs_from_a_header_that_vouches_by_its_dashes_alone_ends_here() {
        // Seen to fail: with nothing taken out, all of them were sent on.
        let mut map = headers(&[
            ("X_Forwarded_For", "6.6.6.6"),
            ("x-forwarded_host", "evil"),
            ("x_forwarded-proto", "https"),
            ("transfer_encoding", "chunked"),
            ("content_length", "5"),
            ("x-forwarded-for", "1.2.3.4"),
            ("x_forwarded_fox", "1"),
            ("my_own", "1"),
        ]);
        let marks = Marks::of(&map);
        strip(&mut map, marks);
        let mut left: Vec<_> = map.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["my_own", "x-forwarded-for", "x_forwarded_fox"]);
    }

    #[test]
    fn w3_forwarding_headers_are_added_to_and_a_strangers_are_dropped() {
        // Seen to fail: with `append` instead of `joined`, whoever reads the first line reads the client's own; with lists joined
        // whoever sent them, a stranger's address stood before its own.
        let said = [
            ("host", "api.example.com:8081"),
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-for", "7.7.7.7"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "evil"),
            ("forwarded", "for=6.6.6.6"),
        ];
        let own = "for=\"[2001:db8::1]\";proto=http;host=\"api.example.com:8081\"";
        let mut map = headers(&said);
        introduce("2001:db8::1", &mut map, false);
        assert_eq!(map["x-forwarded-for"], "2001:db8::1");
        assert_eq!(map["x-forwarded-proto"], "http");
        assert_eq!(map["x-forwarded-host"], "api.example.com:8081");
        assert_eq!(map["forwarded"], own);
        assert_eq!(map.get_all("x-forwarded-for").iter().count(), 1);
        let mut map = headers(&said);
        introduce("2001:db8::1", &mut map, true);
        assert_eq!(map["x-forwarded-for"], "6.6.6.6, 7.7.7.7, 2001:db8::1");
        assert_eq!(map["forwarded"], format!("for=6.6.6.6, {own}"));
        assert_eq!(map.get_all("x-forwarded-for").iter().count(), 1);
    }

    #[test]
    fn w3_what_a_stranger_says_of_its_host_is_dropped_where_there_is_none_to_put_in_its_place() {
        // Seen to fail: with the header replaced only by a `Host` of the request, the stranger's was sent on.
        let said = [("x-forwarded-host", "evil")];
        let mut map = headers(&said);
        introduce("10.0.0.1", &mut map, false);
        assert_eq!(map.get("x-forwarded-host"), None);
        let mut map = headers(&said);
        introduce("10.0.0.1", &mut map, true);
        assert_eq!(map["x-forwarded-host"], "evil", "a proxy of ours says it");
    }

    #[test]
    fn w3_a_trusted_proxy_says_of_whom_it_speaks() {
        // Seen to fail: with `is_trusted` not asked for, the scheme the client used is lost.
        let said =
            [("host", "inner"), ("x-forwarded-proto", "https"), ("x-forwarded-host", "api.example.com")];
        let mut map = headers(&said);
        introduce("::ffff:10.0.0.1", &mut map, true);
        assert_eq!(map["x-forwarded-for"], "10.0.0.1");
        assert_eq!(map["x-forwarded-proto"], "https");
        assert_eq!(map["x-forwarded-host"], "api.example.com");
        assert!(!map.contains_key("forwarded"), "what nobody uses is not begun");
    }
}
