//! `flowgate config-reference`: the reference page of the config file, for `cargo xtask docs`.

use std::io::{self, Write};

use super::failure::Failure;
use crate::config::reference;

/// Prints the page.
pub(crate) fn config_reference() -> Result<(), Failure> {
    io::stdout().write_all(reference().as_bytes()).map_err(Failure::Write)
}
