//! The config file through the real binary: what is accepted, what is told instead, and who goes before whom.

mod bad;
mod check;
mod order;
mod pages;
mod program;
