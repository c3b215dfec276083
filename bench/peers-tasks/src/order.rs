//! What is asked for: the words of the command line become an [`Order`] once.

use std::{collections::HashMap, time::Duration};

/// One thing to do with one peer.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) peer: String,
    pub(crate) command: Command,
    pub(crate) database: String,
    /// How many tasks there are in all.
    pub(crate) count: u32,
    pub(crate) keys: u32,
    pub(crate) callers: u32,
    pub(crate) limit: Limit,
    /// How many tasks one process runs at once.
    pub(crate) concurrency: u32,
    /// How many tasks one process claims ahead, where it can. 0: none.
    pub(crate) prefetch: u32,
    /// How long a task takes.
    pub(crate) task: Duration,
    /// How long to wait between two sends.
    pub(crate) interval: Duration,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Make tables and what else is needed.
    SetUp,
    /// Put all tasks into the store, many at once.
    Insert,
    /// Put all tasks into the store, one at a time, from many callers.
    Send,
    /// Run tasks until all have run.
    Drain,
    /// Run tasks until told to stop, and keep a record of each.
    Work,
    /// Send one task at a time to a worker that has nothing to do.
    Latency,
}

/// Which limits the peer has to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    None,
    /// Those it has, wide enough for a drain.
    Wide,
    /// Two at once for each key, or the nearest that it has.
    Two,
    /// Twenty at once, of all tasks together.
    Twenty,
}

impl Order {
    /// Reads `<peer> <command> [--option value]...`.
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let [peer, command, options @ ..] = words else {
            return Err("a peer and a command are wanted".to_owned());
        };
        let mut given = HashMap::new();
        for pair in options.chunks(2) {
            match pair {
                [name, value] if name.starts_with("--") => given.insert(&name[2..], value.as_str()),
                other => return Err(format!("`{}` is not understood", other.join(" "))),
            };
        }
        let number = |name: &str, default: u32| match given.get(name) {
            Some(value) => value.parse().map_err(|error| format!("--{name} {value}: {error}")),
            None => Ok(default),
        };
        let millis = |name: &str| number(name, 0).map(|millis| Duration::from_millis(millis.into()));
        Ok(Order {
            peer: peer.clone(),
            command: Command::parse(command)?,
            database: (*given.get("database").ok_or("--database is wanted")?).to_owned(),
            count: number("count", 0)?,
            keys: number("keys", 1)?.max(1),
            callers: number("callers", 1)?.max(1),
            limit: Limit::parse(given.get("limit").copied().unwrap_or("none"))?,
            concurrency: number("concurrency", 64)?,
            prefetch: number("prefetch", 0)?,
            task: millis("task-ms")?,
            interval: millis("interval-ms")?,
        })
    }
}

impl Command {
    fn parse(word: &str) -> Result<Self, String> {
        Ok(match word {
            "set-up" => Command::SetUp,
            "insert" => Command::Insert,
            "send" => Command::Send,
            "drain" => Command::Drain,
            "work" => Command::Work,
            "latency" => Command::Latency,
            other => return Err(format!("unknown command `{other}`")),
        })
    }
}

impl Limit {
    fn parse(word: &str) -> Result<Self, String> {
        Ok(match word {
            "none" => Limit::None,
            "wide" => Limit::Wide,
            "two" => Limit::Two,
            "twenty" => Limit::Twenty,
            other => return Err(format!("unknown limit `{other}`")),
        })
    }
}
