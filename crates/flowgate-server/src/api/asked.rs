//! What a request says in its query: names that may come several times, and lists with commas.

use axum::{
    extract::FromRequestParts,
    http::{StatusCode, Uri, request::Parts},
};
use serde::{Deserialize, Deserializer};

use super::reply::Problem;
use crate::message::decode;

/// So many names a list in a body may have, as many as a batch has entries.
const MOST_NAMES: usize = 10_000;

/// A query, decoded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked(Vec<(String, String)>);

impl Asked {
    pub(crate) fn of(uri: &Uri) -> Self {
        let plain = |text: &str| {
            let text = text.replace('+', " ");
            decode(&text).unwrap_or(text)
        };
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (plain(name), plain(value))
        });
        Asked(pairs.collect())
    }

    /// The same, with this value for a name that had none.
    pub(super) fn with(&self, name: &str, value: &str) -> Self {
        let mut pairs = self.0.clone();
        if self.one(name).is_none() {
            pairs.push((name.to_owned(), value.to_owned()));
        }
        Asked(pairs)
    }

    /// The last value of a name that is not empty.
    pub(crate) fn one(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().rev().find(|(known, value)| known == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }

    /// All values of a name, also those with commas between them.
    pub(crate) fn all(&self, name: &str) -> Vec<String> {
        let values =
            self.0.iter().filter(|(known, _)| known == name || known.strip_suffix("[]") == Some(name));
        let each = values.flat_map(|(_, value)| value.split(','));
        each.map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned).collect()
    }

    /// All values of a name that are not empty, as they are: an address may have commas.
    pub(crate) fn each(&self, name: &str) -> Vec<String> {
        let is_named = |known: &str| known == name || known.strip_suffix("[]") == Some(name);
        let values = self.0.iter().filter(|(known, value)| is_named(known) && !value.is_empty());
        values.map(|(_, value)| value.clone()).collect()
    }

    /// All paths of a name, also those with commas between them. A path may have commas as well: what does not begin
    /// with `/` belongs to what stands before it.
    pub(crate) fn paths(&self, name: &str) -> Vec<String> {
        let mut paths: Vec<String> = Vec::new();
        for value in self.each(name) {
            for (number, part) in value.split(',').map(str::trim).enumerate() {
                match paths.last_mut().filter(|_| number > 0 && !part.starts_with('/')) {
                    Some(path) => path.extend([",", part]),
                    None if part.is_empty() => {}
                    None => paths.push(part.to_owned()),
                }
            }
        }
        paths
    }

    /// A number, if there is one.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        self.number_of(name, "")
    }

    /// A moment in milliseconds, if there is one.
    pub(crate) fn moment(&self, name: &str) -> Result<Option<u64>, Problem> {
        self.number_of(name, " of milliseconds since 1970")
    }

    /// A number `of` something, if there is one.
    pub(crate) fn number_of(&self, name: &str, of: &str) -> Result<Option<u64>, Problem> {
        let read = |text: &str| {
            let wrong = || Problem::bad(format!("{name} is {text:?}; send a whole number{of}"));
            text.parse().map_err(|_| wrong())
        };
        self.one(name).map(read).transpose()
    }

    /// Yes or no, if it is said.
    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, Problem> {
        match self.one(name) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(other) => Err(Problem::bad(format!("{name} is {other:?}; send true or false"))),
        }
    }

    /// How many are wanted, if it is said: from 1 on, and no more than `most` are given. The clients let their callers
    /// ask for more.
    pub(crate) fn at_most(&self, most: usize) -> Result<Option<usize>, Problem> {
        let Some(count) = self.number("count")? else { return Ok(None) };
        match count {
            0 => Err(Problem::bad(format!("count is 0; send a whole number from 1 to {most}"))),
            _ => Ok(Some(usize::try_from(count).unwrap_or(most).min(most))),
        }
    }

    /// How many may be cancelled, at most, if it is said.
    pub(crate) fn bound(&self) -> Result<Option<u64>, Problem> {
        match self.number("count")? {
            Some(0) => Err(Problem::bad("count is 0; send a whole number from 1 on, or leave it out")),
            count => Ok(count),
        }
    }

    /// The same as [`Self::at_most`], or so many.
    pub(crate) fn count(&self, default: usize, most: usize) -> Result<usize, Problem> {
        Ok(self.at_most(most)?.unwrap_or(default))
    }

    /// Refuses an order that lists are not in.
    pub(crate) fn newest_first(&self) -> Result<(), Problem> {
        match self.one("order") {
            None | Some("latestFirst") => Ok(()),
            Some(order) => Err(Problem::bad(format!("order is {order:?}; send latestFirst, or nothing"))),
        }
    }

    /// Refuses every name that is not in the list.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), Problem> {
        let plain = |name: &str| name.strip_suffix("[]").unwrap_or(name).to_owned();
        let unknown = self.0.iter().map(|(name, _)| plain(name)).find(|name| !known.contains(&name.as_str()));
        match unknown {
            Some(name) if name != "qstash_token" => {
                let known = known.join(", ");
                Err(Problem::bad(format!("{name:?} is not a known name; send one of {known}")))
            }
            _ => Ok(()),
        }
    }
}

/// For calls that change what they are told of. In a list that is read, a name without a value asks for nothing; here it would
/// mean everything, which nobody says with `label=`.
impl Asked {
    /// Refuses every name that has no value, and an `all` that is not `true`.
    pub(crate) fn means_what_it_names(&self) -> Result<(), Problem> {
        for (name, value) in &self.0 {
            let name = name.strip_suffix("[]").unwrap_or(name);
            let is_blank = value.split(',').all(|value| value.trim().is_empty());
            if is_blank && !["cursor", "qstash_token"].contains(&name) {
                let text = format!("{name} is empty; send a value for it, or leave every name out for all");
                return Err(Problem::bad(text));
            }
            if name == "all" && value != "true" {
                let text = format!("all is {value:?}; send true, or a filter for some of them");
                return Err(Problem::bad(text));
            }
        }
        Ok(())
    }
}

/// A list of names that a body has. `null` is none: it would be read as no list, and that means all.
pub(super) fn listed<'de, D: Deserializer<'de>>(body: D) -> Result<Option<Vec<String>>, D::Error> {
    Vec::deserialize(body).map(Some)
}

/// The names in a list, if it is no longer than it may be: each of them is looked for in the store.
pub(super) fn bounded(names: Vec<String>) -> Result<Vec<String>, Problem> {
    if names.len() > MOST_NAMES {
        let text = format!("{} are named; send up to {MOST_NAMES} at once", names.len());
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, text));
    }
    Ok(names)
}

impl<S: Send + Sync> FromRequestParts<S> for Asked {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Asked::of(&parts.uri))
    }
}
