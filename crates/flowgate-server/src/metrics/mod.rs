//! How a server reports on itself: `/metrics` for Prometheus, `/health`, `/ready`.
//!
//! Reading order:
//!
//! - [`names`] is the table of all metrics; [`reference`] makes the reference page from it.
//! - [`meter`] counts what this process does, and [`writes`] knows whether its latest write succeeded.
//! - [`figures`] queries the store, at most every few seconds however often it is scraped.
//! - [`page`] writes the text, and [`routes`] says who may read it.
//!
//! No key of a user is ever a label: there may be a million of them.

mod exposition;
mod figures;
mod meter;
mod names;
mod page;
mod reference;
mod routes;
mod writes;

pub(crate) use figures::MOST_OF_A_LINE;
pub(crate) use meter::{Meter, Outcome};
pub(crate) use page::GatewayLook;
pub(crate) use reference::reference;
pub(crate) use routes::{Watched, routes};
