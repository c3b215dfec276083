//! `[gateway]`: the reverse proxy as a whole.
//!
//! Owns the checked section; its routes are in [`super::route`].

use std::{
    fs::File,
    net::SocketAddr,
    num::{NonZeroU8, NonZeroU32, NonZeroUsize},
    path::PathBuf,
    thread,
    time::Duration,
};

use flowgate::{
    OptionError,
    http::{Cidr, Identity},
};

use super::{
    Forward, Origin, Route, Upstream,
    options::{ROUTE, TLS},
    read::{Entry, Fields, Label, Read},
    route::{apart, upstreams},
    seal::Seal,
    server::address,
};

const MOST_WORKERS: u64 = 1024;
pub(super) const MOST_CONNECTIONS: u32 = 1_000_000;
const MOST_HOPS: u64 = 32;
/// Each is looked at for each reload and shown by `check`; a file with more is made by a program, and that one is wrong.
const MOST_ROUTES: usize = 10_000;
const NETWORKS: &str = "a list of networks, like [\"10.0.0.0/8\", \"::1\"]";
const ROUTES: &str = "tables, each under a heading [[gateway.route]], in double brackets";

/// The section `[gateway]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gateway {
    /// Where to listen; port 0 takes any free one.
    pub(crate) listen: SocketAddr,
    /// The certificate to speak TLS with; plain HTTP without.
    pub(crate) tls: Option<Tls>,
    /// How many threads serve.
    pub(crate) workers: NonZeroUsize,
    /// Whether each of them stays on a processor of its own.
    pub(crate) pin_workers: bool,
    /// How many connections may be open at once.
    pub(crate) max_connections: NonZeroU32,
    /// How long the head of a request may take.
    pub(crate) header_timeout: Duration,
    /// How long a connection may stay open with nothing under way.
    pub(crate) idle_timeout: Duration,
    /// How long what is under way has when the gateway stops.
    pub(crate) drain: Duration,
    /// Who a client is.
    pub(crate) clients: Clients,
    /// What becomes of a request that no route matches.
    pub(crate) unlisted: Unlisted,
    /// In the order of the file. No two match the same (see [`Route`]).
    pub(crate) routes: Vec<Route>,
    pub(super) sealed: Seal,
}

/// Where certificate and key are, both PEM. A path in the file is relative to the file; here it is not any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tls {
    /// The chain, the server's own certificate first.
    pub(crate) cert: PathBuf,
    /// The private key.
    pub(crate) key: PathBuf,
}

/// Which address is the client's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Clients {
    /// The peer's: no forwarding header is believed.
    Peer,
    /// So many proxies stand before us: that many entries from the right of the forwarding headers.
    Hops(NonZeroU8),
    /// The first address from the right that is none of these networks. Not empty.
    Trusted(Vec<Cidr>),
}

/// What becomes of a request that no route matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unlisted {
    /// It is told 404.
    NotFound,
    /// It goes to the gateway's own upstreams, without a limit.
    Pass(Forward),
}

impl Gateway {
    pub(super) fn read(fields: &Fields<'_>) -> Read<Self> {
        let listen = fields.read("listen", address);
        let tls = fields.optional("tls", Tls::read);
        let workers = fields.optional("workers", |entry| entry.integer(1..=MOST_WORKERS));
        let pin_workers = fields.boolean("pin_workers");
        let max_connections = fields.read("max_connections", |entry| entry.small(1..=MOST_CONNECTIONS));
        let header_timeout = fields.time("header_timeout");
        let idle_timeout = fields.time("idle_timeout");
        let drain = fields.time("drain");
        let clients = Clients::read(fields);
        let upstreams = fields.optional("upstreams", upstreams);
        let unlisted = Unlisted::read(fields, &upstreams);
        let routes = routes(fields, &upstreams);
        if !fields.has("upstreams") && !fields.has("route") {
            return Err(fields.lacks("has nowhere to send requests: add a [[gateway.route]], or `upstreams`"));
        }
        upstreams?;
        Ok(Gateway {
            listen: listen?,
            tls: tls?,
            workers: workers?.and_then(threads).unwrap_or_else(processors),
            pin_workers: pin_workers?,
            max_connections: NonZeroU32::new(max_connections?).expect("the range begins at 1"),
            header_timeout: header_timeout?,
            idle_timeout: idle_timeout?,
            drain: drain?,
            clients: clients?,
            unlisted: unlisted?,
            routes: routes?,
            sealed: Seal::checked(),
        })
    }
}

fn threads(workers: u64) -> Option<NonZeroUsize> {
    usize::try_from(workers).ok().and_then(NonZeroUsize::new)
}

fn processors() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

fn routes(fields: &Fields<'_>, upstreams: &Read<Option<Vec<Upstream>>>) -> Read<Vec<Route>> {
    let Some(entry) = fields.entry("route") else { return Ok(Vec::new()) };
    let tables = entry.value.as_array().filter(|tables| tables.len() <= MOST_ROUTES);
    let tables = tables.ok_or_else(|| entry.wrong(format!("up to {MOST_ROUTES} {ROUTES}")))?;
    let mut routes = Vec::with_capacity(tables.len());
    for (at, table) in tables.iter().enumerate() {
        let one = entry.part(&format!("[{at}]"), table);
        let name = one.value.get("name").and_then(|name| name.get_ref().as_str());
        let label = name.map(|name| one.named(name));
        let label = label.unwrap_or_else(|| Label::table(one.field.clone()));
        let read = one.fields_as(&ROUTE, label, ROUTES).and_then(|fields| {
            let route = Route::read(&fields, upstreams)?;
            Ok((fields, route))
        });
        routes.push(read);
    }
    apart(routes)
}

impl Tls {
    fn read(entry: &Entry<'_>) -> Read<Self> {
        let fields = entry.fields(&TLS, "a table: { cert = \"cert.pem\", key = \"key.pem\" }")?;
        let (cert, key) = (fields.read("cert", file), fields.read("key", file));
        Ok(Tls { cert: cert?, key: key? })
    }
}

/// A path of a file that is there, relative to the config file if it stands there.
pub(super) fn file(entry: &Entry<'_>) -> Read<PathBuf> {
    let path = entry.words()?;
    let path = match (&entry.stands.origin, entry.report.folder()) {
        (Origin::File(_), Some(folder)) => folder.join(path),
        (Origin::File(_), None) => return Ok(path.into()),
        _ => path.into(),
    };
    match File::open(&path) {
        Ok(_) => Ok(path),
        Err(error) => Err(entry.wrong(format!("a readable file, which {} is not: {error}", path.display()))),
    }
}

impl Clients {
    /// The same, as the layers ask for it.
    pub(crate) fn identity(&self) -> Identity {
        match self {
            Clients::Peer => Identity::peer(),
            Clients::Hops(hops) => Identity::hops(hops.get().into()),
            Clients::Trusted(networks) => Identity::trusted(networks.iter().copied()),
        }
    }

    fn read(fields: &Fields<'_>) -> Read<Self> {
        let trusted = fields.optional("trusted_proxies", |entry| entry.list(NETWORKS, network));
        let hops = fields.optional("proxy_hops", |entry| entry.integer(1..=MOST_HOPS));
        match (trusted?, hops?) {
            (Some(_), Some(_)) => {
                Err(fields
                    .misplaced("proxy_hops", "cannot be combined with `trusted_proxies`: drop one of them"))
            }
            (Some(networks), None) => Ok(Clients::Trusted(networks)),
            (None, Some(hops)) => {
                let hops = u8::try_from(hops).ok().and_then(NonZeroU8::new);
                Ok(hops.map_or(Clients::Peer, Clients::Hops))
            }
            (None, None) => Ok(Clients::Peer),
        }
    }
}

fn network(entry: &Entry<'_>) -> Read<Cidr> {
    let parsed = entry.text("a network like \"10.0.0.0/8\"")?.parse();
    parsed.map_err(|wrong: OptionError| entry.wrong(wrong.accepted()))
}

impl Unlisted {
    fn read(fields: &Fields<'_>, upstreams: &Read<Option<Vec<Upstream>>>) -> Read<Self> {
        let passes =
            fields.optional("unlisted", |entry| entry.choice(&[("pass", true), ("not-found", false)]))?;
        let upstreams = upstreams.as_ref().map_err(|told| *told)?;
        match (passes, upstreams) {
            (Some(true), None) => Err(fields.misplaced(
                "unlisted",
                "is \"pass\", but there is nowhere to pass requests to: set `upstreams`",
            )),
            (Some(false), _) | (None, None) => Ok(Unlisted::NotFound),
            (Some(true) | None, Some(upstreams)) => {
                Ok(Unlisted::Pass(Forward::by_default(upstreams.clone())))
            }
        }
    }
}
