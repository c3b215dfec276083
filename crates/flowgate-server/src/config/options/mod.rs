//! Every option of the file, declared once.
//!
//! A new section: a file here with its options, its line in [`SECTIONS`], and its checked type beside this folder.

mod gateway;
mod limit;
mod list;
mod route;
mod section;
mod server;
mod tasks;

pub(super) use gateway::{GATEWAY, TLS};
pub(super) use limit::{CODEL, KEY, LINE, OVERRIDE, RATE, REFUSAL};
pub(super) use list::{FILE, SECTIONS};
pub(super) use route::ROUTE;
pub(super) use section::{Default, Kind, Opt, Section};
pub(super) use server::SERVER;
pub(super) use tasks::{QUEUE, TASKS, WORKER};
