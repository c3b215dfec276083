//! Keys: the text that partitions a gate.
//!
//! Owns how a key is kept: short ones (up to 22 bytes, nearly all in practice) in place, so that putting a lane into
//! a map costs no allocation; longer ones shared. It never interprets the text: the empty key is a key.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

const SHORT: usize = 22;

/// The name of a lane. Cheap to clone.
pub struct Key(Text);

enum Text {
    Short { len: u8, bytes: [u8; SHORT] },
    Long(Arc<str>),
}

impl Key {
    /// The empty key.
    pub const EMPTY: Key = Key(Text::Short { len: 0, bytes: [0; SHORT] });

    /// Creates a key of this text.
    #[inline]
    pub fn new(text: &str) -> Self {
        let mut key = Key::EMPTY;
        key.set(text);
        key
    }

    /// Becomes the key of this text, in place: a short one that was written a moment ago takes as long to move as to write,
    /// for the processor has to wait until all its parts have arrived.
    #[inline]
    pub fn set(&mut self, text: &str) {
        match &mut self.0 {
            Text::Short { len, bytes } if text.len() <= SHORT => {
                *len = text.len() as u8;
                write_short(bytes, text.as_bytes());
            }
            _ => self.replace(text),
        }
    }

    #[inline(never)]
    fn replace(&mut self, text: &str) {
        *self = if text.len() <= SHORT { Key::new(text) } else { Key(Text::Long(Arc::from(text))) };
    }

    /// Returns the bytes of the text, by which keys are compared.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Text::Short { len, bytes } => &bytes[..usize::from(*len)],
            Text::Long(text) => text.as_bytes(),
        }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Text::Short { .. } => std::str::from_utf8(self.as_bytes()).expect("a key is made from text only"),
            Text::Long(text) => text,
        }
    }
}

/// By two copies of a fixed length, which may overlap, for a call of `memcpy` would take as long as all the rest of an entry's
/// key. What stood behind stays: nobody looks there.
#[inline]
fn write_short(bytes: &mut [u8; SHORT], text: &[u8]) {
    if let (Some(first), Some(last)) = (text.first_chunk::<16>(), text.last_chunk::<16>()) {
        bytes[..16].copy_from_slice(first);
        bytes[text.len() - 16..text.len()].copy_from_slice(last);
    } else if let (Some(first), Some(last)) = (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        bytes[..8].copy_from_slice(first);
        bytes[text.len() - 8..text.len()].copy_from_slice(last);
    } else if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        bytes[..4].copy_from_slice(first);
        bytes[text.len() - 4..text.len()].copy_from_slice(last);
    } else {
        bytes.iter_mut().zip(text).for_each(|(byte, of)| *byte = *of);
    }
}

impl Key {
    #[inline(never)]
    fn become_like(&mut self, source: &Self) {
        *self = source.clone();
    }
}

impl Clone for Key {
    #[inline]
    fn clone(&self) -> Self {
        Key(match &self.0 {
            Text::Short { len, bytes } => Text::Short { len: *len, bytes: *bytes },
            Text::Long(text) => Text::Long(Arc::clone(text)),
        })
    }

    #[inline]
    fn clone_from(&mut self, source: &Self) {
        match (&mut self.0, &source.0) {
            (Text::Short { len, bytes }, Text::Short { len: new_len, bytes: new_bytes }) => {
                *len = *new_len;
                *bytes = *new_bytes;
            }
            _ => self.become_like(source),
        }
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Key::new(text)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g6_keys_of_every_length_keep_their_text() {
        // Seen to fail: with SHORT off by one, the 22- or 23-byte text panics or is cut; with a length that
        // `clone_from` leaves as it was, what was there before shows.
        for len in 0..=64 {
            let text = "ä".repeat(len / 2) + &"x".repeat(len % 2);
            let key = Key::new(&text);
            assert_eq!(key.as_str(), text);
            assert_eq!(key, key.clone());
            // Whatever stood there before.
            for before in ["", "a short one", "longer than what is kept in place"] {
                let (mut set, mut cloned) = (Key::new(before), Key::new(before));
                set.set(&text);
                cloned.clone_from(&key);
                assert_eq!([set.as_str(), cloned.as_str()], [&*text; 2], "{before:?} was there before");
            }
        }
        assert_ne!(Key::new(""), Key::new("\0"), "the empty key is a key of its own");
        assert_eq!(std::mem::size_of::<Option<Key>>(), 24);
    }
}
