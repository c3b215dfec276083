//! Cuts Rust text into tokens, so that no rule ever trips over a comment or a string.
//!
//! A token is an identifier or number, one whole literal, or one character of punctuation. Comments
//! give no token. It never fails: text that is not Rust gives tokens that mean nothing.

/// One token and the lines it covers, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) line: usize,
    pub(crate) last_line: usize,
}

/// The tokens of `text`, in order.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        let length = piece(rest, first);
        let (taken, left) = rest.split_at(length);
        let last_line = line + taken.matches('\n').count();
        if !first.is_whitespace() && !is_comment(taken) {
            tokens.push(Token { text: taken.to_owned(), line, last_line });
        }
        line = last_line;
        rest = left;
    }
    tokens
}

fn is_comment(text: &str) -> bool {
    text.starts_with("//") || text.starts_with("/*")
}

/// The length in bytes of the piece that `rest` begins with.
fn piece(rest: &str, first: char) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment(rest);
    }
    match first {
        '"' => string(rest),
        '\'' => char_or_tick(rest),
        _ if is_word(first) => word(rest),
        _ => first.len_utf8(),
    }
}

fn is_word(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

/// Block comments nest.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (at, character) in rest.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `'x'` and `'\n'` are literals; the tick of a lifetime stands alone.
fn char_or_tick(rest: &str) -> usize {
    let mut characters = rest.char_indices().skip(1);
    match (characters.next(), characters.next()) {
        (Some((_, '\\')), Some((escaped, _))) => {
            let after = escaped + 1;
            rest.get(after..).and_then(|tail| tail.find('\'')).map_or(rest.len(), |end| after + end + 1)
        }
        (Some(_), Some((end, '\''))) => end + 1,
        _ => 1,
    }
}

/// An identifier or a number, or the raw string that begins with it.
fn word(rest: &str) -> usize {
    let length = rest.find(|character| !is_word(character)).unwrap_or(rest.len());
    let (name, tail) = rest.split_at(length);
    if matches!(name, "r" | "br" | "cr") {
        let hashes = tail.len() - tail.trim_start_matches('#').len();
        if tail[hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let body = length + hashes + 1;
            return rest[body..].find(&close).map_or(rest.len(), |end| body + end + close.len());
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use super::tokens;

    fn texts(text: &str) -> Vec<String> {
        tokens(text).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn words_and_punctuation_are_apart() {
        assert_eq!(texts("fn a(b: u8) {}"), ["fn", "a", "(", "b", ":", "u8", ")", "{", "}"]);
    }

    #[test]
    fn comments_give_nothing() {
        assert_eq!(texts("a // b \"\n/* c /* d */ e */ f"), ["a", "f"]);
        assert!(texts("/* never closed").is_empty());
    }

    #[test]
    fn a_literal_is_one_token() {
        assert_eq!(texts(r#"x("a \" { b")"#), ["x", "(", r#""a \" { b""#, ")"]);
        assert_eq!(texts(r###"r#"one " two"# z"###), [r###"r#"one " two"#"###, "z"]);
        assert_eq!(texts(r"'{' '\'' '\u{7d}' 'a"), ["'{'", r"'\''", r"'\u{7d}'", "'", "a"]);
        assert_eq!(texts("'é' '"), ["'é'", "'"]);
    }

    #[test]
    fn a_raw_identifier_is_no_raw_string() {
        assert_eq!(texts("r#type"), ["r", "#", "type"]);
    }

    #[test]
    fn lines_are_counted_through_comments_and_strings() {
        let lines: Vec<_> =
            tokens("a\n/*\n*/ b \"\n\n\" c").iter().map(|token| (token.line, token.last_line)).collect();
        assert_eq!(lines, [(1, 1), (3, 3), (3, 5), (5, 5)]);
    }
}
