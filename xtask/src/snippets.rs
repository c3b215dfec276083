//! Snippets: what the README and the docs show is compiled, run, or at least there.
//!
//! Rust blocks are run as doc tests by a `snippets.rs` of the crate they show; here we see to it that no page
//! is forgotten, and that shell blocks name commands which exist.

use std::collections::BTreeSet;

use crate::command;
use crate::offence::Offence;
use crate::read::{Block, Source, Tree, blocks, resolve};

const RULE: &str = "snippets";
/// The files that include each page as a doc test. A page is included by the crate that can do what it shows.
const DOC_TESTS: [&str; 2] = ["crates/flowgate/src/snippets.rs", "crates/flowgate-tasks/src/snippets.rs"];

/// Every block that nobody proves, in order of place.
pub(crate) fn check(tree: &Tree) -> Vec<Offence> {
    let doc_tests = tree.sources().iter().filter(|source| DOC_TESTS.contains(&source.path()));
    let included: BTreeSet<String> = doc_tests.flat_map(included_pages).collect();
    let mut offences = Vec::new();
    for (path, text) in tree.markdown() {
        let is_docs = path == "README.md" || path.starts_with("docs/");
        for block in blocks(text) {
            match block.words().next() {
                Some("rust") if is_docs => {
                    offences.extend(rust(path, &block, included.contains(path)));
                }
                Some("sh" | "bash" | "shell" | "console") => offences.extend(shell(tree, path, &block)),
                _ => {}
            }
        }
    }
    offences
}

/// The Markdown files that `snippets.rs` names, as paths from the root.
fn included_pages(source: &Source) -> BTreeSet<String> {
    let literals = source.tokens().iter().map(|token| token.text.trim_matches('"'));
    literals.filter(|text| text.ends_with(".md")).filter_map(|text| resolve(source.path(), text)).collect()
}

fn rust(path: &str, block: &Block<'_>, is_included: bool) -> Option<Offence> {
    let advice = if let Some(word) = block.words().find(|word| matches!(*word, "ignore" | "no_run")) {
        format!("`{word}`: a Rust block is compiled and run; make it whole, or call it `text`")
    } else if is_included {
        return None;
    } else {
        format!("nobody compiles this: include {path} in {}", DOC_TESTS[0])
    };
    Some(Offence::new(path, block.line, RULE, advice))
}

fn shell(tree: &Tree, path: &str, block: &Block<'_>) -> Vec<Offence> {
    let offence = |&(number, line): &(usize, &str)| {
        let line = line.trim_start().trim_start_matches("$ ");
        let words: Vec<&str> = line.split_whitespace().collect();
        let advice = match words.as_slice() {
            ["cargo", "xtask", name, ..] if !command::NAMES.contains(name) => {
                format!("`cargo xtask {name}` does not exist: {} do", command::names())
            }
            [script, ..] if script.starts_with("./") && !tree.holds(&script[2..]) => {
                format!("`{script}` does not exist")
            }
            _ => return None,
        };
        Some(Offence::new(path, number, RULE, advice))
    };
    block.lines.iter().filter_map(offence).collect()
}

#[cfg(test)]
mod tests {
    use super::{DOC_TESTS, check};
    use crate::offence::lines;
    use crate::read::Tree;
    use crate::root;

    const INCLUDES: (&str, &str) = (
        DOC_TESTS[0],
        "#[doc = include_str!(\"../../../README.md\")]\n#[doc = include_str!(\"../../../docs/a.md\")]\nmod a {}",
    );

    #[test]
    fn every_snippet_of_the_house_is_proven() {
        let tree = Tree::load(&root()).expect("the workspace can be read");
        let offences = lines(&check(&tree));
        assert!(offences.is_empty(), "\n\n{}\n\n", offences.join("\n"));
    }

    #[test]
    fn included_pages_and_true_commands_are_fine() {
        let readme = "```rust\na();\n```\n```sh\n./test --quick\n$ cargo xtask bench gates\ncargo run\n```\n";
        let page = "```rust,should_panic\na();\n```\n```toml\na = 1\n```\n```text\n./no\n```\n";
        let tree = Tree::of([INCLUDES, ("README.md", readme), ("docs/a.md", page), ("test", "")]);
        assert_eq!(lines(&check(&tree)), [""; 0]);
    }

    #[test]
    fn a_page_that_is_not_included_is_reported() {
        let tree = Tree::of([INCLUDES, ("docs/b/a.md", "text\n\n```rust\na();\n```\n")]);
        assert_eq!(
            lines(&check(&tree)),
            [
                "docs/b/a.md:3: snippets: nobody compiles this: include docs/b/a.md in crates/flowgate/src/snippets.rs"
            ]
        );
    }

    #[test]
    fn a_block_that_is_not_run_is_reported() {
        for info in ["rust,ignore", "rust no_run"] {
            let page = format!("```{info}\na();\n```\n");
            assert_eq!(check(&Tree::of([INCLUDES, ("README.md", &page)])).len(), 1, "{info}");
        }
    }

    #[test]
    fn a_command_that_does_not_exist_is_reported() {
        for line in ["cargo xtask tidyy", "$ cargo xtask bnech gates", "./tset"] {
            let page = format!("```console\n{line}\n```\n");
            assert_eq!(check(&Tree::of([("CONTRIBUTING.md", &page)])).len(), 1, "{line}");
        }
    }
}
