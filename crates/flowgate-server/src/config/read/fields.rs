//! A table of the file, read option by option.
//!
//! Owns which source wins (default < file < environment < flag), and which options are missing or unknown. It
//! reads declared options only.

use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::{
    super::{
        error::{Origin, Problem},
        options::{Default, Kind, Opt, Section},
    },
    entry::{Entry, shortened},
    report::{Read, Report, Stands, Told},
};

/// What a table is called in front of its fields.
#[derive(Clone, Debug)]
pub(crate) struct Label {
    text: String,
    between: &'static str,
}

impl Label {
    /// `gateway`, whose fields are `gateway.listen`.
    pub(crate) fn table(text: impl Into<String>) -> Self {
        let text = text.into();
        let between = if text.is_empty() { "" } else { "." };
        Label { text, between }
    }

    /// `gateway.route[2] "actions"`, whose fields are `gateway.route[2] "actions": max`.
    pub(crate) fn named(text: String) -> Self {
        Label { text, between: ": " }
    }

    fn field(&self, name: &str) -> String {
        format!("{}{}{name}", self.text, self.between)
    }
}

/// A value from the environment or the command line, which goes before the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) section: &'static str,
    pub(crate) option: &'static str,
    pub(crate) text: String,
    pub(crate) origin: Origin,
}

/// A table being read.
#[derive(Debug)]
pub(crate) struct Fields<'e> {
    report: &'e Report<'e>,
    section: &'static Section,
    label: Label,
    table: Option<&'e DeTable<'e>>,
    stands: Stands,
    given: &'e [Given],
    known: Read<()>,
}

impl<'e> Fields<'e> {
    pub(crate) fn new(
        report: &'e Report<'e>,
        section: &'static Section,
        label: Label,
        table: Option<&'e DeTable<'e>>,
        stands: Stands,
    ) -> Self {
        let fields = Fields { report, section, label, table, stands, given: &[], known: Ok(()) };
        Fields { known: fields.tell_unknown(), ..fields }
    }

    /// The same, where these go before the file.
    pub(crate) fn with(self, given: &'e [Given]) -> Self {
        Fields { given, ..self }
    }

    /// An option that is there, or has a default.
    pub(crate) fn read<T>(&self, name: &str, read: impl FnOnce(&Entry<'_>) -> Read<T>) -> Read<T> {
        self.optional(name, read)?.ok_or_else(|| self.missing(name))
    }

    /// An option that may be missing; then its default is read, if it has one.
    pub(crate) fn optional<T>(
        &self,
        name: &str,
        read: impl FnOnce(&Entry<'_>) -> Read<T>,
    ) -> Read<Option<T>> {
        let option = self.section.option(name);
        if let Some(given) = self.given(name) {
            return read(&self.entry_of(name, &as_value(option, &given.text), self.stands_at(name)))
                .map(Some);
        }
        if let Some(value) = self.table.and_then(|table| table.get(name)) {
            return read(&self.entry_of(name, value.get_ref(), self.stands_at(name))).map(Some);
        }
        let Default::Value(text) = option.default else { return Ok(None) };
        let value = DeValue::parse(text).expect("a default is declared as it would be written");
        read(&self.entry_of(name, value.get_ref(), self.stands_at(name))).map(Some)
    }

    /// A time that is there, or has a default.
    pub(crate) fn time(&self, name: &str) -> Read<Duration> {
        self.read(name, |entry| entry.time())
    }

    /// `true` or `false`, there or by default.
    pub(crate) fn boolean(&self, name: &str) -> Read<bool> {
        self.read(name, |entry| entry.boolean())
    }

    /// Whether anybody gave it.
    pub(crate) fn has(&self, name: &str) -> bool {
        let name = self.section.option(name).name;
        self.given(name).is_some() || self.table.is_some_and(|table| table.contains_key(name))
    }

    /// The option may not stand here, whatever it is.
    pub(crate) fn misplaced(&self, name: &str, why: impl Into<String>) -> Told {
        let problem = Problem::Misplaced { field: self.label.field(name), why: why.into() };
        self.report.tell(&self.stands_at(name), problem)
    }

    /// What was given for the option is refused by somebody who knows more.
    pub(crate) fn wrong(&self, name: &str, value: impl Into<String>, accepted: impl Into<String>) -> Told {
        let (field, value, accepted) = (self.label.field(name), value.into(), accepted.into());
        self.report.tell(&self.stands_at(name), Problem::Value { field, value, accepted })
    }

    /// The table lacks something that is no single option.
    pub(crate) fn lacks(&self, why: impl Into<String>) -> Told {
        let problem = Problem::Misplaced { field: self.label.text.clone(), why: why.into() };
        self.report.tell(&self.stands, problem)
    }

    /// Fails if the table has a field that nobody knows: then what seems to be missing may be that.
    pub(crate) fn known(&self) -> Read<()> {
        self.known
    }

    /// What the table is called.
    pub(crate) fn label(&self) -> &str {
        &self.label.text
    }

    /// What the file says, for what only the file can say: a list or a table.
    pub(crate) fn entry(&self, name: &str) -> Option<Entry<'e>> {
        let name = self.section.option(name).name;
        let value = self.table.and_then(|table| table.get(name))?;
        Some(self.entry_of(name, value.get_ref(), self.stands_at(name)))
    }

    /// A section of the file; `None` if it is not there.
    pub(crate) fn section(&self, section: &'static Section) -> Read<Option<Fields<'e>>> {
        let accepted = format!("a table: {}", section.written);
        self.entry(section.path).map(|entry| entry.fields(section, &accepted)).transpose()
    }

    /// A table that is not there: all its options have their defaults.
    pub(crate) fn none(&self, section: &'static Section, label: Label) -> Fields<'e> {
        Fields::new(self.report, section, label, None, self.stands.clone())
    }

    /// Nobody may say something about a section that is not there.
    pub(crate) fn nothing_given_for(&self, section: &Section, given: &[Given]) -> Read<()> {
        let mut nothing = Ok(());
        for given in given.iter().filter(|given| given.section == section.path) {
            let field = format!("{}.{}", given.section, given.option);
            let why = format!("is given, but the file has no {}: add the section", section.written);
            let stands = Stands { origin: given.origin.clone(), byte: None };
            nothing = Err(self.report.tell(&stands, Problem::Misplaced { field, why }));
        }
        nothing
    }

    fn missing(&self, name: &str) -> Told {
        let (field, accepted) = (self.label.field(name), self.section.option(name).kind.words().to_owned());
        self.report.tell(&self.stands, Problem::Missing { field, accepted })
    }

    fn given(&self, name: &str) -> Option<&'e Given> {
        // The last one wins: flags come after the environment.
        self.given.iter().rev().find(|given| given.section == self.section.path && given.option == name)
    }

    fn stands_at(&self, name: &str) -> Stands {
        if let Some(given) = self.given(name) {
            return Stands { origin: given.origin.clone(), byte: None };
        }
        match self.table.and_then(|table| table.get(name)) {
            Some(value) => {
                Stands { byte: self.stands.byte.map(|_| value.span().start), ..self.stands.clone() }
            }
            None => self.stands.clone(),
        }
    }

    fn entry_of<'v>(&self, name: &str, value: &'v DeValue<'v>, stands: Stands) -> Entry<'v>
    where
        'e: 'v,
    {
        Entry { report: self.report, field: self.label.field(name), value, stands }
    }

    fn tell_unknown(&self) -> Read<()> {
        let mut known = Ok(());
        for name in self.table.into_iter().flat_map(DeTable::keys) {
            if self.section.names().any(|known| known == name.get_ref()) {
                continue;
            }
            let byte = self.stands.byte.map(|_| name.span().start);
            let problem = Problem::Unknown {
                table: self.label.text.clone(),
                name: shortened(name.get_ref().to_string()),
                near: self.section.near(name.get_ref()),
                known: self.section.names().collect(),
            };
            known = Err(self.report.tell(&Stands { byte, ..self.stands.clone() }, problem));
        }
        known
    }
}

/// What a text from outside of the file is, as a value of it.
fn as_value<'t>(option: &Opt, text: &'t str) -> DeValue<'t> {
    let parsed = match option.kind {
        Kind::Bare(_) => DeValue::parse(text).ok(),
        Kind::Text(_) | Kind::Other(_) => None,
    };
    parsed.map_or_else(|| DeValue::String(text.into()), toml::Spanned::into_inner)
}
