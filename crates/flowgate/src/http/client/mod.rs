//! The other side: a layer for callers of an API that is guarded by such limits.
//!
//! [`ClientLayer`] goes around any HTTP client that is a `tower` service. It sends again what was refused
//! before it ran, within a budget, and slows down before it is refused.
//!
//! For readers of the code, in reading order:
//!
//! - [`ClientLayer`] is what users build (`builder` has the options), and [`Client`] the service it makes.
//! - `call`: the course of one request: rest, line, attempt, verdict, backoff, again.
//! - The rules are pure and stand alone. `verdict` says what was refused before it ran (`json` finds the code
//!   in a body), `backoff` how long to wait, `budget` how many retries there may be and what not to send at
//!   all, `pace` how many may be in flight.
//! - `destination` keeps what is known of each key, `headers` reads what servers tell, `replay` repeats a
//!   request, `body` hands on what was read ahead.
//!
//! Who may start is decided by a gate only, and time is read in `clock` only.

mod backoff;
mod body;
mod budget;
mod builder;
mod call;
mod clock;
mod destination;
mod error;
mod future;
mod headers;
mod json;
mod layer;
mod pace;
mod replay;
mod service;
mod verdict;

pub use body::Body;
pub use builder::ClientBuilder;
pub use error::{BoxError, Error};
pub use future::ResponseFuture;
pub use layer::{ClientLayer, Retry};
pub use replay::{Once, Replay};
pub use service::Client;
pub use verdict::Limit;
