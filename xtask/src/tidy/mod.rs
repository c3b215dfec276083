//! Tidy: the house rules that a program can hold, each in a file of its own.
//!
//! A rule is a function from the tree to its offences. It never changes a file, and it says what to do.

mod all;

mod arrows;
mod clock;
mod dependencies;
mod doors;
mod error_pages;
mod exceptions;
mod laws;
mod leftovers;
mod lines;
mod links;
mod locks;
mod machine;
mod module_docs;
mod names;
mod sizes;

pub(crate) use all::tidy;
