//! The one config file of the program, `flowgate.toml`, as checked types.
//!
//! Reading order:
//!
//! - [`Config`] has the sections; [`Server`], [`Gateway`], [`Route`] and [`RouteLimit`] are their contents.
//! - [`Sources`] finds the file, and the environment and flags that overrule it.
//! - [`options`] declares every option once.
//! - [`read`] reads the file by these declarations, and collects the errors.
//!
//! A built configuration has been checked, each option and their combinations; no later code checks it again.
//!
//! A new section: its options in [`options`], a file with its checked type and how it is read, and a field of
//! [`Config`]. The reference page, the environment variables and the suggestions for typos follow automatically.

#[cfg(test)]
mod declared;
mod error;
mod gateway;
mod given;
mod key;
mod lane;
mod limit;
mod load;
mod options;
mod overrides;
mod pattern;
mod proxy;
mod read;
mod reference;
mod refusal;
mod route;
mod seal;
mod sections;
mod server;
mod store;
mod tasks;
mod upstream;
mod worker;

pub(crate) use error::{ConfigError, ConfigErrors, Origin, Problem};
pub(crate) use gateway::{Clients, Gateway, Tls, Unlisted};
#[cfg(test)]
pub(crate) use given::OF_FLAGS;
pub(crate) use key::{KeyFrom, MissingKey};
pub(crate) use limit::RouteLimit;
pub(crate) use load::{Loaded, Sources};
pub(crate) use overrides::Override;
pub(crate) use pattern::{HostPattern, Methods, PathPattern, Segment};
pub(crate) use proxy::Proxy;
pub(crate) use reference::reference;
pub(crate) use route::{Forward, Route};
pub(crate) use sections::Config;
pub(crate) use server::{FlowControlMode, Server};
pub(crate) use store::StoreAddress;
pub(crate) use tasks::{LAST_PRIORITY, Queue, QueueMode, Tasks};
pub(crate) use upstream::Upstream;
pub(crate) use worker::{WorkerConfig, host};
