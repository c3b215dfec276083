//! The reference pages that are committed are those that the program prints.

use std::fs;

use crate::program::Folder;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference");

#[test]
fn the_reference_pages_are_not_stale() {
    // Seen to fail: with any word of an option changed and `cargo xtask docs` not run.
    let folder = Folder::new("reference");
    for page in ["config", "metrics", "commands", "api"] {
        let ran = folder.flowgate(&["reference", page], &[]);
        let committed = fs::read_to_string(format!("{FOLDER}/{page}.md")).expect("there is such a page");
        assert!(ran.stdout == committed, "docs/reference/{page}.md is stale: run `cargo xtask docs`");
    }
}
