//! The console: the server in a browser, behind the same tokens as the API.
//!
//! Reading order:
//!
//! - [`router`] maps paths to handlers. [`assets`] is the page, which is in the binary.
//! - [`session`] is who is logged in, and [`guard`] who may do what.
//! - [`hub`] looks at the store once for all who watch, and [`live`] tells each page its part. [`sample`] is
//!   one look, [`busiest`] finds the busiest keys.
//! - [`keys`], [`queues`] and [`gates`] are what the API has no paths for.
//!
//! Everything else the page asks of the API itself, mounted a second time behind the session. Nothing here
//! decides about a limit.

mod assets;
mod busiest;
mod gates;
mod guard;
mod hub;
mod keys;
mod live;
mod queues;
mod router;
mod sample;
mod session;

pub(crate) use router::{Console, Parts, routes};
