//! Gates of a fleet beside the usual recipes, on the same stores: one file for each group of cases.
//!
//! [`recipe`] has the recipes, each behind the same two steps as ours; [`member`] is a process of a fleet; [`stage`]
//! has the stores.

pub(crate) mod crowd;
pub(crate) mod flat;
pub(crate) mod member;
mod recipe;
pub(crate) mod single;
pub(crate) mod stage;
pub(crate) mod throng;
pub(crate) mod trips;
