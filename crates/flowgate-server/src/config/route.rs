//! `[[gateway.route]]`: which requests it takes, and where they go.
//!
//! Owns the checked route; what bounds it is in [`super::limit`].

use std::{collections::HashMap, sync::Arc, time::Duration};

use http::Method;

use super::{
    HostPattern, Methods, PathPattern, RouteLimit, Upstream,
    error::Origin,
    options::ROUTE,
    read::{Entry, Fields, Label, Read, Report, suggestion},
    seal::Seal,
};

const LONGEST_NAME: usize = 64;
const LARGEST_BODY: u64 = 1 << 40;
const NAME: &str = "a name of letters, digits, `.`, `_` and `-`, up to 64 of them";
const METHODS: &str = "a list of methods, like [\"POST\", \"PUT\"]";
/// What somebody means who writes almost that: a method with a slip in it matches nothing, and its limit would hold for nobody.
const USUAL: [&str; 11] =
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "PROPFIND", "PROPPATCH"];
/// Methods of their own that are near one of those.
const ALSO: [&str; 11] = [
    "BATCH",
    "BDELETE",
    "BPROPFIND",
    "BPROPPATCH",
    "DISCONNECT",
    "MATCH",
    "READ",
    "RECONNECT",
    "SET",
    "TRACK",
    "WATCH",
];
const UPSTREAMS: &str = "a list of URLs, like [\"http://127.0.0.1:9000\"]";
const HOST: &str = "a host without a port, like \"api.example.com\" or \"*.example.com\"";
const PATH: &str = "a path like \"/v1/{tenant}/actions/{*rest}\"";

/// One route. Of two that match a request the more specific one takes it: an exact host before a wildcard before any host,
/// then, segment by segment, a literal before a parameter before the rest. Two that would be equally specific for the same
/// request (same host, same shape of path, a method in common) cannot be in one config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// Unique in the file.
    pub(crate) name: Arc<str>,
    /// `None`: any host.
    pub(crate) host: Option<HostPattern>,
    pub(crate) path: PathPattern,
    pub(crate) methods: Methods,
    pub(crate) forward: Forward,
    /// `None` (`limit = false`): it passes without a limit.
    pub(crate) limit: Option<RouteLimit>,
    pub(super) sealed: Seal,
}

/// Where requests go, and how long that may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forward {
    /// Not empty, no two the same.
    pub(crate) upstreams: Vec<Upstream>,
    /// How long connecting may take.
    pub(crate) connect_timeout: Duration,
    /// How long it may take until the head of the response is there.
    pub(crate) response_timeout: Duration,
    /// How long a stream may stand still.
    pub(crate) stream_timeout: Duration,
    /// The most bytes of a request body; `None`: any number, they are streamed.
    pub(crate) max_body: Option<u64>,
    pub(super) sealed: Seal,
}

impl Route {
    /// The route; what `[gateway]` says of upstreams is its default.
    pub(super) fn read(fields: &Fields<'_>, upstreams: &Read<Option<Vec<Upstream>>>) -> Read<Self> {
        let name = fields.read("name", name);
        let host = fields.optional("host", |entry| entry.parsed(HOST));
        let path = fields.read("path", |entry| entry.parsed(PATH));
        let methods = fields.optional("methods", |entry| entry.list(METHODS, method));
        let forward = Forward::read(fields, upstreams);
        let limit = RouteLimit::read(fields, name.as_ref().ok(), path.as_ref().ok());
        Ok(Route {
            name: name?,
            host: host?,
            path: path?,
            methods: methods?.map_or(Methods::All, Methods::These),
            forward: forward?,
            limit: limit?,
            sealed: Seal::checked(),
        })
    }
}

/// The routes, if no two have the same name or match the same; each with its fields, or told already.
pub(super) fn apart(routes: Vec<Read<(Fields<'_>, Route)>>) -> Read<Vec<Route>> {
    let mut all = Ok(());
    let mut kept: Vec<(String, Route)> = Vec::with_capacity(routes.len());
    // By what makes routes clash, so that a file with many is not compared each with each.
    let mut names: HashMap<Arc<str>, usize> = HashMap::new();
    let mut places: HashMap<(Option<HostPattern>, String), Vec<usize>> = HashMap::new();
    for read in routes {
        let (fields, route) = match read {
            Ok(read) => read,
            Err(told) => {
                all = Err(told);
                continue;
            }
        };
        if let Some(&other) = names.get(&route.name) {
            let accepted = format!("a unique name; {} has this one", kept[other].0);
            all = Err(fields.wrong("name", format!("{:?}", route.name), accepted));
        }
        let place = places.entry((route.host.clone(), route.path.shape())).or_default();
        if let Some(&other) = place.iter().find(|other| kept[**other].1.methods.overlaps(&route.methods)) {
            let why = format!(
                "matches the same requests as {}: change `host`, `path` or `methods` of one of them",
                kept[other].0
            );
            all = Err(fields.misplaced("path", why));
        }
        place.push(kept.len());
        names.entry(Arc::clone(&route.name)).or_insert(kept.len());
        kept.push((fields.label().to_owned(), route));
    }
    all.map(|()| kept.into_iter().map(|(_, route)| route).collect())
}

impl Forward {
    fn read(fields: &Fields<'_>, gateway: &Read<Option<Vec<Upstream>>>) -> Read<Self> {
        let own = fields.optional("upstreams", upstreams);
        let timeouts = Timeouts::read(fields);
        let upstreams = match (own?, gateway) {
            (Some(own), _) => own,
            (None, Ok(Some(gateway))) => gateway.clone(),
            (None, Ok(None)) => return Err(fields.lacks("has no `upstreams`, and [gateway] has none either")),
            (None, Err(told)) => return Err(*told),
        };
        Ok(timeouts?.forward(upstreams))
    }

    /// To these, with the defaults of a route.
    pub(super) fn by_default(upstreams: Vec<Upstream>) -> Self {
        let report = Report::new(Origin::Default, "");
        let fields = Fields::new(&report, &ROUTE, Label::table(""), None, report.at(0));
        Timeouts::read(&fields).expect("defaults are accepted").forward(upstreams)
    }
}

struct Timeouts {
    connect: Duration,
    response: Duration,
    stream: Duration,
    max_body: Option<u64>,
}

impl Timeouts {
    fn read(fields: &Fields<'_>) -> Read<Self> {
        let connect = fields.time("connect_timeout");
        let response = fields.time("response_timeout");
        let stream = fields.time("stream_timeout");
        let max_body = fields.optional("max_body", |entry| entry.integer(1..=LARGEST_BODY));
        Ok(Timeouts { connect: connect?, response: response?, stream: stream?, max_body: max_body? })
    }

    fn forward(self, upstreams: Vec<Upstream>) -> Forward {
        Forward {
            upstreams,
            connect_timeout: self.connect,
            response_timeout: self.response,
            stream_timeout: self.stream,
            max_body: self.max_body,
            sealed: Seal::checked(),
        }
    }
}

/// A list of upstreams.
pub(super) fn upstreams(entry: &Entry<'_>) -> Read<Vec<Upstream>> {
    entry.list(UPSTREAMS, |upstream| upstream.parsed("a URL like \"http://127.0.0.1:9000\""))
}

fn name(entry: &Entry<'_>) -> Read<Arc<str>> {
    let name = entry.text(NAME)?;
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_part) {
        Ok(name.into())
    } else {
        Err(entry.wrong(NAME))
    }
}

fn method(entry: &Entry<'_>) -> Read<Method> {
    const METHOD: &str = "a method in capitals, like \"POST\"";
    let text = entry.text(METHOD)?;
    let is_capital = |byte: u8| byte.is_ascii_uppercase() || byte == b'-' || byte == b'_';
    let method = Method::from_bytes(text.as_bytes()).ok().filter(|_| text.bytes().all(is_capital));
    let is_known = USUAL.iter().chain(&ALSO).any(|known| *known == text);
    let near = if is_known { None } else { suggestion(text, USUAL.into_iter()) };
    match (method, near) {
        (Some(_), Some(near)) => Err(entry.misplaced(format!("is {text:?}; did you mean {near:?}?"))),
        (Some(method), None) => Ok(method),
        (None, _) => Err(entry.wrong(METHOD)),
    }
}
