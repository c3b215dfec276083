//! The console: the server in a browser, behind the same tokens as the API.
//!
//! Reading order:
//!
//! - [`router`] maps paths to handlers. [`assets`] is the page, which is in the binary.
//! - [`session`] is who is logged in, and [`guard`] who may do what.
//! - [`hub`] queries the store once for everybody who watches, and [`live`] sends each page its part. [`sample`] is
//!   one query, [`busiest`] finds the busiest keys.
//! - [`keys`], [`queues`] and [`gates`] serve what the API has no paths for.
//!
//! For everything else the page uses the API itself, mounted a second time behind the session. Nothing here decides
//! about a limit.

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
