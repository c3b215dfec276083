//! The few words of a JSON document that say why a request was refused.
//!
//! Owns finding them: the members `code` and `reason` of the document, and `code` of its member `error`. Everything else is
//! stepped over, and nothing is kept of it. A document that is not JSON says nothing.

use std::{borrow::Cow, str};

/// Deeper than this nothing is read: no refusal is, and whoever sent it may mean ill.
const DEEPEST: u32 = 64;

/// What a document says of a refusal.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Words<'a> {
    pub(super) code: Option<Cow<'a, str>>,
    pub(super) reason: Option<Cow<'a, str>>,
    /// The code in the member `error`.
    pub(super) error_code: Option<Cow<'a, str>>,
}

/// The words of a document; `None` if it is not a JSON object.
pub(super) fn words(document: &[u8]) -> Option<Words<'_>> {
    let mut reader = Reader { text: str::from_utf8(document).ok()?, depth: 0 };
    let mut words = Words::default();
    reader.object(|reader, name| {
        match name {
            "code" => words.code = reader.text_or_other()?,
            "reason" => words.reason = reader.text_or_other()?,
            "error" if reader.peek() == Some(b'{') => {
                words.error_code = None;
                reader.object(|reader, name| {
                    match name {
                        "code" => words.error_code = reader.text_or_other()?,
                        _ => reader.value()?,
                    }
                    Some(())
                })?;
            }
            "error" => {
                words.error_code = None;
                reader.value()?;
            }
            _ => reader.value()?,
        }
        Some(())
    })?;
    reader.peek().is_none().then_some(words)
}

/// Reads one value after the other; `None` from any of its methods ends it.
struct Reader<'a> {
    /// What is not read yet.
    text: &'a str,
    depth: u32,
}

impl<'a> Reader<'a> {
    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        self.text = self.text.trim_start_matches([' ', '\t', '\n', '\r']);
        self.text.bytes().next()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.text = &self.text[1..])
    }

    /// An object; `member` is told each name, and reads the value.
    fn object(&mut self, mut member: impl FnMut(&mut Self, &str) -> Option<()>) -> Option<()> {
        self.list(b'{', b'}', |reader| {
            let name = reader.string()?;
            reader.expect(b':')?;
            member(reader, &name)
        })
    }

    fn list(&mut self, open: u8, close: u8, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.expect(open)?;
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        if self.peek()? != close {
            item(self)?;
            while self.peek()? == b',' {
                self.expect(b',')?;
                item(self)?;
            }
        }
        self.depth -= 1;
        self.expect(close)
    }

    /// Steps over a value.
    fn value(&mut self) -> Option<()> {
        match self.peek()? {
            b'{' => self.object(|reader, _| reader.value()),
            b'[' => self.list(b'[', b']', Self::value),
            b'"' => self.string().map(drop),
            _ => self.word(),
        }
    }

    /// The text of a value that is one; `Some(None)` for any other.
    fn text_or_other(&mut self) -> Option<Option<Cow<'a, str>>> {
        if self.peek()? == b'"' { self.string().map(Some) } else { self.value().map(|()| None) }
    }

    /// A number or a name. What number it is does not matter here, nor whether it is well written.
    fn word(&mut self) -> Option<()> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
        let end = self.text.bytes().position(|byte| !is_part(byte)).unwrap_or(self.text.len());
        let (word, rest) = self.text.split_at(end);
        self.text = rest;
        let is_number = word.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        (is_number || matches!(word, "true" | "false" | "null")).then_some(())
    }

    fn string(&mut self) -> Option<Cow<'a, str>> {
        self.expect(b'"')?;
        let mut text = Cow::Borrowed("");
        loop {
            let end = self.text.bytes().position(|byte| matches!(byte, b'"' | b'\\' | ..b' '))?;
            let (plain, rest) = self.text.split_at(end);
            // Borrowed as long as nothing is escaped.
            text = if text.is_empty() { Cow::Borrowed(plain) } else { text + plain };
            self.text = &rest[1..];
            match rest.as_bytes()[0] {
                b'"' => return Some(text),
                b'\\' => text.to_mut().push(self.escaped()?),
                _ => return None,
            }
        }
    }

    fn escaped(&mut self) -> Option<char> {
        let mut characters = self.text.chars();
        let character = match characters.next()? {
            plain @ ('"' | '\\' | '/') => plain,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                self.text = characters.as_str();
                return self.unicode();
            }
            _ => return None,
        };
        self.text = characters.as_str();
        Some(character)
    }

    /// Four digits; or twice four, for a character that takes two.
    fn unicode(&mut self) -> Option<char> {
        let first = self.four_digits()?;
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first);
        }
        self.text = self.text.strip_prefix("\\u")?;
        let second = self.four_digits()?.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
        char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + second)
    }

    fn four_digits(&mut self) -> Option<u32> {
        let (digits, rest) = self.text.split_at_checked(4)?;
        self.text = rest;
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn found(document: &str) -> Option<[Option<String>; 3]> {
        let words = words(document.as_bytes())?;
        Some([words.code, words.reason, words.error_code].map(|word| word.map(Cow::into_owned)))
    }

    #[test]
    fn the_words_are_found_where_they_belong_and_nowhere_else() {
        // Seen to fail: with escaped characters left out, `RC` is `C`.
        const NOTHING: [Option<String>; 3] = [const { None }; 3];
        let word = |text: &str| Some(text.to_owned());
        for (document, expected) in [
            (r#"{"code":"RC5026","reason":"busy"}"#, [word("RC5026"), word("busy"), None]),
            (r#" { "status" : 503 , "code" : "RC5013" } "#, [word("RC5013"), None, None]),
            (
                r#"{"status":"error","error":{"title":"x","code":"A.B","log_url":null}}"#,
                [None, None, word("A.B")],
            ),
            (r#"{"error":{"inner":{"code":"X"}},"list":[{"code":"Y"}, "code", "Z"]}"#, NOTHING),
            (r#"{"text":"\"code\":\"X\"","code":5}"#, NOTHING),
            (r#"{"code":"\u0052C\u002f\ud83d\ude00\n"}"#, [word("RC/😀\n"), None, None]),
            (r#"{"c\u006fde":"first","code":"last"}"#, [word("last"), None, None]),
            (r#"{"error":{"code":"X"},"error":"none"}"#, NOTHING),
            ("{}", NOTHING),
        ] {
            assert_eq!(found(document), Some(expected), "{document}");
        }
    }

    #[test]
    fn what_is_not_a_json_object_says_nothing() {
        // Seen to fail: with what follows the object ignored, `{"code":"X"}}` says something.
        let deep = format!(r#"{{"a":{}{},"code":"X"}}"#, "[".repeat(70), "]".repeat(70));
        for document in [
            "",
            "null",
            r#""code""#,
            r#"[{"code":"X"}]"#,
            r#"{"code":"X""#,
            r#"{"code":"X"}}"#,
            r#"{"code":"X"} true"#,
            r#"{"code":"X",}"#,
            r#"{code:"X"}"#,
            r#"{"code":"X","a":nil}"#,
            r#"{"code":"\x"}"#,
            r#"{"code":"\ud83d"}"#,
            r#"{"code":"\u+123"}"#,
            "{\"code\":\"X\ny\"}",
            &deep,
        ] {
            assert_eq!(found(document), None, "{document}");
        }
        assert_eq!(words(b"{\"code\":\"\xff\"}"), None);
    }

    fn value() -> impl Strategy<Value = Value> {
        let name = || prop_oneof![Just("code"), Just("reason"), Just("error"), Just("other")];
        let leaf = prop_oneof![
            any::<Option<bool>>().prop_map(|value| value.map_or(Value::Null, Value::from)),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((name(), inner), 0..4).prop_map(|members| {
                    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Value>()
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_reads_what_a_whole_parser_reads(value in value(), is_pretty: bool) {
            // Seen to fail: without lists, a document with one says nothing.
            let text = if is_pretty { format!("{value:#}") } else { value.to_string() };
            let word = |value: Option<&Value>| Some(value?.as_str()?.to_owned());
            let error_code = value.get("error").and_then(|error| error.get("code"));
            let expected = [word(value.get("code")), word(value.get("reason")), word(error_code)];
            prop_assert_eq!(found(&text), value.is_object().then_some(expected));
        }

        #[test]
        fn a_document_that_is_cut_off_anywhere_says_nothing(value in value(), at: prop::sample::Index) {
            // Seen to fail: with the end of a string taken for granted, it panics.
            let text = format!(r#"{{"error":{value},"code":"\u0052C\n\ud83d\ude00"}}"#);
            let cut = text.char_indices().map(|(at, _)| at).collect::<Vec<_>>();
            prop_assert_eq!(found(&text[..*at.get(&cut)]), None);
        }
    }
}
