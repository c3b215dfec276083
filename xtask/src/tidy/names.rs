//! Names say what a thing owns: no drawers for odds and ends, and no `get_`.

use crate::offence::Offence;
use crate::read::{Source, Tree};

const RULE: &str = "names";
const DRAWERS: [&str; 7] = ["utils", "util", "common", "helpers", "helper", "types", "misc"];

pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    tree.sources().iter().flat_map(|source| path(source).into_iter().chain(words(source))).collect()
}

fn path(source: &Source) -> Option<Offence> {
    let parts = source.path().trim_end_matches(".rs").split('/');
    let drawer = parts.into_iter().find(|part| DRAWERS.contains(part))?;
    Some(Offence::new(source.path(), 1, RULE, after_what_it_owns(drawer)))
}

fn words(source: &Source) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (keyword, name) in source.tokens().iter().zip(source.tokens().iter().skip(1)) {
        let advice = match (keyword.text.as_str(), name.text.strip_prefix("get_")) {
            ("mod", _) if DRAWERS.contains(&name.text.as_str()) => after_what_it_owns(&name.text),
            ("fn", Some(rest)) => format!("call `{}` `{rest}`: no `get_`", name.text),
            _ => continue,
        };
        offences.push(Offence::new(source.path(), name.line, RULE, advice));
    }
    offences
}

fn after_what_it_owns(drawer: &str) -> String {
    format!("`{drawer}` says nothing: name it after the one thing it owns")
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::offence::lines;
    use crate::read::Tree;

    #[test]
    fn honest_names_are_fine() {
        let text = "mod line;\nfn get() {}\nfn target_get_x() {}\n// fn get_x\nlet helper = 1;";
        assert!(check(&Tree::of([("src/gate/typestate.rs", text)])).is_empty());
    }

    #[test]
    fn drawers_are_not() {
        for path in ["src/utils.rs", "src/common/line.rs", "tests/helpers/mod.rs"] {
            assert_eq!(check(&Tree::of([(path, "")])).len(), 1, "{path}");
        }
        assert_eq!(check(&Tree::of([("a.rs", "mod misc {\n}")])).len(), 1);
    }

    #[test]
    fn a_getter_is_not() {
        let tree = Tree::of([("a.rs", "\nfn get_max() {}")]);
        assert_eq!(lines(&check(&tree)), ["a.rs:2: names: call `get_max` `max`: no `get_`"]);
    }
}
