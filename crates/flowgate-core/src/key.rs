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

/// The text that names a lane. Cheap to clone.
#[derive(Clone)]
pub struct Key(Text);

#[derive(Clone)]
enum Text {
    Short { len: u8, bytes: [u8; SHORT] },
    Long(Arc<str>),
}

impl Key {
    /// A key of this text.
    #[inline]
    pub fn new(text: &str) -> Self {
        if text.len() <= SHORT {
            Key(Text::Short { len: text.len() as u8, bytes: short(text.as_bytes()) })
        } else {
            Key(Text::Long(Arc::from(text)))
        }
    }

    /// The bytes of the text; what keys are compared by.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Text::Short { len, bytes } => &bytes[..usize::from(*len)],
            Text::Long(text) => text.as_bytes(),
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Text::Short { .. } => std::str::from_utf8(self.as_bytes()).expect("a key is made from text only"),
            Text::Long(text) => text,
        }
    }
}

/// A short text with zeros behind it: by two copies of a fixed length, which may overlap, for a call of `memcpy` would take as long
/// as all the rest of an entry's key.
#[inline]
fn short(text: &[u8]) -> [u8; SHORT] {
    let mut bytes = [0; SHORT];
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
    bytes
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
        // Seen to fail: with SHORT off by one, the 22- or 23-byte text panics or is cut.
        for len in 0..=64 {
            let text = "ä".repeat(len / 2) + &"x".repeat(len % 2);
            let key = Key::new(&text);
            assert_eq!(key.as_str(), text);
            assert_eq!(key, key.clone());
        }
        assert_ne!(Key::new(""), Key::new("\0"), "the empty key is a key of its own");
        assert_eq!(std::mem::size_of::<Option<Key>>(), 24);
    }
}
