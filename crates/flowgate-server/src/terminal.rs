//! What is said on the terminal, and how what others wrote is said there.
//!
//! A name, a body or an error is somebody else's, and a terminal obeys what is in it: cursors move, titles change, text runs
//! backwards. So whatever a command prints goes through here.

use std::{
    io::{self, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use serde_json::Value;

/// Says it, if anybody reads it: a closed pipe is no reason to stop serving.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// An address that a client on this machine can use.
pub(crate) fn reached_at(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// A text on one line, with a mark in place of each character that a terminal would obey.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|character| if is_obeyed(character) { MARK } else { character }).collect()
}

/// The same for a text of several lines.
pub(crate) fn plain_lines(text: &str) -> String {
    let kept = |character| matches!(character, '\n' | '\t') || !is_obeyed(character);
    text.chars().map(|character| if kept(character) { character } else { MARK }).collect()
}

/// JSON for people and programs, with its line end. What a terminal would obey is escaped, so it means the same.
pub(crate) fn json(value: &Value) -> String {
    let mut told = String::new();
    for character in format!("{value:#}\n").chars() {
        // JSON has the rest of those escaped already, and line ends only between its words.
        match character {
            '\n' => told.push(character),
            _ if is_obeyed(character) => told += &format!("\\u{:04x}", character as u32),
            _ => told.push(character),
        }
    }
    told
}

const MARK: char = '\u{fffd}';

/// Controls, and what turns the direction of text or ends a line. All of them are below U+10000.
fn is_obeyed(character: char) -> bool {
    let turns = matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    character.is_control() || turns
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn s3_what_a_terminal_would_obey_is_shown_and_not_obeyed() {
        // Seen to fail: with the controls of ASCII alone, `\u{9b}` begins a command as `\u{1b}[` does.
        let evil = "a\u{1b}]0;b\u{7}\u{9b}2J\u{202e}c\r\nd\te \u{7f}é 日本";
        let mark = '\u{fffd}';
        assert_eq!(plain(evil), format!("a{mark}]0;b{mark}{mark}2J{mark}c{mark}{mark}d{mark}e {mark}é 日本"));
        assert_eq!(plain_lines(evil), format!("a{mark}]0;b{mark}{mark}2J{mark}c{mark}\nd\te {mark}é 日本"));
        let value = json!({ "key": evil });
        let told = super::json(&value);
        assert!(!told.trim_end().replace('\n', "").contains(is_obeyed), "{told:?}");
        assert_eq!(serde_json::from_str::<Value>(&told).expect("it is JSON"), value);
    }
}
