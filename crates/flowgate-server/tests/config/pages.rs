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

/// The words of a line of shell, as far as the docs need one: quotes, and nothing behind a comment.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for character in line.chars() {
        match (character, quote) {
            (_, Some(open)) if character == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            ('#', None) if word.is_none() => break,
            (' ', None) => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

/// The arguments of each call of the program in a line of shell or of a systemd unit.
fn calls(line: &str) -> Vec<Vec<String>> {
    let line = line.strip_prefix("ExecStart=").unwrap_or(line);
    let line =
        line.replace("cargo run --release -- ", "flowgate ").replace("$(", " $( ").replace("sudo ", "");
    let words = words(&line);
    let ends = |word: &String| matches!(&**word, "|" | "&&" | "&" | ";" | "$(" | "do" | "<" | ">");
    let parts = words.split(ends).map(|part| part.iter().skip_while(|word| word.contains('=')));
    let parts = parts.map(|part| part.cloned().collect::<Vec<_>>());
    let ours =
        parts.filter(|part| part.first().is_some_and(|name| name.rsplit('/').next() == Some("flowgate")));
    ours.map(|part| part[1..].to_vec()).collect()
}

#[test]
fn every_command_that_the_docs_show_is_one() {
    // Seen to fail: with `--paralellism` in the guide to the server, and with `flowgate keys unpause` in it.
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let (mut found, folder) = (vec![PathBuf::from(format!("{root}/README.md"))], Folder::new("commands"));
    pages(&Path::new(root).join("docs"), &mut found);
    let mut checked = 0;
    for page in found {
        let text = fs::read_to_string(&page).expect("a page");
        let blocks = ["```sh\n", "```ini\n"].into_iter().flat_map(|fence| text.split(fence).skip(1));
        let lines = blocks.flat_map(|block| block.split("```").next().expect("a block").lines());
        for mut call in lines.flat_map(calls) {
            // It is parsed up to here, and then tells of itself instead of doing it.
            let end = call.iter().position(|word| word == "--").unwrap_or(call.len());
            call.insert(end, "--help".to_owned());
            let ran = folder.flowgate(&call.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
            assert_eq!(ran.code, Some(0), "{}: {call:?}: {}", page.display(), ran.stderr);
            checked += 1;
        }
    }
    assert!(checked >= 40, "{checked} commands");
}

#[test]
fn every_metric_that_the_guides_name_is_one() {
    // Seen to fail: with `flowgate_queue_deads` in the guide to metrics.
    let guides = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide");
    let reference = fs::read_to_string(format!("{FOLDER}/metrics.md")).expect("there is such a page");
    let mut checked = 0;
    for page in ["metrics", "production"] {
        let text = fs::read_to_string(format!("{guides}/{page}.md")).expect("there is such a page");
        let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
        let names = text.split(|character| !is_word(character)).filter(|word| word.starts_with("flowgate_"));
        for name in names.filter(|name| *name != "flowgate_shared") {
            assert!(reference.contains(&format!("| `{name}` |")), "{page}: {name}");
            checked += 1;
        }
    }
    assert!(checked >= 10, "{checked} names");
}
