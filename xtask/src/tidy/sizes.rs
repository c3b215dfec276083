//! Files and functions stay small enough to read. Blank lines and comments are free.

use super::exceptions::{self, Exceptions};
use crate::offence::Offence;
use crate::read::{Source, Tree};

const FILE: (&str, usize) = ("file-size", 400);
const TEST: (&str, usize) = ("test-size", 700);
const FUNCTION: (&str, usize) = ("function-size", 70);

/// A thing with a size.
pub(super) struct Measured {
    pub(super) path: String,
    /// The name of the function, where it is one.
    pub(super) function: Option<String>,
    pub(super) line: usize,
    pub(super) rule: &'static str,
    pub(super) limit: usize,
    pub(super) size: usize,
}

impl Measured {
    /// How the list of exceptions names it: `path`, or `path#function`.
    pub(super) fn place(&self) -> String {
        match &self.function {
            Some(function) => format!("{}#{function}", self.path),
            None => self.path.clone(),
        }
    }
}

pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    let too_large: Vec<_> =
        tree.sources().iter().flat_map(measure).filter(|thing| thing.size > thing.limit).collect();
    let (exceptions, mut offences) = Exceptions::read(tree.text(exceptions::LIST).unwrap_or_default());
    offences.extend(exceptions.judge(&too_large));
    for thing in too_large.iter().filter(|thing| !exceptions.allow(thing)) {
        let what = thing.function.as_ref().map_or("the file".to_owned(), |name| format!("`{name}`"));
        let Measured { size, limit, .. } = thing;
        let advice = format!("{what} has {size} lines of code, {limit} may be: split it");
        offences.push(Offence::new(&thing.path, thing.line, thing.rule, advice));
    }
    offences
}

fn measure(source: &Source) -> Vec<Measured> {
    let thing = |(rule, limit), function, line, size| Measured {
        path: source.path().to_owned(),
        function,
        line,
        rule,
        limit,
        size,
    };
    let (code, test) = source.size();
    let mut things = vec![thing(FILE, None, 1, code), thing(TEST, None, 1, test)];
    things.extend(source.functions().into_iter().map(|function| {
        let size = source.code_lines(function.first..=function.last);
        thing(FUNCTION, Some(function.name), function.first, size)
    }));
    things
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::offence::lines;
    use crate::read::Tree;
    use crate::tidy::exceptions::LIST;

    fn function(lines: usize) -> String {
        format!("fn a() {{\n{}}}\n", "    b();\n".repeat(lines - 2))
    }

    fn file(lines: usize) -> String {
        "const A: u8 = 1;\n".repeat(lines)
    }

    #[test]
    fn what_is_small_enough_is_fine() {
        let comments = format!("{}{}", file(400), "// why\n\n".repeat(100));
        let with_tests = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", file(400), file(697));
        let tree = Tree::of([
            ("a.rs", &comments),
            ("b.rs", &with_tests),
            ("tests/c.rs", &file(700)),
            ("d.rs", &function(70)),
        ]);
        assert_eq!(lines(&check(&tree)), [""; 0]);
    }

    #[test]
    fn what_is_too_large_is_not() {
        let with_tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", file(698));
        let tree = Tree::of([("a.rs", &file(401)), ("b.rs", &with_tests), ("d.rs", &function(71))]);
        assert_eq!(
            lines(&check(&tree)),
            [
                "a.rs:1: file-size: the file has 401 lines of code, 400 may be: split it",
                "b.rs:1: test-size: the file has 701 lines of code, 700 may be: split it",
                "d.rs:1: function-size: `a` has 71 lines of code, 70 may be: split it",
            ]
        );
    }

    #[test]
    fn an_exception_holds_up_to_its_size() {
        let list = "a.rs file-size 450\nd.rs#a function-size 80\n";
        let tree = |size| Tree::of([(LIST, list), ("a.rs", &file(size)), ("d.rs", &function(80))]);
        assert_eq!(lines(&check(&tree(450))), [""; 0]);
        assert_eq!(lines(&check(&tree(451))).len(), 1);
    }
}
