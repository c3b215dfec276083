//! What the environment says to `flowgate serve` that no config file can say.
//!
//! Owns finding what is wrong with it without starting anything: `flowgate check` answers for it, too. The parsers are those of
//! the command line.

use std::{env, error::Error as _, ffi::OsString};

use clap::{
    Arg, ArgAction, Command, CommandFactory as _, FromArgMatches as _, builder::Resettable, error::ErrorKind,
};

use super::{Cli, ServeOptions};
use crate::config::{ConfigError, Origin, Problem};

/// What stands in an error for a value that is not for logs.
const HIDDEN: &str = "not shown";
/// One that is nothing without the other.
const TRACES: &str = "FLOWGATE_TRACES";
const TRACES_HEADER: &str = "FLOWGATE_TRACES_HEADER";

/// Everything that is wrong with these variables.
pub(crate) fn wrong_variables() -> Vec<ConfigError> {
    let serve = serve();
    // Each is read alone, as if it had been typed: of several, the parser tells the first.
    let deaf = serve.clone().mut_args(|arg: Arg| match arg.get_env() {
        Some(_) => arg.env(Resettable::Reset).action(ArgAction::Set).allow_hyphen_values(true),
        None => arg,
    });
    let told = serve.get_arguments().filter_map(|arg| {
        let (variable, option) = (arg.get_env()?.to_str()?, format!("--{}", arg.get_long()?));
        let value = env::var_os(variable)?;
        let typed = [OsString::from("serve"), OsString::from(&option), value.clone()];
        let error = deaf.clone().try_get_matches_from(typed).err()?;
        let is_of_it = matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue);
        let accepted = error.source().filter(|_| is_of_it)?.to_string();
        let accepted = accepted.trim_start_matches("accepted: ").to_owned();
        let shown = if arg.is_hide_env_values_set() { HIDDEN.to_owned() } else { format!("{value:?}") };
        let problem = Problem::Value { field: option, value: shown, accepted };
        Some(ConfigError { origin: Origin::Environment(variable.to_owned()), position: None, problem })
    });
    let mut told: Vec<_> = told.collect();
    if env::var_os(TRACES_HEADER).is_some() && env::var_os(TRACES).is_none() {
        let why = format!("is given without --traces, or {TRACES}");
        let problem = Problem::Misplaced { field: "--traces-header".to_owned(), why };
        let origin = Origin::Environment(TRACES_HEADER.to_owned());
        told.push(ConfigError { origin, position: None, problem });
    }
    told
}

/// What `flowgate serve` would be told by the environment alone, if that is right.
pub(crate) fn of_serve() -> Option<ServeOptions> {
    let found = serve().try_get_matches_from(["serve"]).ok()?;
    ServeOptions::from_arg_matches(&found).ok()
}

fn serve() -> Command {
    let cli = Cli::command();
    cli.find_subcommand("serve").cloned().unwrap_or(cli)
}
