//! The command line.
//!
//! Owns the options, their defaults and the words for a value that is not accepted. What comes out of it has been checked
//! one by one; what options mean together is checked where gates are built.

mod environment;
mod tasks;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use flowgate::Period;

use crate::{
    config::Sources,
    remote::{
        DlqOptions, KeysOptions, PublishOptions, RunOptions, RunsOptions, ScheduleOptions, TokenOptions,
    },
    serve::StoreAt,
    simulate::{SIMULATE_HELP, SimulateOptions},
    top::TopOptions,
    traces::TraceOptions,
};

pub(crate) use environment::{of_serve, wrong_variables};
pub(crate) use tasks::{
    ChildOptions, ExplainOptions, KeyChange, KeyOptions, Latest, NamedKey, NamedQueue, PinOptions,
    QueueChange, QueuesOptions, SendOptions, SetOptions, StoreOptions, TaskChange, TaskOptions, TasksOptions,
    WorkerOptions,
};

const SERVE_HELP: &str = "\
The API is QStash v2: point the official clients at the address, with the token that is printed. With a store like
postgres://user@host/database, any number of servers share it.";

const HELP: &str = "\
Start with `flowgate serve --dev`: it prints where its console is and what to paste.

publish, keys, top, dlq, runs, run and schedule ask a running server: --url and --token, or QSTASH_URL and QSTASH_TOKEN.
token, worker, send, queues, tasks, task, key and explain open the store directly: --store, or FLOWGATE_STORE.";

const DEMO_HELP: &str = "\
Paths:
  GET /               both gates, live
  GET /work           waits in line for a pass, then works for ?ms=100
  GET /tenant/{key}   the same with a lane for each key; refuses instead of waiting
  GET /figures        what the page shows, as JSON

Times are text like 250ms, 10s, 1m or 1h30m. An option overrides its environment variable.";

const CHECK_HELP: &str = "\
Exit status: 0 if the configuration is valid; 2 if it is not, and then every error is printed with its place.";

const RELOAD_HELP: &str = "\
Limits change at once, for waiting requests too; requests under way go on. SIGHUP does the same.

Exit status: 0 if reloaded, 2 if the configuration is wrong, 1 for any other failure. Unless it is 0, nothing has changed.";

const ASKED_HELP: &str =
    "Which server to ask: where it listens [env: FLOWGATE_SERVER_LISTEN] [default: 127.0.0.1:8080]";

const WORKER_HELP: &str = "\
The command gets a task as a line of JSON on its standard input, and answers with a line on its standard output:

  {\"id\": 17, \"kind\": \"resize\", \"attempt\": 1, \"body\": {\"image\": 7}}
  {\"id\": 17, \"result\": \"done\"}    or    {\"id\": 17, \"error\": \"no such image\"}

Its standard error is passed on, each line with the number of the process. SIGINT and SIGTERM let running tasks finish; a
second one stops at once.";

/// One gate for everything in flight: bounds how much runs at once and how often it starts.
#[derive(Debug, Parser)]
#[command(name = "flowgate", version, after_help = HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the flow-control server, and the gateway if the config file has one
    #[command(after_help = SERVE_HELP)]
    Serve(ServeOptions),

    /// Send a message through a running server
    Publish(PublishOptions),

    /// List the flow-control keys of a running server, or change one
    Keys(KeysOptions),

    /// Watch keys, queues and gates of a running server, live
    Top(TopOptions),

    /// List dead letters, send them again or delete them
    Dlq(DlqOptions),

    /// List workflow runs on a running server
    Runs(RunsOptions),

    /// Show a workflow run, cancel it, or resume or restart a failed one
    Run(RunOptions),

    /// Create, list or change schedules
    Schedule(ScheduleOptions),

    /// Create, list or revoke API tokens
    Token(TokenOptions),

    /// Simulate a workload under limits: waits, throughput, refusals, and a plot
    #[command(after_help = SIMULATE_HELP)]
    Simulate(SimulateOptions),

    /// Serve a small HTTP demo guarded by gates, with live figures at /
    #[command(after_help = DEMO_HELP)]
    Demo(DemoOptions),

    /// Check the configuration, and print every setting in force
    #[command(after_help = CHECK_HELP)]
    Check(CheckOptions),

    /// Tell the running gateway to read its configuration again
    #[command(after_help = RELOAD_HELP, mut_arg("listen", |listen| listen.help(ASKED_HELP)))]
    Reload(ReloadOptions),

    /// Run tasks in child processes of any language, one task at a time each
    #[command(after_help = WORKER_HELP)]
    Worker(WorkerOptions),

    /// Send a task for a worker to run
    Send(SendOptions),

    /// Show task queues: what runs, what waits and which caps hold; or change them
    Queues(QueuesOptions),

    /// Show tasks: what runs, what waits, and what is dead
    Tasks(TasksOptions),

    /// Cancel a task, or retry a dead one
    Task(TaskOptions),

    /// Pause a key of tasks, or pin its limits
    Key(KeyOptions),

    /// Say why something waits: the limit, who holds it, the place in line, and what would help
    Explain(ExplainOptions),

    /// Print shell completions: `source <(flowgate completions bash)`
    Completions {
        /// Which shell
        #[arg(value_enum)]
        shell: Shell,
    },

    /// Become a child of a worker
    #[command(hide = true)]
    WorkerChild(ChildOptions),

    /// End what is left when a worker is gone
    #[command(hide = true)]
    WorkerWarden,

    /// Print a page of the reference
    #[command(hide = true)]
    Reference {
        #[arg(value_enum)]
        page: Page,
    },
}

/// A page that is made from the code.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Page {
    Config,
    Metrics,
    Commands,
    Api,
}

/// From where the configuration is taken.
#[derive(Clone, Debug, Args)]
pub(crate) struct ConfigOptions {
    /// The config file [default: flowgate.toml, if it is there]
    #[arg(long, env = "FLOWGATE_CONFIG", value_name = "PATH")]
    config: Option<PathBuf>,

    /// Where to listen; port 0 takes any free one [env: FLOWGATE_SERVER_LISTEN] [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    listen: Option<SocketAddr>,

    /// Where the gateway listens, if there is one [env: FLOWGATE_GATEWAY_LISTEN] [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    gateway_listen: Option<SocketAddr>,
}

impl ConfigOptions {
    /// The file, the environment and these options.
    pub(crate) fn sources(&self) -> Sources {
        Sources::new(self.config.clone()).flag("server", "listen", "--listen", self.listen).flag(
            "gateway",
            "listen",
            "--gateway-listen",
            self.gateway_listen,
        )
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct CheckOptions {
    #[command(flatten)]
    pub(crate) config: ConfigOptions,

    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Args)]
pub(crate) struct ReloadOptions {
    #[command(flatten)]
    pub(crate) config: ConfigOptions,

    /// A token of the server [default: the public one for development]
    #[arg(long, env = "QSTASH_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
}

/// A token is not for logs.
impl std::fmt::Debug for ReloadOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReloadOptions").field("config", &self.config).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ServeOptions {
    #[command(flatten)]
    pub(crate) config: ConfigOptions,

    /// Where messages are kept: sqlite:PATH, sqlite::memory: or postgres://… [env: FLOWGATE_STORE] [default: sqlite:flowgate.db]
    #[arg(long, value_name = "STORE", value_parser = StoreAt::read)]
    pub(crate) store: Option<StoreAt>,

    /// Accept QStash's public development token and sign with its public development keys; on loopback only
    #[arg(long, env = "FLOWGATE_DEV", value_parser = boolean)]
    pub(crate) dev: bool,

    /// A token to accept in addition to those in the store
    #[arg(long, env = "FLOWGATE_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,

    /// Deliver nothing to addresses of this machine or of private networks
    #[arg(long, env = "FLOWGATE_DENY_PRIVATE", value_parser = boolean)]
    pub(crate) deny_private: bool,

    /// The HTTP proxy that deliveries go through, like http://10.0.0.1:3128 [env: FLOWGATE_SERVER_EGRESS_PROXY] [default: none]
    #[arg(long, value_name = "URL")]
    pub(crate) egress_proxy: Option<String>,

    /// Answer /metrics without a token
    #[arg(long, env = "FLOWGATE_METRICS_OPEN", value_parser = boolean)]
    pub(crate) metrics_open: bool,

    #[command(flatten)]
    pub(crate) traces: TraceOptions,

    /// How many deliveries this server makes at once, at most
    #[arg(long, env = "FLOWGATE_DELIVERIES", value_name = "N", default_value = "1000", value_parser = between::<1, 100_000>)]
    pub(crate) deliveries: u32,

    /// How long after a crash until this server's deliveries are made again and its slots are freed
    #[arg(long, env = "FLOWGATE_LEASE", value_name = "TIME", default_value = "15s", value_parser = lease)]
    pub(crate) lease: Duration,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct DemoOptions {
    /// Where to listen; port 0 takes any free one
    #[arg(long, env = "FLOWGATE_DEMO_LISTEN", value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080",
        value_parser = address)]
    pub(crate) listen: SocketAddr,

    /// How many may be in flight at once, on /work and for each tenant
    #[arg(long, env = "FLOWGATE_MAX", value_name = "N", default_value = "4", value_parser = whole::<1>)]
    pub(crate) max: u32,

    /// How many may wait in line on /work; 0: nobody waits
    #[arg(long, env = "FLOWGATE_QUEUE", value_name = "N", default_value = "8", value_parser = whole::<0>)]
    pub(crate) queue: u32,

    /// How long one may wait in line
    #[arg(long, env = "FLOWGATE_TIMEOUT", value_name = "TIME", default_value = "2s", value_parser = time)]
    pub(crate) timeout: Duration,

    /// How many may start per period, for each tenant
    #[arg(long, env = "FLOWGATE_RATE", value_name = "N", default_value = "600", value_parser = whole::<1>)]
    pub(crate) rate: u32,

    /// The period of the rate
    #[arg(long, env = "FLOWGATE_PERIOD", value_name = "TIME", default_value = "1m", value_parser = time)]
    pub(crate) period: Duration,
}

const MOST: u32 = 1_000_000_000;

/// Shorter than this, a busy machine would lose what it holds; longer, nobody would wait for it.
fn lease(text: &str) -> Result<Duration, String> {
    let accepted = "accepted: a time from 1s to 1h, like 15s";
    let span = time(text).map_err(|_| accepted.to_owned())?;
    let range = Duration::from_secs(1)..=Duration::from_secs(3600);
    range.contains(&span).then_some(span).ok_or_else(|| accepted.to_owned())
}

/// What a variable may say of an option that is there or not.
fn boolean(text: &str) -> Result<bool, &'static str> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "y" | "t" | "1" => Ok(true),
        "false" | "no" | "off" | "n" | "f" | "0" => Ok(false),
        _ => Err("accepted: true or false, also as yes or no, on or off, 1 or 0"),
    }
}

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "accepted: an address and a port, like 127.0.0.1:8080 or [::1]:0")
}

impl Cli {
    /// What was asked for, of this process.
    pub(crate) fn read() -> Self {
        let found = taking_negatives(Cli::command()).get_matches();
        Cli::from_arg_matches(&found).unwrap_or_else(|error| error.exit())
    }
}

/// A number below zero is a value like others: it is refused with what is accepted, and not as an option that nobody knows.
fn taking_negatives(command: clap::Command) -> clap::Command {
    let takes = |arg: clap::Arg| match !arg.is_positional() && arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    };
    command.mut_args(takes).mut_subcommands(taking_negatives)
}

pub(crate) fn whole<const LEAST: u32>(text: &str) -> Result<u32, String> {
    between::<LEAST, MOST>(text)
}

pub(crate) fn between<const LEAST: u32, const MOST: u32>(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (LEAST..=MOST).contains(number));
    number.ok_or_else(|| format!("accepted: a whole number from {LEAST} to {MOST}"))
}

fn time(text: &str) -> Result<Duration, &'static str> {
    text.parse::<Period>()
        .map(Period::as_duration)
        .map_err(|_| "accepted: a time from 1ms to 366d, like 250ms, 10s, 1m or 1h30m")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        taking_negatives(Cli::command()).debug_assert();
    }

    #[test]
    fn s2_a_number_below_zero_is_told_what_is_accepted() {
        // Seen to fail: with the command line as it is, `-1` was an argument that nobody expected.
        let arguments = ["flowgate", "send", "x", "--retries", "-1"];
        let told = taking_negatives(Cli::command()).try_get_matches_from(arguments).expect_err("no number");
        assert!(told.to_string().contains("accepted: a whole number from 0"), "{told}");
    }

    /// What is said of `x` for each option of this command and of those below it whose value is a number.
    fn said_of_numbers(words: &mut Vec<String>, command: &clap::Command, said: &mut Vec<(String, String)>) {
        // Those of a worker are read with its configuration, which has tests of its own.
        let is_number = |arg: &&clap::Arg| {
            arg.get_value_names().is_some_and(|names| names == ["N"]) && command.get_name() != "worker"
        };
        for option in command.get_arguments().filter(is_number).filter_map(clap::Arg::get_long) {
            let given = words.iter().cloned().chain([format!("--{option}"), "x".to_owned()]);
            let told = taking_negatives(Cli::command()).try_get_matches_from(given).expect_err("no number");
            said.push((format!("{} --{option}", words.join(" ")), told.to_string()));
        }
        for below in command.get_subcommands() {
            words.push(below.get_name().to_owned());
            said_of_numbers(words, below, said);
            words.pop();
        }
    }

    #[test]
    fn s2_whatever_is_no_number_is_told_which_are_accepted() {
        // Seen to fail: with the numbers of `publish` read by the parser's own rules, there was no word of what is accepted.
        let mut said = Vec::new();
        said_of_numbers(&mut vec!["flowgate".to_owned()], &Cli::command(), &mut said);
        assert!(said.len() > 25, "{said:#?}");
        for (option, told) in said {
            assert!(told.contains("accepted: a whole number from "), "{option}: {told}");
        }
        for (arguments, accepted) in [
            (["publish", "http://a", "--retries", "901"], "from 0 to 900"),
            (["send", "x", "--retries", "1000"], "from 0 to 999"),
            (["send", "x", "--weight", "1000001"], "from 1 to 1000000"),
            (["send", "x", "--priority", "32768"], "from -32768 to 32767"),
        ] {
            let given = ["flowgate"].into_iter().chain(arguments);
            let told = taking_negatives(Cli::command()).try_get_matches_from(given).expect_err("too much");
            assert!(told.to_string().contains(accepted), "{told}");
        }
    }

    #[test]
    fn s2_a_slip_in_any_variable_of_the_command_line_is_known_as_one() {
        // Seen to fail: with `deny_private` not in the list, a slip in it leaves private addresses open.
        let program = Cli::command();
        // The demo has names that others may have as well.
        for command in program.get_subcommands().filter(|command| command.get_name() != "demo") {
            let variables = command.get_arguments().filter_map(clap::Arg::get_env);
            let ours = variables.filter_map(|name| name.to_str()?.strip_prefix("FLOWGATE_"));
            for name in ours.map(str::to_lowercase) {
                assert!(crate::config::OF_FLAGS.contains(&name.as_str()), "{}: {name}", command.get_name());
            }
        }
    }

    #[test]
    fn a_value_is_taken_whole_or_not_at_all() {
        // Seen to fail: with `LEAST..MOST` the largest number is refused.
        assert_eq!(whole::<1>("1000000000"), Ok(1_000_000_000));
        assert_eq!(whole::<0>("0"), Ok(0));
        for text in ["", "0", "-1", "1.5", "1000000001", "4 "] {
            assert!(whole::<1>(text).is_err(), "{text:?}");
        }
        assert_eq!(time("1m30s"), Ok(Duration::from_secs(90)));
        for text in ["", "10", "0s", "1 fortnight", "367d"] {
            assert!(time(text).is_err(), "{text:?}");
        }
        assert!(address("[::1]:0").is_ok());
        for text in ["", "8080", "localhost:8080", "127.0.0.1", "127.0.0.1:65536"] {
            assert!(address(text).is_err(), "{text:?}");
        }
    }
}
