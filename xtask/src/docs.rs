//! Pages that are made from the code, so that they cannot drift from it.
//!
//! The code prints them; here they are put where they belong.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitStatus;

use crate::cargo;

/// Each page, and the command of the program that prints it.
const PAGES: [(&str, &str); 2] =
    [("docs/reference/config.md", "config-reference"), ("docs/reference/metrics.md", "metrics-reference")];

/// Writes every page, unless what prints it fails; then the page stays as it is.
pub(crate) fn write(root: &Path) -> io::Result<ExitStatus> {
    let mut status = ExitStatus::default();
    for (page, command) in PAGES {
        let printed = cargo::printed(root, command)?;
        status = printed.status;
        if !status.success() {
            break;
        }
        fs::write(root.join(page), printed.stdout)?;
        println!("{page}: written");
    }
    Ok(status)
}
