//! The reference page, `docs/reference/config.md`, out of the declarations.
//!
//! Owns its form. `cargo xtask docs` writes it, and a test fails if the page that is committed is another.

use std::fmt::{self, Write};

use super::{
    given::variable,
    options::{Default, Opt, SECTIONS, Section},
};

const HEAD: &str = "\
<!-- Made by `cargo xtask docs` from crates/flowgate-server/src/config/options/: change that, not this. -->

# The config file

One file for the whole program, `flowgate.toml`: the one that `--config` or `FLOWGATE_CONFIG` names, or else the one in the
working directory, if there is one. `flowgate check` validates it and prints every setting in force.
[An example](../examples/flowgate.toml) has every option.

A value on the command line (`--listen`, `--gateway-listen`, `--store`, options of `flowgate worker`) overrides the
environment, which overrides the file, which overrides the default. The tables below name the environment variables. Unknown
options are errors, and so are variables whose name looks like a misspelled one.

**Times** are texts like `\"250ms\"`, `\"10s\"`, `\"1m\"` or `\"1h30m\"`, from `1ms` to `366d`. A number without a \
unit is an error.
";

/// The page.
pub(crate) fn reference() -> String {
    let mut page = HEAD.to_owned();
    for section in SECTIONS {
        write(&mut page, section).expect("a text takes all that is written");
    }
    page
}

fn write(page: &mut String, section: &Section) -> fmt::Result {
    writeln!(page, "\n## `{}`\n\n{}\n", section.written, section.about)?;
    writeln!(page, "| option | accepts | default | meaning, *and why that default* |")?;
    writeln!(page, "|---|---|---|---|")?;
    for option in section.options {
        let (name, kind, about) = (option.name, option.kind.words(), option.about);
        let why = if option.why.is_empty() { String::new() } else { format!(" *{}*", option.why) };
        writeln!(page, "| `{name}` | {kind} | {} | {about}{why} |", default(option))?;
    }
    if section.has_variables() {
        let scalars = section.options.iter().filter(|option| option.kind.is_scalar());
        let names: Vec<_> = scalars.map(|option| format!("`{}`", variable(section, option.name))).collect();
        writeln!(page, "\nIn the environment: {}.", names.join(", "))?;
    }
    Ok(())
}

fn default(option: &Opt) -> String {
    match option.default {
        Default::Required => "required".to_owned(),
        Default::Value(text) => format!("`{text}`"),
        Default::Words(words) => words.to_owned(),
    }
}
