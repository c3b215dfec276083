//! The reference pages that are committed are those that the program prints.

use std::{
    fs,
    path::{Path, PathBuf},
};

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

/// The pages below this folder.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of docs") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

#[test]
fn every_configuration_that_the_docs_show_is_one() {
    // Seen to fail: with `max_queue` of the page about HAProxy written `max_queues`.
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let (mut found, mut checked) = (Vec::new(), 0);
    pages(Path::new(docs), &mut found);
    for page in found {
        let text = fs::read_to_string(&page).expect("a page");
        for block in text.split("```toml\n").skip(1) {
            let block = block.split("```").next().expect("a block");
            // A manifest of cargo is not a configuration.
            if block.contains("[dependencies]") {
                continue;
            }
            let ran = Folder::new("shown").write("flowgate.toml", block).flowgate(&["check"], &[]);
            assert_eq!(ran.code, Some(0), "{}: {}\n{block}", page.display(), ran.stderr);
            checked += 1;
        }
    }
    assert!(checked >= 5, "{checked} blocks");
}
