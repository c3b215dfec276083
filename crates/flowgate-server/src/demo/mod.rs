//! The demo: two gates behind HTTP, with a page that shows them live.
//!
//! Reading order:
//!
//! - [`serve`] starts and stops it. [`app`] has the gates, and [`routes`] maps paths to handlers.
//! - [`guarded`] is the work behind the gates.
//! - [`asked`] is what requests may say, and [`answer`] what they are told instead.
//! - [`figures`] and [`tally`] are what the page shows; [`control`] and [`load`] are its buttons.
//!
//! It has no login: what it guards is a nap.

mod answer;
mod app;
mod asked;
mod control;
mod failure;
mod figures;
mod greeting;
mod guarded;
mod load;
mod routes;
mod serve;
mod tally;

pub(crate) use failure::Failure;
pub(crate) use serve::serve;
