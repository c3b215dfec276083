//! The peers, each in a file of its own, and which name means which.
//!
//! Ours is one more: a file beside these with a type that has the trait [`Peer`](crate::peer::Peer), and a line in
//! [`run`](roll::run).

mod apalis;
mod graphile;
mod horsies;
mod roll;

pub(crate) use roll::run;
