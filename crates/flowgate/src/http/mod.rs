//! Limits at an HTTP edge: plain `tower` layers for axum, hyper and tonic.
//!
//! The layer to begin with is [`ConcurrencyLimit`]; [`Scope`] says whose budget it is, [`Identity`] who a client is, [`Answer`] what
//! the refused are told.
//!
//! For readers of the code: [`ConcurrencyLimit`], [`RateLimit`] and [`LoadShed`] are the layers, each in a room of its own, and
//! [`Connections`] caps the accept loop before them; they stack in the order connections → shedding → concurrency → rate.
//! What they share: `scope` and `identity` find the key, `front` asks all that is asked of a request first, `answer`
//! writes a refusal in the words of `wording`, `figures` the headers, `fleet` takes a request through a layer on a shared gate, `body` carries the pass to the end of the response, `upgrade` to the end of
//! a connection that became something else. [`client`] is the other side: a layer for callers of such an API. Who may start
//! is decided by gates only.

pub(crate) mod answer;
mod body;
mod cidr;
pub mod client;
mod concurrency;
mod connections;
mod figures;
#[cfg(feature = "shared")]
mod fleet;
mod front;
mod future;
mod identity;
mod rate;
mod scope;
mod shed;
mod upgrade;
mod wording;

pub use answer::{Answer, Format, Told};
pub use body::GatedBody;
pub use cidr::Cidr;
pub use concurrency::{Concurrency, ConcurrencyLimit, ConcurrencyLimitBuilder, Line, ReleaseAt};
#[cfg(feature = "shared")]
pub use concurrency::{SharedConcurrency, SharedConcurrencyLimit, SharedConcurrencyLimitBuilder};
#[cfg(feature = "axum")]
pub use connections::Capped;
pub use connections::{Connection, Connections};
pub use figures::Figures;
pub use front::Rejected;
pub use future::ResponseFuture;
pub use identity::{Identity, Peer};
pub use rate::{RateLimit, RateLimitBuilder, Rated};
#[cfg(feature = "shared")]
pub use rate::{SharedRateLimit, SharedRateLimitBuilder, SharedRated};
pub use scope::{KeyFn, Scope, Template};
pub use shed::{LoadShed, LoadShedBuilder, Shedding};
pub use wording::Wording;
