//! What the server counts while a contestant works: commits, and bytes of its log.

use flowgate_testkit::postgres::Postgres;

const COUNTS: &str = "select xact_commit, (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint \
                      from pg_stat_database where datname = current_database()";

/// The counts at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ledger {
    pub(super) commits: f64,
    pub(super) wal_bytes: f64,
}

impl Ledger {
    /// As they are now. A server process tells its commits at the latest when it ends, so look when a program has ended.
    pub(super) fn read(postgres: &Postgres, database: &str) -> Result<Self, String> {
        let row = postgres.psql(database, COUNTS).map_err(|error| error.to_string())?;
        Self::parse(&row).ok_or_else(|| format!("the server's counts are not understood: {row}"))
    }

    fn parse(row: &str) -> Option<Self> {
        let (commits, wal_bytes) = row.split_once('|')?;
        Some(Ledger { commits: commits.parse().ok()?, wal_bytes: wal_bytes.parse().ok()? })
    }

    /// What was added since, for each of so many tasks.
    pub(super) fn since(self, before: Self, tasks: f64) -> Self {
        Ledger {
            commits: (self.commits - before.commits) / tasks,
            wal_bytes: (self.wal_bytes - before.wal_bytes) / tasks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ledger;

    #[test]
    fn a_row_becomes_counts_for_each_task() {
        let [before, after] = ["100|4096", "300|8192"].map(|row| Ledger::parse(row).unwrap());
        assert_eq!(after.since(before, 100.0), Ledger { commits: 2.0, wal_bytes: 40.96 });
        assert_eq!(Ledger::parse("300"), None);
    }
}
