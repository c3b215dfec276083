//! Sheds a share of the requests while the process is under pressure.
//!
//! [`pressure`] has the pure rule and the signals, [`clock`] the ticks, [`layer`] the options, [`service`] turns requests away.

mod clock;
mod layer;
mod pressure;
mod service;

pub use layer::{LoadShed, LoadShedBuilder};
pub use service::Shedding;
