//! What bounds a route: its key, its limits, and what a refusal says.
//!
//! Owns the checked types. The limits themselves are built by `flowgate`, and so are what is wrong with them.

use std::sync::Arc;

use flowgate::{
    Limits,
    http::{Answer, ReleaseAt},
};

use super::{
    KeyFrom, Override, PathPattern,
    lane::Asked,
    overrides::overrides,
    read::{Fields, Read},
    refusal::answer,
    seal::Seal,
};

const MOST_KEYS: u32 = 1_000_000;
/// What says something about a limit, and nothing without one.
const OF_A_LIMIT: [&str; 12] = [
    "key",
    "missing_key",
    "max",
    "max_queue",
    "queue_timeout",
    "line",
    "rate",
    "max_keys",
    "override",
    "release",
    "headers",
    "refusal",
];

/// The limit of a route: how each of its lanes is bounded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RouteLimit {
    /// Where the key of a request comes from.
    pub(crate) key: KeyFrom,
    /// What every lane may do: `max`, queue or reject, rate, and the line's discipline.
    pub(crate) limits: Limits,
    /// Other limits for single keys. Empty for a constant key; no key twice; at most `max_keys`.
    pub(crate) overrides: Vec<Override>,
    /// How many lanes; 1 for a constant key.
    pub(crate) max_keys: u32,
    /// When the slot comes back.
    pub(crate) release: ReleaseAt,
    /// Whether responses carry `Concurrency-*` and rate limit headers.
    pub(crate) headers: bool,
    /// The response to a refused request.
    pub(crate) refusal: Answer,
    pub(super) sealed: Seal,
}

impl RouteLimit {
    /// The limit of the route with this name and path; either may be missing because it was wrong.
    pub(super) fn read(
        fields: &Fields<'_>,
        name: Option<&Arc<str>>,
        path: Option<&PathPattern>,
    ) -> Read<Option<Self>> {
        if !fields.boolean("limit")? {
            return unlimited(fields).map(|()| None);
        }
        let key = KeyFrom::read(fields, name, path);
        let asked = Asked::read(fields);
        let max_keys = fields.read("max_keys", |entry| entry.small(1..=MOST_KEYS));
        let release = fields.read("release", |entry| {
            entry.choice(&[("body", ReleaseAt::Body), ("headers", ReleaseAt::Headers)])
        });
        let headers = fields.boolean("headers");
        let refusal = answer(fields);
        let overrides = overrides(fields, key.as_ref().ok(), asked.as_ref().ok(), max_keys.as_ref().ok());
        let limits = asked.and_then(|asked| asked.limits(fields));
        let key = key?;
        let max_keys = match key {
            KeyFrom::Constant(_) if fields.has("max_keys") => {
                return Err(fields.misplaced(
                    "max_keys",
                    "has no meaning for a constant key, which has one lane: drop it",
                ));
            }
            KeyFrom::Constant(_) => 1,
            _ => max_keys?,
        };
        Ok(Some(RouteLimit {
            key,
            limits: limits?,
            overrides: overrides?,
            max_keys,
            release: release?,
            headers: headers?,
            refusal: refusal?,
            sealed: Seal::checked(),
        }))
    }
}

/// Nothing that says something about a limit may stand beside `limit = false`.
fn unlimited(fields: &Fields<'_>) -> Read<()> {
    let mut all = Ok(());
    for name in OF_A_LIMIT.into_iter().filter(|name| fields.has(name)) {
        all = Err(fields.misplaced(name, "has no meaning beside `limit = false`: drop one of them"));
    }
    all
}
