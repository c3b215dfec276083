//! This program as one of the servers on the stage: `flowgate-bench play <role> <port>`.
//!
//! Owns the words for it. A server in a process of its own is counted and scheduled apart from the load.

use std::{process::ExitCode, time::Duration};

use super::{
    fragile,
    hello::{self, Layered},
    upstream,
};

/// The word that stands where a suite would.
pub(crate) const PLAY: &str = "play";

/// What to be, and on which port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cast {
    role: Role,
    port: u16,
}

/// What to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Answers at once.
    Upstream,
    /// Takes so long for each request, and longer if asked too much at once.
    Fragile { service: Duration },
    /// axum's hello.
    Hello(Layered),
}

impl Role {
    pub(super) fn word(self) -> &'static str {
        match self {
            Role::Upstream => "upstream",
            Role::Fragile { .. } => "fragile",
            Role::Hello(Layered::Plain) => "hello",
            Role::Hello(Layered::Empty) => "layered-hello",
            Role::Hello(Layered::Headers) => "headed-hello",
            Role::Hello(Layered::Limit) => "limited-hello",
            Role::Hello(Layered::Silent) => "silent-hello",
            Role::Hello(Layered::Around) => "surrounded-hello",
        }
    }

    /// The words that cast this role.
    pub(super) fn words(self, port: u16) -> Vec<String> {
        let mut words = vec![PLAY.to_owned(), self.word().to_owned(), port.to_string()];
        if let Role::Fragile { service } = self {
            words.push(service.as_micros().to_string());
        }
        words
    }
}

impl Cast {
    /// Reads the words behind [`PLAY`].
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let role = match *words {
            ["upstream", _] => Role::Upstream,
            ["fragile", _, micros] => Role::Fragile { service: Duration::from_micros(micros.parse().ok()?) },
            ["hello", _] => Role::Hello(Layered::Plain),
            ["layered-hello", _] => Role::Hello(Layered::Empty),
            ["headed-hello", _] => Role::Hello(Layered::Headers),
            ["limited-hello", _] => Role::Hello(Layered::Limit),
            ["silent-hello", _] => Role::Hello(Layered::Silent),
            ["surrounded-hello", _] => Role::Hello(Layered::Around),
            _ => return None,
        };
        Some(Cast { role, port: words.get(1)?.parse().ok()? })
    }

    /// Serves until it is ended.
    pub(crate) fn play(self) -> ExitCode {
        let ended = match self.role {
            Role::Upstream => upstream::serve(self.port),
            Role::Fragile { service } => fragile::serve(self.port, service),
            Role::Hello(layered) => hello::serve(self.port, layered),
        };
        if let Err(error) = ended {
            eprintln!("error: {error}");
        }
        ExitCode::FAILURE
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Cast, Layered, Role};

    #[test]
    fn a_role_is_read_as_it_is_written() {
        let fragile = Role::Fragile { service: Duration::from_micros(6_600) };
        for role in [
            Role::Upstream,
            fragile,
            Role::Hello(Layered::Plain),
            Role::Hello(Layered::Empty),
            Role::Hello(Layered::Headers),
            Role::Hello(Layered::Limit),
            Role::Hello(Layered::Silent),
            Role::Hello(Layered::Around),
        ] {
            let words = role.words(4_000);
            let words: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
            assert_eq!(Cast::parse(&words), Some(Cast { role, port: 4_000 }));
        }
        for words in [&["hello"][..], &["hello", "x"], &["fragile", "1"], &["villain", "1"]] {
            assert_eq!(Cast::parse(words), None);
        }
    }
}
