//! Pages that are made from the code, so that they cannot drift from it.
//!
//! The code prints them; here they are put where they belong.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitStatus;

use crate::cargo;

/// The pages of docs/reference, as the program names them.
const PAGES: [&str; 4] = ["config", "metrics", "commands", "api"];

/// Writes every page, unless what prints it fails; then the page stays as it is.
pub(crate) fn write(root: &Path) -> io::Result<ExitStatus> {
    let mut status = ExitStatus::default();
    for name in PAGES {
        let page = format!("docs/reference/{name}.md");
        let printed = cargo::printed(root, name)?;
        status = printed.status;
        if !status.success() {
            break;
        }
        fs::write(root.join(&page), printed.stdout)?;
        println!("{page}: written");
    }
    Ok(status)
}
