//! Lists of keys. A page costs the same however many keys there are, and however long their lines.

use tokio_postgres::Row;

use super::{
    connect::Postgres,
    rows::{key_look, tick},
    shelf::Values,
};
use crate::store::{Census, KeyPage, KeyQuery, KeySort, KeySpent, MOST_COUNTED, StoreError};

/// A page looks at so many names at most.
const LOOKED_AT: i64 = 100_000;
/// The same, where each is a look at its lanes.
const LOOKED_INTO: i64 = 20_000;

/// The window of a rate is told by this server's clock. Each lane is counted up to $2, one after the other: joined, they would
/// be counted by whatever plan the statistics of the moment suggest, which after many sends is to read all tasks for each key.
const KEYS: &str = "SELECT name, in_use, paused, pinned, sent, latest, rates, now_ns($3) AS now, \
    least($2::bigint, (SELECT coalesce(sum(line.count), 0)::bigint FROM lanes CROSS JOIN LATERAL (SELECT count(*) FROM (\
    SELECT FROM tasks WHERE tasks.lane = lanes.id AND place IS NOT NULL LIMIT $2::bigint) AS places) AS line \
    WHERE lanes.key = keys.id)) AS waiting, \
    least($2::bigint, (SELECT coalesce(sum(later.count), 0)::bigint FROM lanes CROSS JOIN LATERAL (SELECT count(*) FROM (\
    SELECT FROM tasks WHERE tasks.lane = lanes.id AND place IS NULL LIMIT $2::bigint) AS places) AS later \
    WHERE lanes.key = keys.id)) AS delayed \
    FROM keys WHERE name = ANY($1) ORDER BY name COLLATE \"C\"";
const CENSUS: &str = "SELECT count(*) AS keys, count(*) FILTER (WHERE paused) AS paused, \
    count(*) FILTER (WHERE pinned IS NOT NULL) AS pinned, \
    (SELECT count(*) FROM (SELECT FROM dead LIMIT $1) AS letters) AS dead \
    FROM keys WHERE NOT EXISTS (SELECT FROM unnest($2::text[]) AS other WHERE starts_with(name, other))";

/// Tasks are counted once for all keys, not once for each.
const BUSIEST: &str = "SELECT name, in_use, paused, pinned, sent, latest, rates, now_ns($2) AS now, \
    coalesce(line.waiting, 0) AS waiting, coalesce(line.delayed, 0) AS delayed FROM keys \
    LEFT JOIN (SELECT lanes.key, sum(waiting)::bigint AS waiting, sum(delayed)::bigint AS delayed FROM (\
    SELECT lane, count(place) AS waiting, count(due_at) AS delayed FROM tasks GROUP BY lane) AS line \
    JOIN lanes ON lanes.id = line.lane WHERE lanes.key IS NOT NULL GROUP BY lanes.key) AS line ON line.key = keys.id \
    ORDER BY coalesce(line.waiting, 0) + in_use DESC, coalesce(line.delayed, 0) DESC, name COLLATE \"C\" LIMIT $1";

impl Postgres {
    /// Keys in the order of their names.
    pub(super) async fn list_keys(&self, after: String, most: u32) -> Result<Vec<KeySpent>, StoreError> {
        let query = KeyQuery { after, most, ..KeyQuery::default() };
        let (names, _) = self.names_of_keys(query).await?;
        self.see_keys(names, u32::MAX).await
    }

    pub(super) async fn page_of_keys(&self, query: KeyQuery) -> Result<KeyPage, StoreError> {
        let (names, next) = self.names_of_keys(query).await?;
        Ok(KeyPage { keys: self.see_keys(names, MOST_COUNTED).await?, next })
    }

    /// These keys, each with its line counted up to `most`.
    pub(super) async fn see_keys(&self, names: Vec<String>, most: u32) -> Result<Vec<KeySpent>, StoreError> {
        let now = self.shared.told_time();
        let values: Values = vec![Box::new(names), Box::new(i64::from(most)), Box::new(now)];
        Ok(self.rows(KEYS, values).await?.iter().map(spent).collect())
    }

    /// The names of a page, and where the rest begins.
    async fn names_of_keys(&self, query: KeyQuery) -> Result<(Vec<String>, Option<String>), StoreError> {
        let KeyQuery { search, without, sort, after, most } = query;
        let (range, rest, looked_at) = match sort {
            KeySort::All => ("", "", LOOKED_AT),
            KeySort::Paused => ("AND paused", "", LOOKED_AT),
            KeySort::Pinned => ("AND pinned IS NOT NULL", "", LOOKED_AT),
            KeySort::Busy => {
                let rest =
                    "AND (in_use > 0 OR EXISTS (SELECT FROM lanes WHERE lanes.key = seen.id AND state <> 0))";
                ("", rest, LOOKED_INTO)
            }
        };
        // The empty key stands before all others, and behind nothing.
        let range =
            format!("FROM keys WHERE name COLLATE \"C\" > $1 {range} ORDER BY name COLLATE \"C\" LIMIT $2");
        let sql = format!(
            "SELECT name FROM (SELECT id, name, in_use {range}) AS seen \
             WHERE ($3 = '' OR position($3 IN lower(name COLLATE \"C\")) > 0) \
             AND ($4 = '' OR NOT starts_with(name, $4)) {rest} ORDER BY name COLLATE \"C\" LIMIT $5"
        );
        let search = search.to_ascii_lowercase();
        let values: Values = vec![
            Box::new(after.clone()),
            Box::new(looked_at),
            Box::new(search),
            Box::new(without),
            Box::new(i64::from(most)),
        ];
        let rows = self.rows(sql, values).await?;
        let names: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        if names.len() as u32 == most {
            let next = names.last().cloned();
            return Ok((names, next));
        }
        let sql = format!("SELECT name FROM (SELECT name {range}) AS seen OFFSET $2 - 1 LIMIT 1");
        let last = self.rows(sql, vec![Box::new(after), Box::new(looked_at)]).await?;
        Ok((names, last.first().map(|row| row.get(0))))
    }

    /// Those with the most to do.
    pub(super) async fn see_busiest(&self, most: u32) -> Result<Vec<KeySpent>, StoreError> {
        let values: Values = vec![Box::new(i64::from(most)), Box::new(self.shared.told_time())];
        Ok(self.rows(BUSIEST, values).await?.iter().map(spent).collect())
    }

    /// How much there is.
    pub(super) async fn count_all(&self, without: Vec<String>) -> Result<Census, StoreError> {
        let values: Values = vec![Box::new(i64::from(MOST_COUNTED)), Box::new(without)];
        let rows = self.rows(CENSUS, values).await?;
        let count = |column: &str| rows.first().map_or(0, |row| row.get::<_, i64>(column).unsigned_abs());
        Ok(Census {
            keys: count("keys"),
            paused_keys: count("paused"),
            pinned_keys: count("pinned"),
            dead: count("dead"),
        })
    }
}

fn spent(row: &Row) -> KeySpent {
    KeySpent::of(key_look(row, row.get("name")), row.get("rates"), tick(row.get("now")))
}
