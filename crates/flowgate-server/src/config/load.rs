//! From where the configuration is taken, and taking it.
//!
//! Owns finding and reading the file, and the order: default < file < environment < flag. [`Sources`] can be asked again,
//! which is what a reload does.

use std::{
    env,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use super::{
    Config, ConfigErrors,
    error::{ConfigError, Origin, Problem},
    given::from_environment,
    read::{Given, without_password},
};

/// The file that is read if none is named, and it is there.
const FILE: &str = "flowgate.toml";
/// A file with ten thousand overrides has a tenth of it.
const LARGEST: u64 = 16 << 20;

/// From where the configuration is taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    file: Option<PathBuf>,
    environment: Vec<(String, String)>,
    flags: Vec<Given>,
}

/// A configuration, and where it came from.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    /// The file, as it was named; `None` if there was none, and the defaults hold.
    pub(crate) file: Option<PathBuf>,
    /// What the file does not decide.
    pub(crate) overridden: Vec<Overridden>,
}

/// An option that the environment or the command line has decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overridden {
    /// `gateway.listen`.
    pub(crate) field: String,
    pub(crate) value: String,
    pub(crate) from: Origin,
}

impl Sources {
    /// The file that is named, or else `flowgate.toml` of the working directory; and the environment of the process.
    pub(crate) fn new(file: Option<PathBuf>) -> Self {
        // A name or a value that is no text is none of ours.
        let texts = env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let environment = texts.filter(|(name, _)| name.starts_with("FLOWGATE_")).collect();
        Sources { file, environment, flags: Vec::new() }
    }

    /// What the command line says of an option, whatever else says so.
    #[must_use]
    pub(crate) fn flag(
        mut self,
        section: &'static str,
        option: &'static str,
        name: &'static str,
        value: Option<impl ToString>,
    ) -> Self {
        self.flags.extend(value.map(|value| Given {
            section,
            option,
            text: value.to_string(),
            origin: Origin::Flag(name),
        }));
        self
    }

    /// The configuration as it is now, or everything that is wrong with it.
    pub(crate) fn load(&self) -> Result<Loaded, ConfigErrors> {
        let (mut given, slips) = from_environment(&self.environment);
        given.extend(self.flags.iter().cloned());
        let file = self.found();
        let read = match &file {
            Some(path) => text_of(path)
                .map_err(|problem| {
                    let origin = Origin::File(path.clone());
                    ConfigErrors::from(ConfigError { origin, position: None, problem })
                })
                .and_then(|text| Config::read(Origin::File(path.clone()), &text, &given)),
            None => Config::read(Origin::Default, "", &given),
        };
        match (read, ConfigErrors::some(slips)) {
            (Ok(config), None) => Ok(Loaded { config, file, overridden: overridden(given) }),
            (Err(errors), None) | (Ok(_), Some(errors)) => Err(errors),
            (Err(errors), Some(slips)) => Err(errors.and(slips)),
        }
    }

    fn found(&self) -> Option<PathBuf> {
        let default = || Some(PathBuf::from(FILE)).filter(|path| path.exists());
        self.file.clone().or_else(default)
    }
}

fn text_of(path: &Path) -> Result<String, Problem> {
    let file = File::open(path).map_err(Problem::Unreadable)?;
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(Problem::Unreadable)?;
    if bytes.len() as u64 > LARGEST {
        return Err(Problem::TooLarge(LARGEST));
    }
    String::from_utf8(bytes)
        .map_err(|error| Problem::Unreadable(io::Error::new(io::ErrorKind::InvalidData, error.utf8_error())))
}

/// For each option the last one, which is the one that won.
fn overridden(given: Vec<Given>) -> Vec<Overridden> {
    let mut won: Vec<Overridden> = Vec::new();
    for given in given {
        let between = if given.section.is_empty() { "" } else { "." };
        let field = format!("{}{between}{}", given.section, given.option);
        won.retain(|earlier| earlier.field != field);
        won.push(Overridden { field, value: without_password(&given.text), from: given.origin });
    }
    won
}
