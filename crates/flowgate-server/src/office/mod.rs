//! What the API, the deliveries and the schedules share: the only way in for messages, their log, and stored data.
//!
//! Reading order:
//!
//! - [`desk`] takes messages in. [`posting`] makes them tasks, and [`traced`] puts them in a trace.
//! - [`journal`] writes the log, in the form that [`note`] owns. [`service_times`] reads from it how long
//!   deliveries take.
//! - [`secrets`] has tokens and signing keys. [`trouble`] says when the store is away.
//! - [`queues`], [`groups`] and [`schedules`] are documents; [`shelved`] lists them, and [`cron`] says when a
//!   schedule is due.
//! - [`recent`] remembers keys that were used a moment ago.
//! - [`runs`] are runs of workflows.
//! - [`cancelled`] sees to what was cancelled while it was under way.
//! - [`scoped`] is the store as one namespace sees it; all others see the store through it.

mod cancelled;
mod cron;
mod desk;
mod groups;
mod journal;
mod note;
mod posting;
mod queues;
mod recent;
mod runs;
mod schedules;
mod scoped;
mod secrets;
mod service_times;
mod shelved;
mod traced;
mod trouble;

pub(crate) use cancelled::was_stopped;
pub(crate) use cron::Cron;
pub(crate) use desk::{
    Accepted, Desk, MOST_OF_A_BODY, MOST_OF_A_REQUEST, Refused, Sending, numbers, task_named,
};
pub(crate) use groups::{Endpoint, Group};
pub(crate) use journal::{Journal, Tally};
pub(crate) use note::{Answered, Entry, Stage};
pub(crate) use posting::{once, queue_key};
pub(crate) use queues::{Queue, QueueRest, RestOf};
pub(crate) use recent::Recent;
pub(crate) use runs::{
    CHORE, Errand, FULL, Failing, Gather, InRun, Notified, Overrides, Planned, RunFilter, RunRefused, Telling,
};
pub(crate) use schedules::{Schedule, TICK, Tick};
pub(crate) use scoped::NOBODY;
pub(crate) use secrets::{DEV_TOKEN, Secrets, is_same, kept_as, random_text};
pub(crate) use service_times::Recorded;
pub(crate) use trouble::{store_failed, store_is_written_again};
