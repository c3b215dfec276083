//! The key that an entrant comes with.
//!
//! Owns its two forms: text, or a [`Key`] that was made before, which is shared and not made again.

use flowgate_core::Key;

/// Handed on by reference: it is three words, and nearly always only one is looked at.
#[derive(Debug)]
pub(crate) enum Name<'a> {
    Text(&'a str),
    Key(&'a Key),
}

impl Name<'_> {
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Name::Text(text) => text.as_bytes(),
            Name::Key(key) => key.as_bytes(),
        }
    }

    #[inline]
    pub(crate) fn to_key(&self) -> Key {
        match self {
            Name::Text(text) => Key::new(text),
            Name::Key(key) => Key::clone(key),
        }
    }

    /// Writes it where it is to stay, which is cheaper than to move it there.
    #[inline(always)]
    pub(crate) fn write_to(&self, place: &mut Key) {
        match self {
            Name::Text(text) => place.set(text),
            Name::Key(key) => place.clone_from(key),
        }
    }
}
