//! Nothing is left half done: no stubs, no tests put to sleep, no sleeping tests, no bare `unwrap`.

use crate::offence::Offence;
use crate::read::{Source, Tree};

/// Where a piece of text must not stand.
#[derive(Clone, Copy)]
enum Where {
    Anywhere,
    InTests,
    OutsideOfTests,
}

// Some are written in two parts here: other tools that look for them read this file as well, and nothing in it is unfinished.
const LEFTOVERS: [(&str, Where, &str); 7] = [
    ("todo!", Where::Anywhere, "write it, or leave the whole thing out"),
    ("unimplemented!", Where::Anywhere, "write it, or leave the whole thing out"),
    (concat!("#[", "ignore"), Where::Anywhere, "a test runs or goes: mend it, or delete it"),
    ("thread::sleep", Where::InTests, "tests never sleep to wait: move a fake clock or wait for the event"),
    ("time::sleep", Where::InTests, "tests never sleep to wait: move a fake clock or wait for the event"),
    (".unwrap()", Where::OutsideOfTests, "use `?`, or `expect` with the invariant that makes it true"),
    (
        ".unwrap_err()",
        Where::OutsideOfTests,
        "use `?`, or `expect_err` with the invariant that makes it true",
    ),
];

pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for source in tree.sources() {
        for (needle, place, advice) in LEFTOVERS {
            let lines = source.lines_of(needle).into_iter().filter(|&line| counts(source, line, place));
            let advice = format!("`{needle}`: {advice}");
            offences
                .extend(lines.map(|line| Offence::new(source.path(), line, "leftovers", advice.as_str())));
        }
    }
    offences
}

fn counts(source: &Source, line: usize, place: Where) -> bool {
    match place {
        Where::Anywhere => true,
        Where::InTests => source.is_test(line),
        // A benchmark is a measurement, not a product: it may stop at the first surprise.
        Where::OutsideOfTests => !source.is_test(line) && !source.path().starts_with("bench/"),
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::read::Tree;

    fn count(path: &str, text: &str) -> usize {
        check(&Tree::of([(path, text)])).len()
    }

    #[test]
    fn finished_code_is_fine() {
        let text = "/// `x.unwrap()`\nfn a() { b.unwrap_or(1); thread::sleep(d); }\n#[cfg(test)]\nfn t() { c.unwrap(); }";
        assert_eq!(count("src/a.rs", text), 0);
        assert_eq!(count("tests/a.rs", "fn a() { b.unwrap(); }"), 0);
        assert_eq!(count("bench/src/a.rs", "fn a() { b.unwrap(); }"), 0);
    }

    #[test]
    fn leftovers_are_not() {
        for (path, text) in [
            ("src/a.rs", concat!("fn a() { to", "do!() }")),
            ("bench/src/a.rs", concat!("fn a() { un", "implemented!(\"later\") }")),
            ("tests/a.rs", concat!("#[test]\n#[", "ignore = \"slow\"]\nfn a() {}")),
            ("tests/a.rs", "fn a() { std::thread::sleep(d); }"),
            ("src/a.rs", "#[cfg(test)]\nmod tests { fn a() { tokio::time::sleep(d).await; } }"),
            ("src/a.rs", "fn a() { b\n    .unwrap(); }"),
        ] {
            assert_eq!(count(path, text), 1, "{text}");
        }
    }
}
