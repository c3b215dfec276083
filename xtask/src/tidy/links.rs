//! A link to a file of this repository leads somewhere.

use crate::offence::Offence;
use crate::read::{Tree, links, resolve};

pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (path, text) in tree.markdown() {
        for (line, target) in links(text) {
            let file = target.split('#').next().unwrap_or_default();
            let is_elsewhere = file.contains(':');
            let leads = || resolve(path, file).is_some_and(|file| tree.holds(&file));
            if !file.is_empty() && !is_elsewhere && !leads() {
                let advice = format!("`{target}` leads nowhere: mend the link or add the file");
                offences.push(Offence::new(path, line, "links", advice));
            }
        }
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::offence::lines;
    use crate::read::Tree;

    #[test]
    fn links_that_lead_somewhere_are_fine() {
        let text = "[a](../README.md#top) [b](#here) [c](https://a.b/c) [d](mailto:a@b.c) [e](../docs/)";
        assert!(check(&Tree::of([("docs/a.md", text), ("README.md", "")])).is_empty());
    }

    #[test]
    fn links_that_lead_nowhere_are_not() {
        let tree = Tree::of([("docs/a.md", "\n[a](b.md) [c](../../out.md)")]);
        assert_eq!(
            lines(&check(&tree)),
            [
                "docs/a.md:2: links: `b.md` leads nowhere: mend the link or add the file",
                "docs/a.md:2: links: `../../out.md` leads nowhere: mend the link or add the file",
            ]
        );
    }
}
