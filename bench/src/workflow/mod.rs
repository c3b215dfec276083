//! Workflows on the flow-control server: steps in a second, and what a long run costs.
//!
//! [`steps`] has many runs on one key and over a thousand, [`long`] one run of a thousand steps. What they stand on: [`stage`]
//! starts the server, [`endpoint`] is a workflow that speaks the clients' protocol and does nothing else.

mod endpoint;
pub(crate) mod long;
pub(crate) mod stage;
pub(crate) mod steps;
