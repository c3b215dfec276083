//! The API of the flow-control server: the QStash v2 protocol, so that its official clients work unmodified.
//!
//! Reading order:
//!
//! - [`router`] maps paths to handlers. [`auth`] checks the token.
//! - [`carried`] completes a change even if its client has gone.
//! - [`path`], [`asked`] and [`filter`] read the path and the query; [`sent`] reads the body.
//! - [`reply`] is the answer to a request that cannot be fulfilled.
//! - [`table`] has all paths; [`openapi`] and [`reference`] are made from it.
//! - The rest is one file for each family of paths.
//!
//! Handlers decide nothing about limits: they read, ask the desk or the store, and write JSON.

mod asked;
mod auth;
mod batch;
mod carried;
mod caught;
mod dlq;
mod events;
mod explain;
mod filter;
mod flow_control;
mod groups;
mod keys;
mod letters;
mod messages;
mod openapi;
mod openapi_runs;
mod path;
mod publish;
mod queues;
mod reference;
mod reply;
mod router;
mod run_letters;
mod runs;
mod schedules;
mod schema;
mod sent;
mod shapes;
mod slice;
mod table;
mod trigger;
mod wait;

pub(crate) use asked::Asked;
pub(crate) use auth::with_token;
pub(crate) use carried::{begin, carry};
pub(crate) use caught::caught;
pub(crate) use flow_control::{MOST_KEYS, OF_QUEUES, pinned, view as key_view};
pub(crate) use path::Path;
pub(crate) use reference::reference;
pub(crate) use reply::{Answer, Problem, done, ok};
pub(crate) use router::{Gates, open, plain, routes};
pub(crate) use sent::Sent;
