//! Reads code blocks and links out of Markdown.
//!
//! Knows fenced blocks, inline links and link definitions; nothing else of Markdown.

/// A fenced code block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block<'text> {
    /// What stands behind the opening fence: `rust,no_run`.
    pub(crate) info: &'text str,
    /// The line of the opening fence, counted from 1.
    pub(crate) line: usize,
    /// The lines inside, each with its number.
    pub(crate) lines: Vec<(usize, &'text str)>,
}

impl Block<'_> {
    /// The words behind the fence: the language first, then its options.
    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        self.info.split([',', ' ']).filter(|word| !word.is_empty())
    }
}

/// The fenced blocks of a page, in order.
pub(crate) fn blocks(text: &str) -> Vec<Block<'_>> {
    split(text).0
}

/// The targets of the links of a page with their lines, code left out.
pub(crate) fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in split(text).1 {
        let line = without_code(line);
        let definition = line.trim_start().strip_prefix('[').and_then(|line| line.split_once("]: "));
        let inline = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in inline.chain(definition.map(|(_, target)| target)) {
            // Behind a blank comes the title.
            let target = target.split_whitespace().next().unwrap_or_default();
            links.push((number, target.trim_matches(['<', '>']).to_owned()));
        }
    }
    links
}

/// A line and its number.
type Numbered<'text> = (usize, &'text str);

/// The blocks of a page, and the lines outside of them.
fn split(text: &str) -> (Vec<Block<'_>>, Vec<Numbered<'_>>) {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut outside = Vec::new();
    let mut open: Option<&str> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let fence = fence(line);
        match (open, fence, blocks.last_mut()) {
            (None, Some(fence), _) => {
                open = Some(fence);
                let info = line.trim_start()[fence.len()..].trim();
                blocks.push(Block { info, line: number, lines: Vec::new() });
            }
            (None, None, _) | (Some(_), _, None) => outside.push((number, line)),
            (Some(opening), Some(fence), _) if fence.starts_with(opening) => open = None,
            (Some(_), _, Some(block)) => block.lines.push((number, line)),
        }
    }
    (blocks, outside)
}

/// The run of three or more backticks or tildes that a line begins with.
fn fence(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let mark = line.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let run = &line[..line.len() - line.trim_start_matches(mark).len()];
    (run.len() >= 3).then_some(run)
}

/// The line with what stands between backticks taken out.
fn without_code(line: &str) -> String {
    let mut plain = String::new();
    let mut rest = line;
    while let Some(start) = rest.find('`') {
        let (before, code) = rest.split_at(start);
        plain.push_str(before);
        let inside = code.trim_start_matches('`');
        let ticks = &code[..code.len() - inside.len()];
        rest = inside.split_once(ticks).map_or(inside, |(_, after)| after);
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::{blocks, links};

    #[test]
    fn blocks_are_found_with_their_words_and_lines() {
        let text = "a\n```rust,no_run\nlet a;\n```\n````text\n```\n````\n";
        let blocks = blocks(text);
        assert_eq!(blocks.len(), 2);
        assert_eq!(blocks[0].words().collect::<Vec<_>>(), ["rust", "no_run"]);
        assert_eq!((blocks[0].line, &blocks[0].lines[..]), (2, &[(3, "let a;")][..]));
        assert_eq!(blocks[1].lines, [(6, "```")]);
    }

    #[test]
    fn links_are_found_outside_of_code() {
        let text = "[a](b.md) and [c](d.md#e \"title\") `[x](y)`\n\n[f]: <g.md>\n```\n[x](y)\n```\n";
        let links = links(text);
        let links: Vec<_> = links.iter().map(|(line, target)| (*line, target.as_str())).collect();
        assert_eq!(links, [(1, "b.md"), (1, "d.md#e"), (3, "g.md")]);
    }
}
