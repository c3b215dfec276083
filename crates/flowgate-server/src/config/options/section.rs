//! How options are declared.
//!
//! Owns the form of a declaration. From it come the names that are accepted, the defaults that hold, the variables of the
//! environment and the reference page: an option that is not declared cannot be read.

use super::super::read::suggestion;

/// A table of the file and its options.
#[derive(Debug)]
pub(crate) struct Section {
    /// `gateway.route`, or empty for the file itself.
    pub(crate) path: &'static str,
    /// How it is written: `[gateway]`, `[[gateway.route]]`, `rate = { … }`.
    pub(crate) written: &'static str,
    pub(crate) about: &'static str,
    pub(crate) options: &'static [Opt],
}

/// One option.
#[derive(Debug)]
pub(crate) struct Opt {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) default: Default,
    pub(crate) about: &'static str,
    /// Why that default.
    pub(crate) why: &'static str,
}

/// What an option may be, and in which words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A text of one form.
    Text(&'static str),
    /// A number or `true` or `false`.
    Bare(&'static str),
    /// A list or a table, or a choice between them: too much for a variable of the environment.
    Other(&'static str),
}

/// What holds if the option is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Default {
    /// It has to be there.
    Required,
    /// This value, as it would be written.
    Value(&'static str),
    /// What the words say; the code works it out.
    Words(&'static str),
}

impl Section {
    /// The option of this name.
    ///
    /// # Panics
    /// If it is not declared: what is read has to be.
    pub(crate) fn option(&self, name: &str) -> &'static Opt {
        let found = self.options.iter().find(|option| option.name == name);
        found.unwrap_or_else(|| panic!("`{name}` of `{}` is read, so it is declared", self.path))
    }

    /// All names, as declared.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.options.iter().map(|option| option.name)
    }

    /// The name that was probably meant.
    pub(crate) fn near(&self, name: &str) -> Option<&'static str> {
        suggestion(name, self.names())
    }

    /// Whether a variable of the environment may say it: `FLOWGATE_<SECTION>_<OPTION>`.
    pub(crate) fn has_variables(&self) -> bool {
        self.path.is_empty() || matches!(self.written.strip_prefix('['), Some(rest) if !rest.starts_with('['))
    }
}

impl Kind {
    /// In words.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Kind::Text(words) | Kind::Bare(words) | Kind::Other(words) => words,
        }
    }

    /// Whether one value says it all.
    pub(crate) const fn is_scalar(self) -> bool {
        matches!(self, Kind::Text(_) | Kind::Bare(_))
    }
}
