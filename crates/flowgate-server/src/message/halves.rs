//! Halves of letters: what JSON can say and text cannot have, one `\u` of a pair. JavaScript leaves them where it cuts an
//! emoji in two, and sends them.

use serde::de::{DeserializeOwned, Error as _};

/// What JSON says; where nothing can be made of halves of letters, without them. What is kept as it is written keeps them, if
/// the rest can be read.
pub(crate) fn from_json<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    let whole = |error| without_halves(json).map_or(Err(error), |json| serde_json::from_slice(&json));
    serde_json::from_slice(json).or_else(whole)
}

/// The same of an object: the fields of one in a list are none.
pub(crate) fn from_json_object<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    match json.trim_ascii_start().first() {
        Some(b'{') => from_json(json),
        _ => Err(serde_json::Error::custom("expected an object")),
    }
}

/// The same JSON with the sign for an unknown letter in their places, as other readers have it; `None`, if there is none.
fn without_halves(json: &[u8]) -> Option<Vec<u8>> {
    let mut whole: Option<Vec<u8>> = None;
    let mut at = 0;
    while at < json.len() {
        at += match (json[at], unit(json, at), unit(json, at + 6)) {
            (b'\\', Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => 12,
            (b'\\', Some(0xd800..0xe000), _) => {
                whole.get_or_insert_with(|| json.to_vec())[at + 2..at + 6].copy_from_slice(b"fffd");
                6
            }
            // With what it escapes, which may be a sign like itself.
            (b'\\', ..) => 2,
            _ => 1,
        };
    }
    whole
}

/// The number in an escape that begins there.
fn unit(json: &[u8], at: usize) -> Option<u16> {
    let digits = json.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_half_of_a_letter_is_told_from_a_whole_one_and_from_its_spelling() {
        // Seen to fail: with each escape looked at by itself; with what a sign escapes looked at again.
        for (json, whole) in [
            (r#""a\ud83db""#, Some(r#""a\ufffdb""#)),
            (r#""\uDE00""#, Some(r#""\ufffd""#)),
            (r#""\ud83d\ud83d\ude00\n""#, Some(r#""\ufffd\ud83d\ude00\n""#)),
            (r#""\ud83d\ude00""#, None),
            (r#""\\ud83d""#, None),
            (r#""\\\ud83d""#, Some(r#""\\\ufffd""#)),
            (r#""\ud8""#, None),
            ("\"\u{1f600}\"", None),
        ] {
            let found = without_halves(json.as_bytes()).map(|found| String::from_utf8(found).expect("text"));
            assert_eq!(found.as_deref(), whole, "{json}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_left_alone_that_is_whole(text in "\\PC{0,20}|(\\\\|u|d8|00|\"){0,20}") {
            let json = serde_json::to_vec(&text).expect("text is JSON");
            prop_assert_eq!(without_halves(&json), None);
        }
    }
}
