//! The whole configuration: one field for each section of the file.
//!
//! Owns the list of sections. A new section is a file beside this one, a field here, and its options in
//! [`super::options`].

use std::net::{IpAddr, SocketAddr};

use toml::de::DeTable;

use super::{
    ConfigErrors, Gateway, Queue, Server, StoreAddress, Tasks, WorkerConfig,
    error::{Origin, Problem},
    options::{FILE, GATEWAY, SERVER, Section, TASKS, WORKER},
    read::{Fields, Given, Label, Read, Report},
};

/// What the program is told to do, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// `store`.
    pub(crate) store: StoreAddress,
    /// `[server]`.
    pub(crate) server: Server,
    /// `[gateway]`; `None` if the file has none.
    pub(crate) gateway: Option<Gateway>,
    /// `[tasks]`.
    pub(crate) tasks: Tasks,
    /// `[[queue]]`; empty unless the mode is custom.
    pub(crate) queues: Vec<Queue>,
    /// `[worker]`.
    pub(crate) worker: WorkerConfig,
}

/// What an address has to be that cannot be listened on beside this one; `None` if it can. All addresses of IPv6 are those of
/// IPv4 as well, as systems have it unless they are told otherwise.
fn clash(taken: SocketAddr, wanted: SocketAddr) -> Option<&'static str> {
    let (one, other) = (taken.ip().to_canonical(), wanted.ip().to_canonical());
    let has_all = |one: IpAddr, other: IpAddr| {
        one.is_unspecified() && (one.is_ipv6() || one.is_ipv4() == other.is_ipv4())
    };
    if taken.port() != wanted.port() || taken.port() == 0 {
        None
    } else if one == other {
        Some("an address of its own; `server.listen` uses this one")
    } else if has_all(one, other) {
        Some("another port; `server.listen` uses this one on every address")
    } else if has_all(other, one) {
        Some("another port; this is every address, and `server.listen` uses this port on one of them")
    } else {
        None
    }
}

impl Config {
    /// The configuration that a text is, without a file, environment or flags. Paths in it are taken as they are, and
    /// nobody looks whether the files are there.
    #[cfg(test)]
    pub(crate) fn from_toml(text: &str) -> Result<Self, ConfigErrors> {
        Config::read(Origin::Default, text, &[])
    }

    /// The configuration that a text is, with what goes before it; or everything that is wrong with it.
    pub(super) fn read(origin: Origin, text: &str, given: &[Given]) -> Result<Self, ConfigErrors> {
        let report = Report::new(origin, text);
        let (tree, errors) = DeTable::parse_recoverable(text);
        let mut is_toml = Ok(());
        for error in errors {
            let at = report.at(error.span().map_or(0, |span| span.start));
            is_toml = Err(report.tell(&at, Problem::Syntax(error.message().to_owned())));
        }
        // What a text means that is no TOML is anybody's guess, and so would be the errors in it.
        let read = is_toml.and_then(|()| Config::of(&report, tree.get_ref(), given));
        report.conclude(read)
    }

    fn of<'e>(report: &'e Report<'e>, tree: &'e DeTable<'e>, given: &'e [Given]) -> Read<Self> {
        let file = Fields::new(report, &FILE, Label::table(""), Some(tree), report.at(0)).with(given);
        let section = |section| file.section(section).map(|fields| fields.map(|fields| fields.with(given)));
        let or_none = |of: &'static Section| {
            section(of)
                .map(|fields| fields.unwrap_or_else(|| file.none(of, Label::table(of.path)).with(given)))
        };
        let store = file.read("store", StoreAddress::read);
        let server = or_none(&SERVER).and_then(|fields| Server::read(&fields));
        let tasks = or_none(&TASKS).and_then(|fields| Tasks::read(&fields));
        let queues = Queue::read_all(&file, tasks.as_ref().ok());
        let worker = or_none(&WORKER).and_then(|fields| {
            WorkerConfig::read(&fields, queues.as_ref().ok().filter(|queues| !queues.is_empty()))
        });
        let gateway = section(&GATEWAY).and_then(|fields| {
            if fields.is_none() {
                file.nothing_given_for(&GATEWAY, given)?;
            }
            let Some(fields) = fields else { return Ok(None) };
            let gateway = Gateway::read(&fields)?;
            let taken = server.as_ref().ok().map(|server| server.listen);
            match taken.and_then(|taken| clash(taken, gateway.listen)) {
                Some(free) => Err(fields.wrong("listen", format!("{:?}", gateway.listen.to_string()), free)),
                None => Ok(Some(gateway)),
            }
        });
        let (store, server, gateway) = (store?, server?, gateway?);
        Ok(Config { store, server, gateway, tasks: tasks?, queues: queues?, worker: worker? })
    }
}
