//! One connection and its prepared statements.
//!
//! Owns how statements travel: prepared once, and sent in flights, so that a transaction of ten statements costs two or
//! three round trips. A session that failed in the middle of a transaction is closed, never used again.

use std::{
    collections::{BTreeSet, HashMap},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures_util::future::try_join_all;
use tokio_postgres::{Client, Row, Statement, error::SqlState, types::ToSql};

use super::{
    identity::{Identity, Known},
    tls::Address,
};
use crate::store::StoreError;

/// Sends statements in one flight, in this order, and gives their answers, or the first error. Whatever comes behind the
/// statement that failed only says that the transaction is aborted: so the answers are looked at in order.
macro_rules! flight {
    ($($statement:expr),+ $(,)?) => { tokio::try_join!(biased; $($statement),+) };
}
pub(super) use flight;

/// How a transaction begins whose first flight changes something. That is on its way before anybody knows whether the transaction
/// began; and if it did not, having been cancelled, say, each statement behind it would be committed by itself.
pub(super) const BEGIN: &str = "BEGIN DEFERRABLE";
/// Whether [`BEGIN`] was obeyed: a condition of every such statement. The word is a mark and nothing else, for it means
/// something only to serializable transactions that read.
macro_rules! begun {
    () => {
        "current_setting('transaction_deferrable') = 'on'"
    };
}
pub(super) use begun;

/// The parameters of a statement.
pub(super) type Params<'a, const N: usize> = [&'a (dyn ToSql + Sync); N];

/// What is counted on, whatever the database has for a default. A statement sees what was committed before it and not before its
/// transaction, and nothing but [`BEGIN`] marks a transaction.
macro_rules! counted_on {
    () => {
        concat!(
            "SET search_path TO flowgate; SET default_transaction_isolation TO 'read committed'; \
             SET default_transaction_deferrable TO off; ",
            given_up!(),
            "; "
        )
    };
}
/// When the server ends a session whose process stands still (frozen, cut off, or with its machine), be it in the middle of a
/// transaction: until then it keeps what it locked, its worker's row and so its tasks among it. See also [`Session::carry`].
///
/// One that is gone is not noticed while its statement waits for a lock, unless the server looks for it; not every
/// system lets it.
macro_rules! given_up {
    () => {
        "SET idle_in_transaction_session_timeout TO '10s'; SET tcp_user_timeout TO '15s'; \
         SET tcp_keepalives_idle TO 10; SET tcp_keepalives_interval TO 5; SET tcp_keepalives_count TO 3; \
         DO $$ BEGIN SET client_connection_check_interval TO '5s'; \
         EXCEPTION WHEN invalid_parameter_value THEN NULL; END $$"
    };
}
pub(super) use given_up;
/// Statements here take a millisecond; compiling one takes hundreds.
const PLAIN: &str = concat!(counted_on!(), "SET jit TO off");
/// The same where every statement finds its rows by an index. A plan is made for what a table holds on average: with a
/// million tasks in ten lanes, to read all of them looks like the shortest way to the first of a lane, and an empty
/// lane has none. And how many rows a `LIMIT $2` lets through it takes for a tenth of all: to twenty lanes of 100,000
/// it found their keys by reading all keys.
///
/// And planned once, whatever the parameters: there is but one way by an index, and to look for it anew with each statement took
/// more than half of a claim.
const BY_INDEX: &str = concat!(
    counted_on!(),
    "SET jit TO off; SET enable_seqscan TO off; \
     SET enable_bitmapscan TO off; SET enable_mergejoin TO off; SET enable_hashjoin TO off; \
     SET plan_cache_mode TO force_generic_plan"
);

/// What carries more than so many bytes is given time for them, and how many there are in a second at the least.
const MUCH: usize = 1024 * 1024;
const SLOWEST: usize = 250_000;

/// So long upkeep waits for a lock that somebody has: a transaction that is open elsewhere may have it for hours.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether a statement waited for a lock in vain, for as long as we wait.
pub(super) fn waited_in_vain(error: &StoreError) -> bool {
    matches!(error, StoreError::Database { why, .. } if why.ends_with("(55P03)"))
}

/// The same, or for as long as the administrator lets a statement last.
pub(super) fn is_locked(error: &StoreError) -> bool {
    let is_cut = |why: &str| why.ends_with("(57014)");
    waited_in_vain(error) || matches!(error, StoreError::Database { why, .. } if is_cut(why))
}

/// How the plans of a connection's statements are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plans {
    /// As the server likes.
    Any,
    /// By index, wherever there is one.
    ByIndex,
    /// The same, and none waits long for others' locks.
    ByIndexSoon,
}

/// A connection.
pub(super) struct Session {
    client: Client,
    statements: HashMap<&'static str, Statement>,
    /// Whether a statement of it was not what was prepared any more.
    is_stale: AtomicBool,
}

impl Session {
    /// Connects, in the schema of the tasks, with these statements prepared; if they are the tables that are known.
    pub(super) async fn open(
        address: &Address,
        known: &Known,
        statements: &[&'static str],
        plans: Plans,
    ) -> Result<Self, StoreError> {
        in_time(Self::opened(address, known, statements, plans)).await
    }

    async fn opened(
        address: &Address,
        known: &Known,
        statements: &[&'static str],
        plans: Plans,
    ) -> Result<Self, StoreError> {
        let (client, connection) = address.connect().await.map_err(failed("connecting"))?;
        // Ends with the client: when that is dropped, or when the server goes.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        let settings = match plans {
            Plans::Any => PLAIN.to_owned(),
            Plans::ByIndex => BY_INDEX.to_owned(),
            Plans::ByIndexSoon => format!("{BY_INDEX}; SET lock_timeout TO '{}ms'", PATIENCE.as_millis()),
        };
        client.batch_execute(&settings).await.map_err(failed("connecting"))?;
        let identity = Identity::of(&client).await.map_err(failed("connecting"))?;
        known.judge(&identity)?;
        let statements: BTreeSet<&'static str> = statements.iter().copied().collect();
        let prepared = try_join_all(statements.iter().map(|sql| client.prepare(sql)));
        let prepared = prepared.await.map_err(failed("preparing its statements"))?;
        let statements = statements.into_iter().zip(prepared).collect();
        Ok(Session { client, statements, is_stale: AtomicBool::new(false) })
    }

    /// Whether it is of no use any more.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed() || self.is_stale.load(Ordering::Relaxed)
    }

    /// One prepared statement. Two calls polled together travel together.
    pub(super) async fn query<const N: usize>(
        &self,
        sql: &'static str,
        params: Params<'_, N>,
    ) -> Result<Vec<Row>, StoreError> {
        let statement =
            self.statements.get(sql).expect("every statement of a session is prepared when it opens");
        self.client.query(statement, &params).await.map_err(|error| {
            if error.code().is_some_and(is_stale) {
                self.is_stale.store(true, Ordering::Relaxed);
            }
            failed("running a statement")(error)
        })
    }

    /// The statement, or nothing at all.
    pub(super) async fn query_if<const N: usize>(
        &self,
        is_needed: bool,
        sql: &'static str,
        params: Params<'_, N>,
    ) -> Result<Vec<Row>, StoreError> {
        if is_needed { self.query(sql, params).await } else { Ok(Vec::new()) }
    }

    /// Plain statements without parameters.
    pub(super) async fn run(&self, sql: &str) -> Result<(), StoreError> {
        self.client.batch_execute(sql).await.map_err(failed("running a statement"))
    }

    /// The same, or nothing at all.
    pub(super) async fn run_if(&self, is_needed: bool, sql: &str) -> Result<(), StoreError> {
        if is_needed { self.run(sql).await } else { Ok(()) }
    }

    /// The transaction is about to carry so many bytes to the server. To that it stands still until a statement is there to its
    /// last byte, so it may for as long as these take. Else what is large would be refused on a slow line, whenever it is tried.
    pub(super) async fn carry(&self, bytes: usize) -> Result<(), StoreError> {
        if bytes <= MUCH {
            return Ok(());
        }
        let seconds = 10 + bytes / SLOWEST;
        let wait = format!("SET LOCAL idle_in_transaction_session_timeout TO '{seconds}s'");
        // In a box: most flights carry little, and would be larger for it.
        Box::pin(self.run(&wait)).await
    }

    /// The connection itself, for statements that are not worth preparing.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }
}

/// How long a new connection may take until it is ready for use. A pooler that has none left takes it in and lets it
/// wait, as long as it likes.
const OPENING: Duration = Duration::from_secs(15);

/// What comes of opening a connection, if it does in time.
pub(super) async fn in_time<T>(
    opening: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let late = |_| {
        let why = format!(
            "a new connection was not served within {OPENING:?}: the server is overloaded, or a pooler in front of it has \
             none left (each process takes six)"
        );
        Err(StoreError::Database { doing: "connecting", why })
    };
    tokio::time::timeout(OPENING, opening).await.unwrap_or_else(late)
}

/// A newer program changed what a prepared statement gives, or somebody between us and the server forgot it: it is
/// prepared anew. Or a table is gone, and then another may be there soon. Or the server takes no writes any more:
/// another one may.
fn is_stale(code: &SqlState) -> bool {
    [
        SqlState::FEATURE_NOT_SUPPORTED,
        SqlState::INVALID_SQL_STATEMENT_NAME,
        SqlState::UNDEFINED_TABLE,
        SqlState::READ_ONLY_SQL_TRANSACTION,
    ]
    .contains(code)
}

/// What an error of the database becomes.
pub(super) fn failed(doing: &'static str) -> impl FnOnce(tokio_postgres::Error) -> StoreError {
    move |error| {
        let why = match error.as_db_error() {
            Some(said) => format!("{} ({})", said.message(), said.code().code()),
            None => std::error::Error::source(&error)
                .map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}")),
        };
        StoreError::Database { doing, why }
    }
}

/// How often a transaction was tried that had to give way to another: 40P01, they waited for each other; 40001, they
/// could not be told apart.
#[derive(Default)]
pub(super) struct Tries(u32);

impl Tries {
    /// Whether it is worth another try. Nothing of it was done.
    pub(super) fn may_go_on_after(&mut self, error: &StoreError) -> bool {
        const MOST: u32 = 5;
        let gave_way = |why: &str| why.ends_with("(40P01)") || why.ends_with("(40001)");
        self.0 += 1;
        self.0 < MOST && matches!(error, StoreError::Database { why, .. } if gave_way(why))
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::{Session, in_time};

    // Seen to fail: without the bound it waited for ever.
    #[tokio::test(start_paused = true)]
    async fn s1_a_connection_that_a_pooler_lets_wait_is_given_up_and_it_is_said_why() {
        let tried = in_time(pending::<Result<Session, _>>()).await;
        let why = tried.err().expect("given up").to_string();
        assert!(why.contains("15s") && why.contains("a pooler") && why.contains("takes six"), "{why}");
    }
}
