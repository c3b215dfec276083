//! `flowgate reference`: the pages that are made from the code, for `cargo xtask docs`.

use std::io::{self, Write};

use clap::CommandFactory as _;

use super::failure::Failure;
use crate::{
    api,
    cli::{Cli, Page},
    config, metrics,
};

/// Prints a page.
pub(crate) fn reference(page: Page) -> Result<(), Failure> {
    let text = match page {
        Page::Config => config::reference(),
        Page::Metrics => metrics::reference(),
        Page::Commands => commands(),
        Page::Api => api::reference(),
    };
    io::stdout().write_all(text.as_bytes()).map_err(Failure::Write)
}

/// Every command with what `--help` says of it.
fn commands() -> String {
    let mut text =
        "# Commands\n\nWhat `flowgate <command> --help` says. Made by `cargo xtask docs`.\n".to_owned();
    let mut program = Cli::command().term_width(110);
    program.build();
    add(&program, "flowgate", &mut text);
    text
}

fn add(command: &clap::Command, name: &str, text: &mut String) {
    let help = command.clone().term_width(110).render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    *text += &format!("\n## `{name}`\n\n```text\n{}\n```\n", help.join("\n").trim_end());
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
    {
        add(inner, &format!("{name} {}", inner.get_name()), text);
    }
}
