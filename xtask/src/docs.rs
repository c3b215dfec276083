//! Pages that are made from the code, so that they cannot drift from it.
//!
//! The code prints them; here they are put where they belong.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitStatus;

use crate::cargo;

const CONFIG: &str = "docs/reference/config.md";

/// Writes every page, unless what prints it fails; then the page stays as it is.
pub(crate) fn write(root: &Path) -> io::Result<ExitStatus> {
    let printed = cargo::config_reference(root)?;
    if printed.status.success() {
        fs::write(root.join(CONFIG), printed.stdout)?;
        println!("{CONFIG}: written");
    }
    Ok(printed.status)
}
