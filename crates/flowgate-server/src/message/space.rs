//! Namespaces: whose names a name is among.
//!
//! Owns how a name is written in a store that several namespaces share: plain in the one of tokens without a namespace, behind
//! `@<namespace>/` in all others. No name of the API begins with `@`, so none is taken for another's.

use std::{
    borrow::Cow,
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};

use super::{Fault, name};

const MARK: char = '@';
/// The longest name of a namespace, in bytes: a key behind it is still a key of the store.
const MOST: usize = 64;
/// More are not kept at hand.
const MOST_KNOWN: usize = 1000;

/// A namespace. The default is that of tokens which name none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Space(String);

impl Space {
    /// The namespace of this name.
    pub(crate) fn read(text: &str) -> Result<Self, Fault> {
        match name("the namespace", text) {
            Ok(text) if text.len() <= MOST => Ok(Space(text.to_owned())),
            _ => {
                let accepted = format!("1 to {MOST} letters, digits, hyphens, underscores or periods");
                Err(Fault::new("the namespace", text, &accepted))
            }
        }
    }

    /// Whether it is the one without a name.
    pub(crate) fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// What the head of a stored message of it begins with; of the one without a name, what all others' begin with.
    pub(crate) fn stamp(&self) -> Vec<u8> {
        let end = if self.is_root() { "" } else { "\"" };
        format!("{{\"space\":\"{}{end}", self.0).into_bytes()
    }

    /// A name of this namespace, as the store has it.
    pub(crate) fn put(&self, name: String) -> String {
        if self.is_root() && !name.starts_with(MARK) { name } else { format!("{MARK}{}/{name}", self.0) }
    }

    /// The same for a name that is only looked up.
    pub(crate) fn named<'a>(&self, name: &'a str) -> Cow<'a, str> {
        if self.is_root() && !name.starts_with(MARK) {
            Cow::Borrowed(name)
        } else {
            Cow::Owned(self.put(name.to_owned()))
        }
    }

    /// A name of the store, if it is one of this namespace, as that calls it.
    pub(crate) fn take(&self, stored: &str) -> Option<String> {
        match stored.strip_prefix(MARK) {
            None => self.is_root().then(|| stored.to_owned()),
            Some(rest) => rest.strip_prefix(&self.0)?.strip_prefix('/').map(str::to_owned),
        }
    }

    /// From where on its names are listed, if those up to `after` are known.
    pub(crate) fn list_from(&self, after: String) -> String {
        if self.is_root() { after } else { self.put(after) }
    }

    /// From where a list goes on that has come to this name of the store; `None`: there is nothing more of this namespace.
    pub(crate) fn list_on(&self, stored: &str) -> Option<String> {
        if self.is_root() {
            // All others stand together: one step leads over them.
            return Some(if stored.starts_with(MARK) { over() } else { stored.to_owned() });
        }
        (stored < self.end().as_str()).then(|| stored.to_owned())
    }

    /// The same for a list from the last name to the first.
    pub(crate) fn list_back(&self, stored: &str) -> Option<String> {
        if self.is_root() {
            return Some(if stored.starts_with(MARK) { MARK.to_string() } else { stored.to_owned() });
        }
        (stored > self.put(String::new()).as_str()).then(|| stored.to_owned())
    }

    /// What the names of all namespaces begin with that have a name.
    pub(crate) fn all_named() -> String {
        MARK.to_string()
    }

    /// Behind all of its names.
    pub(crate) fn end(&self) -> String {
        // What follows a slash.
        format!("{MARK}{}0", self.0)
    }
}

/// Behind all names that begin with the mark.
fn over() -> String {
    format!("{MARK}{}", char::MAX)
}

/// What is kept at hand for each namespace that was asked for, up to a bound.
pub(crate) struct Spaces<T>(Mutex<HashMap<Space, T>>);

impl<T> Default for Spaces<T> {
    fn default() -> Self {
        Spaces(Mutex::default())
    }
}

impl<T: Clone> Spaces<T> {
    /// That of this namespace, which is made if it is not at hand.
    pub(crate) fn of(&self, space: &Space, make: impl FnOnce() -> T) -> T {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(space) {
            return found.clone();
        }
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.entry(space.clone()).or_insert(make()).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_its_own_namespaces_and_no_others() {
        let spaces = ["", "a", "ab", "a.b", "A-1"].map(|name| match name {
            "" => Space::default(),
            name => Space::read(name).expect("a namespace"),
        });
        let names = ["key", "a", "queue/x", "@a/key", "@ab/key", "@/key", "id/1/", ""];
        for space in &spaces {
            for name in names {
                let stored = space.put(name.to_owned());
                for other in &spaces {
                    let taken = other.take(&stored);
                    let wanted = (other == space).then(|| name.to_owned());
                    // The empty name is nobody's in a list, and the same for all without a name.
                    assert_eq!(taken, wanted, "{name:?} of {space:?}, seen from {other:?}");
                }
            }
        }
        assert!(Space::read("").is_err() && Space::read("a/b").is_err() && Space::read("@a").is_err());
        assert!(Space::read(&"x".repeat(64)).is_ok() && Space::read(&"x".repeat(65)).is_err());
    }

    #[test]
    fn what_is_at_hand_is_bounded() {
        let spaces = Spaces::default();
        for number in 0..3 * MOST_KNOWN {
            spaces.of(&Space(number.to_string()), || number);
        }
        assert!(spaces.0.lock().expect("nobody panics").len() <= MOST_KNOWN);
        assert_eq!(spaces.of(&Space("7".to_owned()), || 1), 1);
        assert_eq!(spaces.of(&Space("7".to_owned()), || 2), 1, "what is at hand is not made again");
    }
}
