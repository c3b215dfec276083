//! Reading: the tree of files and just enough of Rust, TOML and Markdown for the rules to ask about.
//!
//! Nothing here judges. What is right or wrong is said in `tidy` and `snippets`.

mod attribute;
mod function;
mod lexer;
mod manifest;
mod markdown;
mod source;
mod tree;

pub(crate) use attribute::after_attributes;
pub(crate) use function::Function;
pub(crate) use lexer::Token;
pub(crate) use manifest::{Dependency, Kind, Manifest};
pub(crate) use markdown::{Block, blocks, links};
pub(crate) use source::Source;
pub(crate) use tree::{Tree, resolve};
