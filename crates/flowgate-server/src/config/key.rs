//! `key` and `missing_key`: where the key of a request comes from.
//!
//! Owns the checked source of a key, and which texts can be one.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use http::{HeaderName, header};

use super::{
    HostPattern, PathPattern,
    options::KEY,
    read::{Entry, Fields, Read},
};

const LONGEST_KEY: usize = 1024;
const KEYS: &str = "\"client\", { header = \"…\" }, { path = \"…\" } or { constant = \"…\" }";

/// What the gateway itself says of a client: upstreams do not get what was counted by.
const FORWARDING: [&str; 4] = ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"];
/// What frames a message or belongs to one connection: it ends at the gateway.
const OF_A_CONNECTION: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Where the key of a request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyFrom {
    /// The value of a header, and what to do without it. Of `Host` it is the host alone, as routes see it.
    Header(HeaderName, MissingKey),
    /// A parameter of the path; the route's pattern has it.
    Path(Arc<str>),
    /// The address of the client, as [`super::Clients`] says.
    Client,
    /// All share one lane.
    Constant(Arc<str>),
}

/// What becomes of a request without the header that has its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingKey {
    /// It is told 400.
    Refuse,
    /// It shares one lane with all others without it: the lane of the empty key.
    Shared,
}

impl KeyFrom {
    /// The key of the route with this name and path; either may be missing because it was wrong.
    pub(super) fn read(
        fields: &Fields<'_>,
        name: Option<&Arc<str>>,
        path: Option<&PathPattern>,
    ) -> Read<Self> {
        let missing = fields.read("missing_key", |entry| {
            entry.choice(&[("shared", MissingKey::Shared), ("refuse", MissingKey::Refuse)])
        });
        let key = fields.optional("key", |entry| KeyFrom::of(entry, path))?;
        // Without a name there is no route, and that was told.
        let constant = || KeyFrom::Constant(name.cloned().unwrap_or_default());
        match key.unwrap_or_else(constant) {
            KeyFrom::Header(header, _) => Ok(KeyFrom::Header(header, missing?)),
            _ if fields.has("missing_key") => {
                Err(fields.misplaced("missing_key", "has no meaning where `key` is not a header: drop it"))
            }
            key => missing.map(|_| key),
        }
    }

    fn of(entry: &Entry<'_>, path: Option<&PathPattern>) -> Read<Self> {
        if let Some(text) = entry.value.as_str() {
            return if text == "client" { Ok(KeyFrom::Client) } else { Err(entry.wrong(KEYS)) };
        }
        let fields = entry.fields(&KEY, KEYS)?;
        let header = fields.optional("header", header_name);
        let param = fields.optional("path", |entry| param(entry, path));
        let constant = fields.optional("constant", key_text);
        fields.known()?;
        let one = match (header?, param?, constant?) {
            (Some(header), None, None) => KeyFrom::Header(header, MissingKey::Shared),
            (None, Some(param), None) => KeyFrom::Path(param),
            (None, None, Some(constant)) => KeyFrom::Constant(constant),
            _ => return Err(entry.wrong(format!("exactly one of {KEYS}"))),
        };
        Ok(one)
    }
}

/// A header that reaches upstreams as it came.
fn header_name(entry: &Entry<'_>) -> Read<HeaderName> {
    const HEADER: &str = "the name of a header, like \"X-Integration-Id\"";
    let name: HeaderName = entry.text(HEADER)?.parse().map_err(|_| entry.wrong(HEADER))?;
    // Upstreams that read `_` as `-` are not to be told otherwise either.
    let dashed = name.as_str().replace('_', "-");
    if FORWARDING.contains(&dashed.as_str()) {
        let other = "a header that the gateway does not write itself; to count by the client's address, set key = \"client\"";
        return Err(entry.wrong(other));
    }
    if OF_A_CONNECTION.contains(&dashed.as_str()) {
        return Err(
            entry.wrong("a header that is passed on, and not one about the body's length or the connection")
        );
    }
    Ok(name)
}

fn param(entry: &Entry<'_>, path: Option<&PathPattern>) -> Read<Arc<str>> {
    let name = entry.text("the name of a parameter of `path`")?;
    match path {
        Some(path) if !path.params().any(|param| param == name) => {
            let params = path.params().map(|param| format!("{param:?}")).collect::<Vec<_>>().join(" or ");
            let params = if params.is_empty() { "`path` has none".to_owned() } else { params };
            Err(entry.wrong(format!("a parameter of `path`: {params}")))
        }
        _ => Ok(name.into()),
    }
}

/// A key that requests of a route with such keys can have.
pub(super) fn own(entry: &Entry<'_>, key: Option<&KeyFrom>) -> Read<Arc<str>> {
    match key {
        Some(KeyFrom::Client) => client(entry),
        Some(KeyFrom::Header(name, _)) if *name == header::HOST => host(entry),
        _ => key_text(entry),
    }
}

/// A host as requests are counted by it.
fn host(entry: &Entry<'_>) -> Read<Arc<str>> {
    const HOST: &str = "a host without a port, like \"api.example.com\"";
    match entry.text(HOST)?.parse() {
        Ok(HostPattern::Exact(host)) => Ok(host.into()),
        Ok(HostPattern::Under(_)) | Err(_) => Err(entry.wrong(HOST)),
    }
}

/// A key as a request can bring it.
fn key_text(entry: &Entry<'_>) -> Read<Arc<str>> {
    const KEY: &str = "one line of text, up to 1024 bytes";
    let key = entry.text(KEY)?;
    if key.len() > LONGEST_KEY || key.chars().any(char::is_control) {
        Err(entry.wrong(KEY))
    } else {
        Ok(key.into())
    }
}

/// The key of a client, by its address: IPv6 clients are told apart by their first 64 bits, as `flowgate::http` does.
fn client(entry: &Entry<'_>) -> Read<Arc<str>> {
    const ADDRESS: &str = "the address of a client, like \"192.0.2.7\" or \"2001:db8:1:2::/64\"";
    let text = entry.text(ADDRESS)?;
    let address = text.strip_suffix("/64").filter(|text| text.contains(':')).unwrap_or(text);
    match address.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(IpAddr::V4(address)) => Ok(address.to_string().into()),
        Ok(IpAddr::V6(address)) => {
            let network = Ipv6Addr::from_bits(address.to_bits() >> 64 << 64);
            Ok(format!("{network}/64").into())
        }
        Err(_) => Err(entry.wrong(ADDRESS)),
    }
}
