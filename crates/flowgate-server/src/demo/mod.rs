//! The demo: two gates behind HTTP, with a page that shows them live.
//!
//! Reading order:
//!
//! - [`serve`] starts and stops it. [`app`] has the gates, and [`routes`] maps paths to handlers.
//! - [`guarded`] is the work behind the gates.
//! - [`asked`] reads requests, and [`answer`] writes the answers and errors.
//! - [`figures`] and [`tally`] are what the page shows; [`control`] and [`load`] are its buttons.
//! It has no login: the work it guards is a sleep.

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
