//! What the benchmarks are asked to do: the words of the command line become a [`Command`] once.

use std::fmt;

use crate::{
    gates::waiters::{LINE, Lined},
    http::role::{Cast, PLAY},
    shared::member::{MEMBER, Member},
};

/// What `--help` prints.
pub(crate) const HELP: &str = "\
Flowgate beside its peers, in one run.

Usage: cargo xtask bench <suite> [option]...

  gates          The gates of the process, in one process with their peers.
  http           The gateway and the layers beside nginx and HAProxy, over
                 loopback. Installs `nginx`, `haproxy` and `wrk` with apt-get
                 where they are missing.
  routes         Pipelines: what an exchange costs, without limits and with.
  tasks          Durable tasks beside other queues, on one PostgreSQL that it
                 starts for itself. Builds and installs the other queues first:
                 minutes, the first time. Installs `redis-server` with apt-get
                 where it is missing.
  shared         Gates of a fleet beside the usual recipes, on a Redis and a
                 PostgreSQL that it starts for itself.
  flow           The flow-control server: messages in, deliveries out, on SQLite
                 and on PostgreSQL, beside a bare client and beside BullMQ.
  workflow       Runs of workflows on the flow-control server, on SQLite and on
                 one PostgreSQL that it starts for itself.

  --json         One line of JSON for each case instead of the table.
  --only <text>  Only the cases whose name contains the text.
  --quick        Fewer and shorter rounds: to see that all of it runs.
  --write        Write docs/figures/<suite>.md even after --quick or --only.
  -h, --help     Print this.

A full run writes docs/figures/<suite>.md as well. A goal that does not hold is
told and fails nothing, and so is a case that could not be measured.

Exit status: 0 measured, 1 the figures could not be written, 2 command line not
understood.
";

/// A command line that was understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Run(SuiteName, Options),
    /// One of the servers that a suite starts in a process of its own; not for users, and not in the help.
    Play(Cast),
    /// A process of a fleet; the same.
    Member(Member),
    /// A long line before a gate; the same.
    Line(Lined),
    Help,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SuiteName {
    Gates,
    Http,
    Routes,
    Tasks,
    Shared,
    Flow,
    Workflow,
}

impl SuiteName {
    const ALL: [SuiteName; 7] = [
        SuiteName::Gates,
        SuiteName::Http,
        SuiteName::Routes,
        SuiteName::Tasks,
        SuiteName::Shared,
        SuiteName::Flow,
        SuiteName::Workflow,
    ];

    /// The word for it, on the command line and as the name of its figures.
    pub(crate) fn word(self) -> &'static str {
        match self {
            SuiteName::Gates => "gates",
            SuiteName::Http => "http",
            SuiteName::Routes => "routes",
            SuiteName::Tasks => "tasks",
            SuiteName::Shared => "shared",
            SuiteName::Flow => "flow",
            SuiteName::Workflow => "workflow",
        }
    }
}

/// How to run a suite.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) as_json: bool,
    pub(crate) is_quick: bool,
    pub(crate) is_written: bool,
    pub(crate) only: Option<String>,
}

/// A command line that was not.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum UsageError {
    NoSuite,
    UnknownSuite(String),
    UnknownRole,
    UnknownOption(String),
    OnlyWhat,
}

impl Command {
    /// Reads the words behind the program's name.
    pub(crate) fn parse(words: &[String]) -> Result<Self, UsageError> {
        let mut words = words.iter().map(String::as_str);
        let suite = match words.next() {
            None => return Err(UsageError::NoSuite),
            Some("-h" | "--help" | "help") => return Ok(Self::Help),
            Some(PLAY) => {
                let role = Cast::parse(&words.collect::<Vec<_>>());
                return role.map(Self::Play).ok_or(UsageError::UnknownRole);
            }
            Some(MEMBER) => {
                let member = Member::parse(&words.collect::<Vec<_>>());
                return member.map(Self::Member).ok_or(UsageError::UnknownRole);
            }
            Some(LINE) => {
                let line = Lined::parse(&words.collect::<Vec<_>>());
                return line.map(Self::Line).ok_or(UsageError::UnknownRole);
            }
            Some(word) => SuiteName::ALL
                .into_iter()
                .find(|suite| suite.word() == word)
                .ok_or_else(|| UsageError::UnknownSuite(word.to_owned()))?,
        };
        let mut options = Options::default();
        while let Some(word) = words.next() {
            match word {
                "-h" | "--help" => return Ok(Self::Help),
                "--json" => options.as_json = true,
                "--quick" => options.is_quick = true,
                "--write" => options.is_written = true,
                "--only" => {
                    let text = words.next().filter(|text| !text.is_empty() && !text.starts_with("--"));
                    options.only = Some(text.ok_or(UsageError::OnlyWhat)?.to_owned());
                }
                other => return Err(UsageError::UnknownOption(other.to_owned())),
            }
        }
        Ok(Self::Run(suite, options))
    }
}

impl Options {
    /// Whether the figures in the docs are replaced: by a whole run, or when asked for.
    pub(crate) fn writes(&self) -> bool {
        self.is_written || (!self.is_quick && self.only.is_none())
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuite => {
                write!(
                    to,
                    "no suite given: `gates`, `http`, `routes`, `tasks`, `shared`, `flow` and `workflow` are accepted"
                )
            }
            Self::UnknownSuite(suite) => {
                write!(
                    to,
                    "unknown suite `{suite}`: `gates`, `http`, `routes`, `tasks`, `shared`, `flow` and `workflow` are accepted"
                )
            }
            Self::UnknownRole => {
                write!(to, "`{PLAY}`, `{MEMBER}` and `{LINE}` are for the suites themselves")
            }
            Self::UnknownOption(option) => write!(
                to,
                "unknown option `{option}`: `--json`, `--only <text>`, `--quick`, `--write` and `--help` are accepted"
            ),
            Self::OnlyWhat => write!(to, "`--only` wants a part of a case's name"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Command, HELP, Options, SuiteName, UsageError};

    fn parse(line: &str) -> Result<Command, UsageError> {
        Command::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    fn gates(line: &str) -> Options {
        match parse(line) {
            Ok(Command::Run(SuiteName::Gates, options)) => options,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn options_are_understood_in_any_order() {
        assert_eq!(gates("gates"), Options::default());
        let all = gates("gates --only keyed --quick --json --write");
        assert_eq!(
            all,
            Options { as_json: true, is_quick: true, is_written: true, only: Some("keyed".to_owned()) }
        );
        assert_eq!(
            parse("http --json").map(|command| matches!(command, Command::Run(SuiteName::Http, _))),
            Ok(true)
        );
        for line in ["help", "-h", "gates --help", "gates --json -h"] {
            assert_eq!(parse(line), Ok(Command::Help), "{line}");
        }
    }

    #[test]
    fn a_mistake_names_the_value_and_what_is_accepted() {
        let options = "`--json`, `--only <text>`, `--quick`, `--write` and `--help` are accepted";
        for (line, message) in [
            ("", "no suite given: `gates`, `http`, `routes`, `tasks`, `shared`, `flow` and `workflow` are accepted".to_owned()),
            (
                "--json",
                "unknown suite `--json`: `gates`, `http`, `routes`, `tasks`, `shared`, `flow` and `workflow` are accepted"
                    .to_owned(),
            ),
            ("play villain", "`play`, `member` and `line` are for the suites themselves".to_owned()),
            ("member theirs", "`play`, `member` and `line` are for the suites themselves".to_owned()),
            ("gates --fast", format!("unknown option `--fast`: {options}")),
            ("gates keyed", format!("unknown option `keyed`: {options}")),
            ("gates --only", "`--only` wants a part of a case's name".to_owned()),
            ("gates --only --json", "`--only` wants a part of a case's name".to_owned()),
        ] {
            assert_eq!(parse(line).expect_err("the line is wrong").to_string(), message);
        }
    }

    #[test]
    fn part_of_a_run_leaves_the_figures_alone_unless_asked() {
        assert!(gates("gates --json").writes());
        assert!(!gates("gates --quick").writes());
        assert!(!gates("gates --only keyed").writes());
        assert!(gates("gates --quick --write").writes());
    }

    #[test]
    fn the_help_fits_eighty_columns() {
        assert!(HELP.lines().all(|line| line.len() <= 80));
    }
}
