//! The reference page that is committed is the one that the program prints.

use std::fs;

use crate::program::Folder;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/config.md");

#[test]
fn the_reference_page_is_not_stale() {
    // Seen to fail: with any word of an option changed and `cargo xtask docs` not run.
    let ran = Folder::new("reference").flowgate(&["config-reference"], &[]);
    let committed = fs::read_to_string(PAGE).expect("there is a reference page");
    assert!(ran.stdout == committed, "docs/reference/config.md is stale: run `cargo xtask docs`");
}
