//! `[[gateway.route.override]]`: other limits for single keys.
//!
//! Owns the checked override, and that no key has two.

use std::{collections::HashSet, sync::Arc};

use flowgate::Limits;

use super::{
    KeyFrom,
    key::own,
    lane::Asked,
    options::OVERRIDE,
    read::{Entry, Fields, Read},
};

const OVERRIDES: &str = "tables, each under a heading [[gateway.route.override]], in double brackets";

/// Other limits for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Override {
    pub(crate) key: Arc<str>,
    /// Whole limits: what the override does not say is the route's.
    pub(crate) limits: Limits,
}

/// The overrides of a route whose key, limits and number of lanes are these; what is missing was told.
pub(super) fn overrides(
    fields: &Fields<'_>,
    key: Option<&KeyFrom>,
    asked: Option<&Asked>,
    max_keys: Option<&u32>,
) -> Read<Vec<Override>> {
    let Some(entry) = fields.entry("override") else { return Ok(Vec::new()) };
    if let Some(KeyFrom::Constant(_)) = key {
        let why = "has no meaning for a constant key, whose one lane has the limits of the route: drop it, or set `key`";
        return Err(entry.misplaced(why));
    }
    let tables = entry.value.as_array().ok_or_else(|| entry.wrong(OVERRIDES))?;
    if max_keys.is_some_and(|most| tables.len() > *most as usize) {
        return Err(entry.misplaced("has more keys than `max_keys` allows: each keeps a lane"));
    }
    let mut seen = HashSet::new();
    let mut all = Ok(());
    let mut overrides = Vec::with_capacity(tables.len());
    for (at, table) in tables.iter().enumerate() {
        let one = entry.part(&format!("[{at}]"), table);
        match Override::read(&one, key, asked, &mut seen) {
            Ok(one) => overrides.extend(one),
            Err(told) => all = Err(told),
        }
    }
    all.map(|()| overrides)
}

impl Override {
    /// The override; `None` if the route's own limits are wrong, which was told.
    fn read(
        entry: &Entry<'_>,
        key: Option<&KeyFrom>,
        asked: Option<&Asked>,
        seen: &mut HashSet<Arc<str>>,
    ) -> Read<Option<Self>> {
        let fields = entry.fields(&OVERRIDE, OVERRIDES)?;
        let own = fields.read("key", |entry| {
            let own = own(entry, key)?;
            if seen.insert(Arc::clone(&own)) { Ok(own) } else { Err(entry.wrong("each key once")) }
        });
        // What the route lacks does not matter for what is wrong with the override itself.
        let route = asked.copied().unwrap_or(Asked::LEAST);
        let limits = route.overridden(&fields).and_then(|asked| asked.limits(&fields));
        let (key, limits) = (own?, limits?);
        Ok(asked.map(|_| Override { key, limits }))
    }
}
