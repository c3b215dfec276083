//! The list of what may be too large, in `xtask/tidy-exceptions.txt`. It only shrinks.

use super::sizes::Measured;
use crate::offence::Offence;

const RULE: &str = "exceptions";
/// An entry may be this much larger than it must be, so that not every edit touches the list.
const SLACK: usize = 10;

/// Where the list lies.
pub(super) const LIST: &str = "xtask/tidy-exceptions.txt";

/// The entries of the list.
pub(super) struct Exceptions(Vec<Exception>);

struct Exception {
    place: String,
    rule: String,
    allowed: usize,
    line: usize,
}

impl Exception {
    fn is_for(&self, thing: &Measured) -> bool {
        self.place == thing.place() && self.rule == thing.rule
    }
}

impl Exceptions {
    /// Reads the list; a line that cannot be read is an offence.
    pub(super) fn read(text: &str) -> (Self, Vec<Offence>) {
        let mut entries = Vec::new();
        let mut offences = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let words: Vec<&str> = text.split_whitespace().collect();
            let number = words.get(2).and_then(|word| word.parse().ok());
            match (words.as_slice(), number) {
                ([], _) => {}
                ([first, ..], _) if first.starts_with('#') => {}
                ([place, rule, _], Some(allowed)) => {
                    let (place, rule) = ((*place).to_owned(), (*rule).to_owned());
                    entries.push(Exception { place, rule, allowed, line });
                }
                _ => {
                    let advice = format!("`{text}` cannot be read: write `path rule size`");
                    offences.push(Offence::new(LIST, line, RULE, advice));
                }
            }
        }
        (Self(entries), offences)
    }

    /// Whether an entry lets this thing be as large as it is.
    pub(super) fn allow(&self, thing: &Measured) -> bool {
        self.0.iter().any(|entry| entry.is_for(thing) && thing.size <= entry.allowed)
    }

    /// The entries that are no longer needed, or larger than they must be.
    pub(super) fn judge(&self, too_large: &[Measured]) -> Vec<Offence> {
        let offence = |entry: &Exception| {
            let things = too_large.iter().filter(|thing| entry.is_for(thing));
            let advice = match things.map(|thing| thing.size).max() {
                None => "obeys by now, or is gone: remove it".to_owned(),
                Some(size) if entry.allowed > size + SLACK => format!("lower it to {size}"),
                Some(_) => return None,
            };
            Some(Offence::new(LIST, entry.line, RULE, format!("`{} {}` {advice}", entry.place, entry.rule)))
        };
        self.0.iter().filter_map(offence).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Exceptions, Measured};
    use crate::offence::lines;

    fn large(size: usize) -> Measured {
        Measured { path: "a.rs".to_owned(), function: None, line: 1, rule: "file-size", limit: 400, size }
    }

    #[test]
    fn an_entry_that_fits_is_fine() {
        let (list, offences) = Exceptions::read("# why\n\na.rs file-size 450\n");
        assert!(offences.is_empty());
        assert!(list.allow(&large(450)) && !list.allow(&large(451)));
        assert!(list.judge(&[large(440)]).is_empty());
    }

    #[test]
    fn an_entry_that_could_shrink_must() {
        let (list, _) = Exceptions::read("a.rs file-size 450\n");
        let lower = "xtask/tidy-exceptions.txt:1: exceptions: `a.rs file-size` lower it to 439";
        assert_eq!(lines(&list.judge(&[large(439)])), [lower]);
        let remove =
            "xtask/tidy-exceptions.txt:1: exceptions: `a.rs file-size` obeys by now, or is gone: remove it";
        assert_eq!(lines(&list.judge(&[])), [remove]);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_reported() {
        for text in ["a.rs file-size", "a.rs file-size many", "a.rs file-size 1 2"] {
            assert_eq!(Exceptions::read(text).1.len(), 1, "{text}");
        }
    }
}
