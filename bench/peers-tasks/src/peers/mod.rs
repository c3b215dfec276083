//! The peers and ours, each in a file of its own, and which name means which.

mod apalis;
mod flowgate;
mod graphile;
mod horsies;
mod roll;

pub(crate) use roll::run;
