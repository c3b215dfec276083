//! `flowgate config-reference` and `metrics-reference`: the reference pages, for `cargo xtask docs`.

use std::io::{self, Write};

use super::failure::Failure;
use crate::{config::reference, metrics};

/// Prints the page.
pub(crate) fn config_reference() -> Result<(), Failure> {
    io::stdout().write_all(reference().as_bytes()).map_err(Failure::Write)
}

/// Prints the page of the metrics.
pub(crate) fn metrics_reference() -> Result<(), Failure> {
    io::stdout().write_all(metrics::reference().as_bytes()).map_err(Failure::Write)
}
