//! The command line of these commands.

use clap::{Args, Subcommand};

use crate::{
    cli::{StoreOptions, between, whole},
    message::{MOST_RETRIES, Space},
};

/// Where the server is, and who asks.
#[derive(Clone, Args)]
pub(crate) struct ServerOptions {
    /// The server
    #[arg(long, env = "QSTASH_URL", value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub(super) url: String,

    /// A token of the server [default: the public one for development]
    #[arg(long, env = "QSTASH_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub(super) token: Option<String>,

    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

impl ServerOptions {
    /// Where the server is.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

/// A token is not for logs.
impl std::fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerOptions").field("url", &self.url).finish_non_exhaustive()
    }
}

/// How a message is delivered.
#[derive(Clone, Debug, Args)]
#[command(group(clap::ArgGroup::new("limits").args(["parallelism", "rate"]).multiple(true)))]
pub(super) struct Settings {
    /// The body; sent as application/json if it is a JSON object or array and no Content-Type is given
    #[arg(long, short, value_name = "TEXT", default_value = "")]
    pub(super) body: String,

    /// A header for the endpoint; may be given several times
    #[arg(long, short = 'H', value_name = "NAME: VALUE")]
    pub(super) header: Vec<String>,

    /// The method [default: POST]
    #[arg(long, value_name = "METHOD")]
    pub(super) method: Option<String>,

    /// The flow-control key, with --parallelism, --rate or both
    #[arg(long, value_name = "KEY", requires = "limits")]
    pub(super) key: Option<String>,

    /// How many of the key may be in flight at once
    #[arg(long, value_name = "N", requires = "key", value_parser = whole::<1>)]
    pub(super) parallelism: Option<u32>,

    /// How many of the key may start in a period
    #[arg(long, value_name = "N", requires = "key", value_parser = whole::<1>)]
    pub(super) rate: Option<u32>,

    /// The period of the rate, like 10s or 1m [default: 1s]
    #[arg(long, value_name = "TIME", requires = "rate")]
    pub(super) period: Option<String>,

    /// Spread the starts of the rate evenly, instead of counting them in windows
    #[arg(long, requires = "rate")]
    pub(super) smooth: bool,

    /// How often it is retried [default: 3]
    #[arg(long, value_name = "N", value_parser = between::<0, MOST_RETRIES>)]
    pub(super) retries: Option<u32>,

    /// How long the first attempt is delayed
    #[arg(long, value_name = "TIME")]
    pub(super) delay: Option<String>,

    /// How long an attempt may take
    #[arg(long, value_name = "TIME")]
    pub(super) timeout: Option<String>,

    /// A URL to notify of every attempt
    #[arg(long, value_name = "URL")]
    pub(super) callback: Option<String>,

    /// A label to find it by
    #[arg(long, value_name = "LABEL")]
    pub(super) label: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct PublishOptions {
    /// A URL, or the name of a URL group
    pub(super) destination: String,

    /// The FIFO queue it goes through
    #[arg(long, value_name = "QUEUE", conflicts_with = "key")]
    pub(super) queue: Option<String>,

    #[command(flatten)]
    pub(super) settings: Settings,

    #[command(flatten)]
    pub(super) server: ServerOptions,
}

#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct KeysOptions {
    #[command(subcommand)]
    pub(super) action: Option<KeyAction>,

    /// Only keys whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub(super) search: Option<String>,

    #[command(flatten)]
    pub(super) server: ServerOptions,
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum KeyAction {
    /// Show a key
    Show(OneKey),
    /// Pause a key: none of its messages start
    Pause(OneKey),
    /// Resume a key
    Resume(OneKey),
    /// Pin limits that override those of the messages
    #[command(group(clap::ArgGroup::new("pinned").args(["parallelism", "rate"]).required(true).multiple(true)))]
    Pin {
        #[command(flatten)]
        key: OneKey,
        /// How many may be in flight at once
        #[arg(long, value_name = "N", value_parser = whole::<1>)]
        parallelism: Option<u32>,
        /// How many may start in a period
        #[arg(long, value_name = "N", value_parser = whole::<1>)]
        rate: Option<u32>,
        /// The period of the rate, in whole seconds: like 60, 10s or 1m [default: 1s]
        #[arg(long, value_name = "TIME", requires = "rate", value_parser = whole_seconds)]
        period: Option<u64>,
        /// Spread the starts evenly, instead of counting them in windows
        #[arg(long, requires = "rate")]
        smooth: bool,
    },
    /// Unpin a key: the limits of the messages apply again, at once
    Unpin {
        #[command(flatten)]
        key: OneKey,
        /// Only the parallelism
        #[arg(long)]
        parallelism: bool,
        /// Only the rate
        #[arg(long)]
        rate: bool,
    },
    /// Choose whose limits govern what waits: the newest sent, or each message's own
    Latest {
        #[command(flatten)]
        key: OneKey,
        /// on: the newest sent; off: each message's own; default: as for all keys
        mode: crate::cli::Latest,
    },
    /// Begin a new window of the rate now
    ResetRate(OneKey),
}

#[derive(Clone, Debug, Args)]
pub(super) struct OneKey {
    /// The key
    pub(super) name: String,

    #[command(flatten)]
    pub(super) server: ServerOptions,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct DlqOptions {
    #[command(subcommand)]
    pub(super) action: DlqAction,
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum DlqAction {
    /// List messages with no attempt left, newest first
    List {
        /// Only those with this label
        #[arg(long, value_name = "LABEL")]
        label: Option<String>,
        /// How many at most
        #[arg(long, value_name = "N", default_value = "20", value_parser = between::<1, 1000>)]
        count: u32,
        #[command(flatten)]
        server: ServerOptions,
    },
    /// Show a dead letter
    Show(Letter),
    /// Send a dead letter again, as a new message
    Retry(Letter),
    /// Delete a dead letter
    Delete(Letter),
}

#[derive(Clone, Debug, Args)]
pub(super) struct Letter {
    /// Its id, as the list shows it
    pub(super) id: String,

    #[command(flatten)]
    pub(super) server: ServerOptions,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ScheduleOptions {
    #[command(subcommand)]
    pub(super) action: ScheduleAction,
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum ScheduleAction {
    /// Send a message at the times of a cron expression
    Create {
        /// A URL, or the name of a URL group
        destination: String,
        /// When: five fields like "0 9 * * 1-5", with CRON_TZ=Europe/Berlin before them if it is not UTC
        #[arg(long, value_name = "CRON")]
        cron: String,
        /// Its id; a schedule with this id is replaced
        #[arg(long, value_name = "ID")]
        id: Option<String>,
        #[command(flatten)]
        settings: Box<Settings>,
        #[command(flatten)]
        server: ServerOptions,
    },
    /// List all schedules
    List {
        #[command(flatten)]
        server: ServerOptions,
    },
    /// Show a schedule
    Show(OneSchedule),
    /// Pause a schedule: it sends nothing until it is resumed
    Pause(OneSchedule),
    /// Resume a schedule
    Resume(OneSchedule),
    /// Delete a schedule
    Delete(OneSchedule),
}

#[derive(Clone, Debug, Args)]
pub(super) struct OneSchedule {
    /// Its id
    pub(super) id: String,

    #[command(flatten)]
    pub(super) server: ServerOptions,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RunsOptions {
    /// Only runs in this state
    #[arg(long, value_name = "STATE", ignore_case = true)]
    pub(super) state: Option<RunState>,

    /// Only runs of workflows whose URL begins with this
    #[arg(long, value_name = "URL")]
    pub(super) workflow: Option<String>,

    /// Only runs with this label
    #[arg(long, value_name = "LABEL")]
    pub(super) label: Option<String>,

    /// How many at most, newest first
    #[arg(long, value_name = "N", default_value = "20", value_parser = between::<1, 1000>)]
    pub(super) count: u32,

    #[command(flatten)]
    pub(super) server: ServerOptions,
}

/// Where a run is.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum RunState {
    Started,
    Success,
    Failed,
    Canceled,
}

impl RunState {
    /// As the API calls it.
    pub(super) fn word(self) -> &'static str {
        match self {
            RunState::Started => "RUN_STARTED",
            RunState::Success => "RUN_SUCCESS",
            RunState::Failed => "RUN_FAILED",
            RunState::Canceled => "RUN_CANCELED",
        }
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RunOptions {
    #[command(subcommand)]
    pub(super) action: RunAction,
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum RunAction {
    /// Show the steps of a run in order, and when each ended
    Show(OneRun),
    /// Cancel a run: none of its remaining steps start
    Cancel(OneRun),
    /// Resume a failed run, as a new one, from the step that failed
    Resume(OneRun),
    /// Restart a failed run from the beginning, as a new one
    Restart(OneRun),
}

#[derive(Clone, Debug, Args)]
pub(super) struct OneRun {
    /// Its id
    pub(super) id: String,

    #[command(flatten)]
    pub(super) server: ServerOptions,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct TokenOptions {
    #[command(subcommand)]
    pub(super) action: TokenAction,
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum TokenAction {
    /// Create a token, and show it once
    Create {
        /// Its name in the list
        #[arg(long, value_name = "NAME", default_value = "token")]
        name: String,
        /// The namespace it is for, which has its own keys, queues, messages, schedules and other names
        #[arg(long, value_name = "NAMESPACE", value_parser = namespace)]
        namespace: Option<Space>,
        #[command(flatten)]
        store: StoreOptions,
    },
    /// List tokens: their ids and names, not the tokens themselves
    List {
        #[command(flatten)]
        store: StoreOptions,
    },
    /// Revoke a token: it is no longer accepted
    Revoke {
        /// Its id, as the list shows it
        id: String,
        #[command(flatten)]
        store: StoreOptions,
    },
}

fn namespace(text: &str) -> Result<Space, &'static str> {
    Space::read(text).map_err(|_| "accepted: 1 to 64 letters, digits, hyphens, underscores or periods")
}

/// A span of time as the API takes it for a pin.
fn whole_seconds(text: &str) -> Result<u64, &'static str> {
    let span = crate::message::seconds(text).filter(|span| span.subsec_nanos() == 0 && !span.is_zero());
    span.map(|span| span.as_secs()).ok_or("accepted: a span of whole seconds, like 60, 10s, 1m or 1h30m")
}
