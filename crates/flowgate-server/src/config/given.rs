//! What goes before the file: the environment and the command line.
//!
//! Owns the names of variables, `FLOWGATE_<SECTION>_<OPTION>`, and which of them are ours. A variable that is nearly one of
//! ours is a slip and an error; any other is somebody else's: a cluster that names a service `flowgate-gateway` sets
//! `FLOWGATE_GATEWAY_PORT` all by itself.

use super::{
    error::{ConfigError, Origin, Problem},
    options::{SECTIONS, Section},
    read::{Given, suggestion},
};

const PREFIX: &str = "FLOWGATE";
/// Variables of the command line alone, without their beginning. A slip in one that forbids something would allow it in silence.
pub(crate) const OF_FLAGS: [&str; 9] = [
    "config",
    "dev",
    "token",
    "deny_private",
    "metrics_open",
    "deliveries",
    "lease",
    "traces",
    "traces_header",
];

/// The variable that says an option.
pub(super) fn variable(section: &Section, option: &str) -> String {
    let between = if section.path.is_empty() { "" } else { "_" };
    format!("{PREFIX}_{}{between}{option}", section.path).to_uppercase()
}

/// What the environment says of the sections, and which variables are slips.
pub(super) fn from_environment(variables: &[(String, String)]) -> (Vec<Given>, Vec<ConfigError>) {
    let mut given = Vec::new();
    let mut errors = Vec::new();
    let scalars: Vec<_> =
        sections().flat_map(|section| scalars(section).map(move |name| (section, name))).collect();
    let names: Vec<_> = scalars.iter().map(|(section, option)| variable(section, option)).collect();
    for (name, value) in variables {
        if let Some(at) = names.iter().position(|known| known == name) {
            let (section, option) = scalars[at];
            let origin = Origin::Environment(name.clone());
            given.push(Given { section: section.path, option, text: value.clone(), origin });
        } else if let Some(problem) = slip(name) {
            errors.push(ConfigError { origin: Origin::Environment(name.clone()), position: None, problem });
        }
    }
    (given, errors)
}

/// What was probably meant by a variable that is none of ours.
fn slip(name: &str) -> Option<Problem> {
    // The file's own options have no section in their name, so every name begins like theirs: they come last.
    let mut matching: Vec<_> =
        sections().filter(|section| name.starts_with(&variable(section, ""))).collect();
    matching.sort_by_key(|section| std::cmp::Reverse(section.path.len()));
    let section = matching.into_iter().next()?;
    let rest = name[variable(section, "").len()..].to_lowercase();
    if !section.path.is_empty() && section.names().any(|option| option == rest) {
        let field = format!("{}.{rest}", section.path);
        let why = "is a list or a table, which a variable cannot hold: set it in the file".to_owned();
        return Some(Problem::Misplaced { field, why });
    }
    let flags = OF_FLAGS.into_iter().filter(|_| section.path.is_empty());
    if flags.clone().any(|flag| flag == rest) {
        return None;
    }
    let near = suggestion(&rest, scalars(section).chain(flags))?;
    Some(Problem::Variable(variable(section, near)))
}

/// The sections that variables can speak of.
fn sections() -> impl Iterator<Item = &'static Section> {
    SECTIONS.into_iter().filter(|section| section.has_variables())
}

fn scalars(section: &'static Section) -> impl Iterator<Item = &'static str> {
    section.options.iter().filter(|option| option.kind.is_scalar()).map(|option| option.name)
}
