//! What `cargo xtask` is asked to do: the words of the command line become a [`Command`] once.

use std::fmt;

/// The names of the commands, in the order of the help.
pub(crate) const NAMES: [&str; 7] = ["tidy", "snippets", "docs", "loom", "soak", "bench", "help"];

/// What `cargo xtask help` prints.
pub(crate) const HELP: &str = "\
Chores of the Flowgate workspace.

Usage: cargo xtask <command>

  tidy                Check the house rules that a program can hold: dependency
                      arrows, module docs, sizes, laws without a test and more.
                      One line per offence: `path:line: rule: what to do`.
  snippets            Check that every Rust block of the README and the docs is
                      run as a doc test, and that shell blocks name commands
                      which exist.
  docs                Write the pages that are made from the code:
                      docs/reference. A test fails while one is stale.
  loom [option]...    Model-check the slot and line code under loom. Options go
                      to `cargo test`. LOOM_MAX_PREEMPTIONS is 3 unless set:
                      more finds more, and takes much longer.
  soak [time]         Kill servers and their database again and again for so
                      long (10m unless said) while messages come, and see that
                      every promise holds. Tests do it for a few seconds.
  bench <suite> [option]...
                      Measure ours beside the peers and print a table of ratios;
                      with `--json`, one line per case. Start with `gates`.
  help                Print this.

`cargo test -p xtask` runs tidy and snippets too.

Exit status: 0 all well, 1 offences found, 2 command line not understood;
docs, loom, soak and bench end with the status of what they ran.
";

/// A command line that was understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Tidy,
    Snippets,
    Docs,
    /// Further options for `cargo test`.
    Loom(Vec<String>),
    /// For how long.
    Soak(Option<String>),
    /// The suite and its options.
    Bench(Vec<String>),
    Help,
}

/// A command line that was not.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum UsageError {
    NoCommand,
    UnknownCommand(String),
    NoSuite,
    Unexpected { command: String, argument: String },
}

impl Command {
    /// Reads the words behind `cargo xtask`.
    pub(crate) fn parse(words: &[String]) -> Result<Self, UsageError> {
        let Some((name, rest)) = words.split_first() else { return Err(UsageError::NoCommand) };
        let wants_help = matches!(rest.first().map(String::as_str), Some("-h" | "--help"));
        if wants_help && NAMES.contains(&name.as_str()) {
            return Ok(Self::Help);
        }
        let command = match name.as_str() {
            "tidy" => Self::Tidy,
            "snippets" => Self::Snippets,
            "docs" => Self::Docs,
            "loom" => return Ok(Self::Loom(rest.to_vec())),
            "soak" => match rest.get(1) {
                None => return Ok(Self::Soak(rest.first().cloned())),
                Some(argument) => {
                    let (command, argument) = (name.clone(), argument.clone());
                    return Err(UsageError::Unexpected { command, argument });
                }
            },
            "bench" if rest.is_empty() => return Err(UsageError::NoSuite),
            "bench" => return Ok(Self::Bench(rest.to_vec())),
            "help" | "-h" | "--help" => Self::Help,
            _ => return Err(UsageError::UnknownCommand(name.clone())),
        };
        match rest.first() {
            None => Ok(command),
            Some(argument) => {
                Err(UsageError::Unexpected { command: name.clone(), argument: argument.clone() })
            }
        }
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCommand => write!(to, "no command given: {} are accepted", names()),
            Self::UnknownCommand(name) => write!(to, "unknown command `{name}`: {} are accepted", names()),
            Self::NoSuite => write!(to, "`bench` wants a suite: `cargo xtask bench gates`"),
            Self::Unexpected { command, argument } => {
                let takes = if command == "soak" { "one time, such as `30m`" } else { "no arguments" };
                write!(to, "`{command}` takes {takes}, but got `{argument}`")
            }
        }
    }
}

/// The names of the commands, as a phrase.
pub(crate) fn names() -> String {
    format!("`{}`", NAMES.join("`, `"))
}

#[cfg(test)]
mod tests {
    use super::{Command, HELP, NAMES, UsageError};

    fn parse(line: &str) -> Result<Command, UsageError> {
        Command::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn each_command_is_understood() {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(parse("tidy"), Ok(Command::Tidy));
        assert_eq!(parse("snippets"), Ok(Command::Snippets));
        assert_eq!(parse("docs"), Ok(Command::Docs));
        assert_eq!(parse("loom --locked"), Ok(Command::Loom(words("--locked"))));
        assert_eq!(parse("soak"), Ok(Command::Soak(None)));
        assert_eq!(parse("soak 30m"), Ok(Command::Soak(Some("30m".to_owned()))));
        assert_eq!(parse("bench gates --json"), Ok(Command::Bench(words("gates --json"))));
        assert_eq!(parse("bench gates --help"), Ok(Command::Bench(words("gates --help"))));
        for line in ["help", "--help", "-h", "tidy --help", "bench -h"] {
            assert_eq!(parse(line), Ok(Command::Help), "{line}");
        }
    }

    #[test]
    fn a_mistake_names_the_value_and_what_is_accepted() {
        let all = "`tidy`, `snippets`, `docs`, `loom`, `soak`, `bench`, `help` are accepted";
        for (line, message) in [
            ("", format!("no command given: {all}")),
            ("tody", format!("unknown command `tody`: {all}")),
            ("tody --help", format!("unknown command `tody`: {all}")),
            ("bench", "`bench` wants a suite: `cargo xtask bench gates`".to_owned()),
            ("soak 1m 2m", "`soak` takes one time, such as `30m`, but got `2m`".to_owned()),
            ("tidy now", "`tidy` takes no arguments, but got `now`".to_owned()),
        ] {
            assert_eq!(parse(line).expect_err("the line is wrong").to_string(), message);
        }
    }

    #[test]
    fn the_help_tells_of_every_command_in_eighty_columns() {
        for name in NAMES {
            assert!(HELP.contains(&format!("\n  {name} ")), "{name}");
        }
        assert!(HELP.lines().all(|line| line.len() <= 80));
    }
}
