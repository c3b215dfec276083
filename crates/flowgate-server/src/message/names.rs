//! Names: of queues, URL groups, schedules, labels and keys.

use super::Fault;

/// The longest name, in bytes.
const MOST: usize = 256;

/// The name, if it is one.
pub(crate) fn name<'a>(field: &str, text: &'a str) -> Result<&'a str, Fault> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if text.is_empty() || text.len() > MOST || !text.bytes().all(is_plain) {
        let accepted = "1 to 256 letters, digits, hyphens, underscores or periods";
        return Err(Fault::new(field, text, accepted));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn a_name_is_plain_text() {
        for text in ["a", "user-onboarding", "A.b_c-9", &"x".repeat(256)] {
            assert_eq!(name("queue", text), Ok(text));
        }
        for text in ["", "a b", "a/b", "ä", "a\n", "queue/x", &"x".repeat(257)] {
            assert!(name("queue", text).is_err(), "{text:?}");
        }
    }
}
