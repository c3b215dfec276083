//! Finds functions: where their docs begin and where their body ends.

use super::lexer::Token;

/// A function with a body. Lines are counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// The first line of its comments and attributes.
    pub(crate) head: usize,
    /// The line of the `fn`.
    pub(crate) first: usize,
    /// The line of the closing brace.
    pub(crate) last: usize,
    /// Whether an attribute such as `#[test]` or `#[tokio::test]` makes it a test.
    pub(crate) is_test: bool,
}

/// The functions of a file. Signatures without a body and `fn(..)` types are left out.
pub(super) fn functions(text: &str, tokens: &[Token]) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let mut functions = Vec::new();
    for (at, (keyword, name)) in tokens.iter().zip(tokens.iter().skip(1)).enumerate() {
        let is_name = name.text.starts_with(|first: char| first == '_' || first.is_alphabetic());
        if keyword.text != "fn" || !is_name {
            continue;
        }
        let Some(end) = item_end(tokens, at).filter(|&end| tokens[end].text == "}") else { continue };
        let head = head(&lines, keyword.line);
        let attributes = tokens[..at]
            .iter()
            .rev()
            .take_while(|token| token.line >= head && !matches!(token.text.as_str(), "{" | "}" | ";"));
        functions.push(Function {
            name: name.text.clone(),
            head,
            first: keyword.line,
            last: tokens[end].line,
            is_test: attributes.into_iter().any(|token| token.text == "test"),
        });
    }
    functions
}

/// The last token of the item that begins at `from`: its closing brace, or its semicolon.
pub(super) fn item_end(tokens: &[Token], from: usize) -> Option<usize> {
    let mut round_or_square = 0_usize;
    let mut curly = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(from) {
        match token.text.as_str() {
            "(" | "[" => round_or_square += 1,
            ")" | "]" => round_or_square = round_or_square.saturating_sub(1),
            "{" => curly += 1,
            "}" if curly <= 1 => return Some(at),
            "}" => curly -= 1,
            ";" if curly == 0 && round_or_square == 0 => return Some(at),
            _ => {}
        }
    }
    None
}

/// Walks up from the `fn` over comments, attributes and the lines an attribute is spread over.
fn head(lines: &[&str], first: usize) -> usize {
    let belongs = |line: &&str| {
        let line = line.trim();
        line.starts_with("//") || !(line.is_empty() || line.ends_with(['{', '}', ';']))
    };
    first - lines[..first - 1].iter().rev().take_while(|line| belongs(line)).count()
}

#[cfg(test)]
mod tests {
    use super::super::Source;

    #[test]
    fn docs_attributes_and_body_belong_to_a_function() {
        let text = "\
use a::b;

/// Says; what.
#[tokio::test(
    flavor = \"x\"
)]
async fn one() -> [u8; 2] {
    if x { y(); }
}
fn two() {}
";
        let functions = Source::new("a.rs", text).functions();
        let spans: Vec<_> = functions.iter().map(|f| (f.name.as_str(), f.head, f.first, f.last)).collect();
        assert_eq!(spans, [("one", 3, 7, 9), ("two", 10, 10, 10)]);
        assert!(functions[0].is_test && !functions[1].is_test);
    }

    #[test]
    fn signatures_and_function_types_are_no_functions() {
        let source = Source::new("a.rs", "trait A { fn a(&self); }\ntype B = fn(u8);");
        assert!(source.functions().is_empty());
    }

    #[test]
    fn functions_in_a_macro_are_found() {
        let text = "proptest! {\n    #[test]\n    fn g1_law(a in 0..9u8) {\n    }\n}";
        let functions = Source::new("a.rs", text).functions();
        assert_eq!((functions[0].name.as_str(), functions[0].is_test), ("g1_law", true));
    }
}
