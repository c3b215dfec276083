//! The API of the flow-control server: the QStash v2 protocol, so that its official clients work unmodified.
//!
//! Reading order: [`router`] says which path is whose; [`auth`] who may; [`reply`] is what is told when something cannot be;
//! [`asked`] and [`filter`] are what requests say beside their path. The rest is one file for each family of paths. Handlers
//! decide nothing about limits: they read, ask the desk or the store, and write JSON.

mod asked;
mod auth;
mod batch;
mod dlq;
mod events;
mod filter;
mod flow_control;
mod groups;
mod keys;
mod messages;
mod openapi;
mod publish;
mod queues;
mod reply;
mod router;
mod schedules;
mod schema;
mod sent;

pub(crate) use router::routes;
