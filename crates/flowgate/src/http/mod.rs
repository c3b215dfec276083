//! Limits at an HTTP edge: plain `tower` layers for axum, hyper and tonic.
//!
//! Begin with [`ConcurrencyLimit`]. [`Scope`] says whose budget it is, [`Identity`] tells clients apart, and
//! [`Answer`] says what refused requests are told.
//!
//! For readers of the code, in reading order:
//!
//! - [`ConcurrencyLimit`], [`RateLimit`] and [`LoadShed`] are the layers, each in a folder of its own.
//!   [`Connections`] caps the accept loop before them. They stack in the order connections → shedding →
//!   concurrency → rate.
//! - `front`: what every layer asks of a request before it asks its gate. `scope` and `identity` (with
//!   `cidr`) find the key.
//! - `answer`: writes a refusal, in the words of `wording`; `figures` writes the headers.
//! - `future`: a request on its way. `body` carries the pass to the end of the response, `upgrade` to the end
//!   of a connection that became something else. `fleet` takes a request through a layer on a shared gate.
//! - [`client`]: the other side, a layer for callers of such an API.
//!
//! Who may start is decided by gates only.

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
