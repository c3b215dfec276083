//! `flowgate top`: keys, queues and gates of a running server, live.
//!
//! Reading order:
//!
//! - On the server, [`view`] is the answer at `/top`, and [`routes`] says who gets it.
//! - In the terminal, [`run`] asks once a second, [`snapshot`] reads the answer, [`screen`] makes lines of
//!   it, and [`terminal`] owns the terminal while they are shown.

mod options;
mod routes;
mod run;
mod screen;
mod snapshot;
mod terminal;
mod view;

pub(crate) use options::TopOptions;
pub(crate) use routes::routes;
pub(crate) use run::top;
