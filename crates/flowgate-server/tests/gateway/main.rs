//! The gateway over real sockets: the binary between clients and upstreams that the tests play themselves.

mod client;
mod connections;
mod failures;
mod h2_client;
mod h2_upstream;
mod hang_ups;
mod headers;
mod hostile;
mod metrics;
mod plain;
mod program;
mod protocols;
mod refusals;
mod reloads;
mod routes;
mod smuggling;
mod streams;
mod upstream;
