//! Lists of keys. A page costs the same however many keys there are, and however long their lines.

use flowgate_core::Tick;
use rusqlite::{Connection, OptionalExtension as _, ToSql, params};

use super::{error::Fault, look};
use crate::store::{Census, KeyPage, KeyQuery, KeySort, KeySpent, MOST_COUNTED};

/// A page looks at so many names at most.
const LOOKED_AT: u32 = 100_000;
/// The same, where each is a look at its lanes.
const LOOKED_INTO: u32 = 20_000;

/// Some of the keys that are asked for.
pub(super) fn find(db: &Connection, query: &KeyQuery, now: Tick) -> Result<KeyPage, Fault> {
    let KeyQuery { search, without, sort, after, most } = query;
    let (range, rest, looked_at) = match sort {
        KeySort::All => ("", "", LOOKED_AT),
        KeySort::Paused => ("AND paused = 1", "", LOOKED_AT),
        KeySort::Pinned => ("AND pinned IS NOT NULL", "", LOOKED_AT),
        KeySort::Busy => {
            let rest =
                "AND (in_use > 0 OR EXISTS (SELECT 1 FROM lanes WHERE lanes.key = seen.id AND state <> 0))";
            ("", rest, LOOKED_INTO)
        }
    };
    let columns = if *sort == KeySort::Busy { "id, name, in_use" } else { "name" };
    let range = format!("FROM keys WHERE name > ?1 {range} ORDER BY name LIMIT ?2");
    let sql = format!(
        "SELECT name FROM (SELECT {columns} {range}) AS seen
        WHERE (?3 = '' OR instr(lower(name), ?3) > 0) AND (?4 = '' OR instr(name, ?4) <> 1) {rest} LIMIT ?5"
    );
    let search = search.to_ascii_lowercase();
    let mut statement = db.prepare_cached(&sql)?;
    let names = statement.query_map(params![after, looked_at, search, without, most], |row| row.get(0))?;
    let names: Vec<String> = names.collect::<Result<_, _>>()?;
    let next = if names.len() as u32 == *most {
        names.last().cloned()
    } else {
        let sql = format!("SELECT name FROM (SELECT name {range}) LIMIT 1 OFFSET ?2 - 1");
        db.prepare_cached(&sql)?.query_row(params![after, looked_at], |row| row.get(0)).optional()?
    };
    Ok(KeyPage { keys: named(db, &names, now)?, next })
}

/// These keys, as far as they are known.
pub(super) fn named(db: &Connection, names: &[String], now: Tick) -> Result<Vec<KeySpent>, Fault> {
    let found = names.iter().map(|name| spent(db, name, MOST_COUNTED, now));
    found.filter_map(Result::transpose).collect()
}

/// One key, its line counted up to `most`.
pub(super) fn spent(db: &Connection, name: &str, most: u32, now: Tick) -> Result<Option<KeySpent>, Fault> {
    let Some(key) = look::key_counted(db, name, most)? else { return Ok(None) };
    let rates: String =
        db.prepare_cached("SELECT rates FROM keys WHERE name = ?1")?.query_row([name], |row| row.get(0))?;
    Ok(Some(KeySpent::of(key, &rates, now)))
}

/// How much there is.
pub(super) fn census(db: &Connection, without: &[String]) -> Result<Census, Fault> {
    let others = (2..without.len() + 2).map(|at| format!(" AND substr(name, 1, length(?{at})) <> ?{at}"));
    let sql = format!(
        "SELECT count(*), count(*) FILTER (WHERE paused = 1), count(*) FILTER (WHERE pinned IS NOT NULL),
        (SELECT count(*) FROM (SELECT 1 FROM dead LIMIT ?1)) FROM keys WHERE 1{}",
        others.collect::<String>()
    );
    let number = |row: &rusqlite::Row<'_>, column| row.get::<_, i64>(column).map(i64::unsigned_abs);
    let most: &dyn ToSql = &MOST_COUNTED;
    let values: Vec<&dyn ToSql> =
        std::iter::once(most).chain(without.iter().map(|text| text as &dyn ToSql)).collect();
    let census = db.prepare_cached(&sql)?.query_row(&values[..], |row| {
        Ok(Census {
            keys: number(row, 0)?,
            paused_keys: number(row, 1)?,
            pinned_keys: number(row, 2)?,
            dead: number(row, 3)?,
        })
    })?;
    Ok(census)
}
