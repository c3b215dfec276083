//! Steps over attributes, `#[..]` and `#![..]`, whatever stands inside them.

use super::lexer::Token;

/// The first token at or after `at` that is not part of an attribute.
pub(crate) fn after_attributes(tokens: &[Token], mut at: usize) -> usize {
    while let Some(end) = attribute_end(tokens, at) {
        at = end;
    }
    at
}

/// If an attribute begins at `at`, the place just behind its `]`.
pub(super) fn attribute_end(tokens: &[Token], at: usize) -> Option<usize> {
    let text = |at: usize| tokens.get(at).map(|token| token.text.as_str());
    if text(at)? != "#" {
        return None;
    }
    let open = if text(at + 1)? == "!" { at + 2 } else { at + 1 };
    if text(open)? != "[" {
        return None;
    }
    let mut depth = 0_usize;
    for (offset, token) in tokens[open..].iter().enumerate() {
        match token.text.as_str() {
            "[" => depth += 1,
            "]" if depth == 1 => return Some(open + offset + 1),
            "]" => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::lexer::tokens;
    use super::after_attributes;

    #[test]
    fn all_attributes_before_an_item_are_stepped_over() {
        let tokens = tokens("#![a] #[b(c[0], \"]\")] mod d;");
        assert_eq!(tokens[after_attributes(&tokens, 0)].text, "mod");
    }

    #[test]
    fn what_is_no_attribute_stays() {
        for text in ["mod d;", "# d", "#[never_closed", ""] {
            assert_eq!(after_attributes(&tokens(text), 0), 0, "{text}");
        }
    }
}
