//! Lanes in PostgreSQL 14 or newer.
//!
//! Owns two tables, one of lanes and one of members, the statements on them, and the one connection on which
//! all of it travels, wake-ups too. It knows no limits: what a document says is bytes to it.
//!
//! **A member that is not in its table is dead**, and nothing brings it back. So a member whose lease ran out
//! is removed by the process that finds it, before anything of it is given away: a renewal that was under way
//! at that moment either came first, and then it is not removed, or finds nothing to renew.

use std::{
    future::{Future, pending, poll_fn},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use flowgate_core::{OptionError, Tick};
use flowgate_tasks::store::Address;
use tokio::{
    sync::mpsc::{self, error::TrySendError},
    task::JoinHandle,
};
use tokio_postgres::{AsyncMessage, Client, Row, Statement, types::ToSql};

use super::{
    document::Member,
    name,
    store::{Loaded, Reply, Seen, Store, StoreError, Swap, Wake},
};

/// The lock keeps two that start together from making the same table. What is there is not made again: `IF NOT EXISTS` asks for
/// the right to make it, also where it is there. Half of each page stays free, so that a document
/// is changed where it stands. Plans are made once, as a rule before there is anything in the tables: so each lane is
/// to be found by its name, one by one, and never by a look at all of them, which is cheaper only then. A swap that
/// waited for another sees what that one left, whatever the database has for a default. What was given up is to end soon, and
/// its session with it, for each further try takes another; a server on a system that cannot tell goes without.
const TABLES: &str = "
    BEGIN;
    SELECT pg_advisory_xact_lock(7164210293746516000);
    DO $$ BEGIN IF to_regnamespace('flowgate_shared') IS NULL THEN CREATE SCHEMA flowgate_shared; END IF; END $$;
    DO $$ BEGIN IF to_regclass('flowgate_shared.members') IS NULL THEN
        CREATE TABLE flowgate_shared.members (
            id bigint PRIMARY KEY,
            gate text COLLATE \"C\" NOT NULL,
            expires timestamptz NOT NULL
        );
    END IF; END $$;
    DO $$ BEGIN IF to_regclass('flowgate_shared.lanes') IS NULL THEN
        CREATE TABLE flowgate_shared.lanes (
            gate text COLLATE \"C\",
            name text COLLATE \"C\",
            version bigint NOT NULL,
            document bytea NOT NULL,
            members bigint[] NOT NULL,
            rests bigint NOT NULL,
            PRIMARY KEY (gate, name)
        ) WITH (fillfactor = 50);
    END IF; END $$;
    COMMIT;
    DO $$ BEGIN PERFORM set_config('client_connection_check_interval', '5s', false);
        EXCEPTION WHEN invalid_parameter_value THEN NULL; END $$;
    SET search_path TO flowgate_shared;
    SET default_transaction_isolation TO 'read committed';
    SET jit TO off;
    SET enable_seqscan TO off;
    SET enable_bitmapscan TO off;
    SET plan_cache_mode TO force_generic_plan";

const JOIN: &str =
    "INSERT INTO members VALUES ($1, $2, clock_timestamp() + $3::bigint * interval '1 microsecond')";

const RENEW: &str = "UPDATE members SET expires = clock_timestamp() + $2::bigint * interval '1 microsecond'
    WHERE id = $1 AND expires > clock_timestamp()";

const LEAVE: &str = "DELETE FROM members WHERE id = $1";

const LOAD: &str = "SELECT l.version, l.document,
        ARRAY(SELECT m FROM unnest(l.members) m
            WHERE NOT EXISTS (SELECT FROM members e WHERE e.id = m AND e.expires > clock_timestamp())),
        (SELECT (extract(epoch FROM min(e.expires) - clock_timestamp()) * 1000000)::bigint
            FROM members e WHERE e.id = ANY(l.members) AND e.id <> $3),
        (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
        EXISTS (SELECT FROM members e WHERE e.id = $3 AND e.expires > clock_timestamp())
    FROM unnest($2::text[]) WITH ORDINALITY AS w (name, place)
    LEFT JOIN LATERAL (SELECT * FROM lanes WHERE gate = $1 AND lanes.name = w.name OFFSET 0) l ON true
    ORDER BY w.place";

/// Waits for a renewal that is under way, and looks again then.
const BURY: &str = "DELETE FROM members WHERE id = ANY($1::bigint[]) AND expires <= clock_timestamp()";

const ALIVE: &str = "SELECT id FROM members WHERE id = ANY($1::bigint[])";

/// Rows are locked, and then added, in the order of their names, so no two swaps wait for each other in a circle.
const SWAP: &str = "WITH wanted AS (
        SELECT * FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bytea[], $6::text[], $7::bigint[])
            AS w (name, expected, version, document, members, rests)
        WHERE $10 = coalesce((SELECT l.version FROM lanes l WHERE l.gate = $1 AND l.name = 'limits'), 0)
    ), locked AS MATERIALIZED (
        SELECT l.name FROM lanes l WHERE l.gate = $1 AND l.name = ANY($2::text[]) ORDER BY l.name FOR UPDATE
    ), changed AS (
        UPDATE lanes l SET version = w.version, document = w.document, members = w.members::bigint[], rests = w.rests
        FROM wanted w JOIN locked USING (name)
        WHERE l.gate = $1 AND l.name = w.name AND l.version = w.expected RETURNING l.name
    ), added AS (
        INSERT INTO lanes SELECT $1, name, version, document, members::bigint[], rests FROM wanted WHERE expected = 0
        ORDER BY name COLLATE \"C\" ON CONFLICT DO NOTHING RETURNING name
    ), done AS (
        SELECT name FROM changed UNION ALL SELECT name FROM added
    ), told AS MATERIALIZED (
        SELECT pg_notify(w.channel, w.name) FROM unnest($8::text[], $9::text[]) AS w (name, channel)
        WHERE w.name IN (SELECT name FROM done)
    )
    SELECT name, (SELECT count(*) FROM told) FROM done";

const CALL: &str = "SELECT pg_notify($1, '')";

/// A page of lanes at a time, so that it costs the same however many there are: of all gates, for nobody may start one
/// any more. Limits go when nobody is there, for whoever comes next brings its own. What others have locked stays: it
/// waits for nobody. And so does what they have changed since it looked: of a row that is another by the time it is
/// locked only its own columns are looked at again, not who of its members is there; its version is.
const SWEEP: &str = "WITH page AS MATERIALIZED (
        SELECT gate, name, version FROM lanes WHERE (gate, name) > ($1, $2) ORDER BY gate, name LIMIT 2000
    ), over AS MATERIALIZED (
        SELECT l.gate, l.name FROM lanes l JOIN page p ON l.gate = p.gate AND l.name = p.name AND l.version = p.version
        WHERE l.rests < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
            AND NOT EXISTS (SELECT FROM members e WHERE e.id = ANY(l.members))
            AND NOT (l.name = 'limits' AND EXISTS (SELECT FROM members e WHERE e.gate = l.gate))
        FOR UPDATE OF l SKIP LOCKED
    ), gone AS (
        DELETE FROM lanes l USING over o WHERE l.gate = o.gate AND l.name = o.name
    ), late AS MATERIALIZED (
        SELECT id FROM members WHERE expires <= clock_timestamp() LIMIT 2000 FOR UPDATE SKIP LOCKED
    ), dead AS (
        DELETE FROM members WHERE id IN (SELECT id FROM late)
    )
    SELECT gate, name FROM page ORDER BY gate, name OFFSET 1999";

pub(crate) struct Postgres {
    address: Address,
    gate: String,
    member: Option<Member>,
    session: Option<Session>,
    /// Whether connections are known to be sessions.
    has_sessions: bool,
    /// Whether a call was begun and not ended.
    is_calling: bool,
    /// Up to which gate's which lane was swept.
    swept: (String, String),
}

struct Session {
    client: Client,
    _driver: Driver,
    wakes: mpsc::Receiver<Wake>,
    /// There was no room for one: then all is looked at.
    has_missed: Arc<AtomicBool>,
    statements: Statements,
}

struct Statements {
    join: Statement,
    renew: Statement,
    leave: Statement,
    load: Statement,
    bury: Statement,
    alive: Statement,
    swap: Statement,
    call: Statement,
    sweep: Statement,
}

/// Reads the connection, for as long as it lives.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Postgres {
    pub(crate) fn new(url: &str, gate: &str) -> Result<Self, OptionError> {
        let address = Address::parse(url).map_err(|error| {
            OptionError::new(
                "store",
                "not an address",
                format!("an address that PostgreSQL accepts ({error})"),
            )
        })?;
        Ok(Postgres {
            address,
            gate: gate.to_owned(),
            member: None,
            session: None,
            has_sessions: false,
            is_calling: false,
            swept: Default::default(),
        })
    }

    /// The connection: a new one, if the last broke or a call on it was dropped.
    async fn session(&mut self) -> Result<&mut Session, StoreError> {
        if self.is_calling || self.session.as_ref().is_none_or(|session| session.client.is_closed()) {
            self.session = None;
            let channels = self.member.map(channel).into_iter().chain([self.channel_of_all()]);
            self.session = Some(Session::open(&self.address, channels.collect()).await?);
        }
        self.is_calling = true;
        Ok(self.session.as_mut().expect("it was opened a moment ago"))
    }

    fn channel_of_all(&self) -> String {
        format!("flowgate_all_{:032x}", name::hash(self.gate.as_bytes()))
    }

    async fn joined(&mut self, member: Member, lease: Duration) -> Result<(), StoreError> {
        if !self.has_sessions {
            self.has_sessions = self.address.keeps_sessions().await.map_err(failed)?;
        }
        if !self.has_sessions {
            return Err(StoreError::Refused(Address::POOLED.to_owned()));
        }
        // Listened to first: nothing that is said to a member is missed.
        self.member = Some(member);
        self.session = None;
        let (id, gate) = (id(member), self.gate.clone());
        let session = self.session().await?;
        session
            .client
            .execute(&session.statements.join, &[&id, &gate, &micros(lease)])
            .await
            .map_err(failed)?;
        self.is_calling = false;
        Ok(())
    }

    async fn loaded(&mut self, names: &[String]) -> Result<Loaded, StoreError> {
        let (gate, own) = (self.gate.clone(), self.member.map_or(0, id));
        let session = self.session().await?;
        let rows =
            session.client.query(&session.statements.load, &[&gate, &names, &own]).await.map_err(failed)?;
        let is_alive = rows.first().is_some_and(|row| row.get(5));
        let mut seen = rows.iter().map(read).collect::<Result<Vec<Seen>, _>>().map_err(failed)?;
        let gone: Vec<i64> = seen.iter().flat_map(|seen| seen.dead.iter().copied().map(id)).collect();
        if !gone.is_empty() {
            session.client.execute(&session.statements.bury, &[&gone]).await.map_err(failed)?;
            let alive = session.client.query(&session.statements.alive, &[&gone]).await.map_err(failed)?;
            let alive: Vec<Member> = alive.iter().map(|row| member(row.get(0))).collect();
            seen.iter_mut().for_each(|seen| seen.dead.retain(|member| !alive.contains(member)));
        }
        self.is_calling = false;
        Ok(Loaded { is_alive, seen })
    }

    async fn swapped(&mut self, swaps: &[Swap], limits: u64) -> Result<Vec<bool>, StoreError> {
        let gate = self.gate.clone();
        let names: Vec<&str> = swaps.iter().map(|swap| swap.name.as_str()).collect();
        let expected: Vec<i64> = swaps.iter().map(|swap| swap.expected.cast_signed()).collect();
        let versions: Vec<i64> = swaps.iter().map(|swap| swap.version.cast_signed()).collect();
        let documents: Vec<&[u8]> = swaps.iter().map(|swap| swap.document.as_slice()).collect();
        let members: Vec<String> = swaps.iter().map(|swap| array(&swap.members)).collect();
        let rests: Vec<i64> = swaps.iter().map(|swap| to_micros(swap.rests_at)).collect();
        let woken = swaps
            .iter()
            .flat_map(|swap| swap.woken.iter().map(|member| (swap.name.as_str(), channel(*member))));
        let (told, channels): (Vec<&str>, Vec<String>) = woken.unzip();
        let limits = limits.cast_signed();
        let params: [&(dyn ToSql + Sync); 10] =
            [&gate, &names, &expected, &versions, &documents, &members, &rests, &told, &channels, &limits];
        let session = self.session().await?;
        let rows = session.client.query(&session.statements.swap, &params).await.map_err(failed)?;
        self.is_calling = false;
        let done: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
        Ok(names.iter().map(|name| done.contains(name)).collect())
    }
}

impl Session {
    async fn open(address: &Address, channels: Vec<String>) -> Result<Self, StoreError> {
        let (client, mut connection) = address.connect().await.map_err(failed)?;
        // Such text may be a key: the whole round that it is in would fail.
        if let Some(why) = Address::misfit(&connection) {
            return Err(StoreError::Refused(format!("the database cannot be used: {why}")));
        }
        let (sender, wakes) = mpsc::channel(1024);
        let has_missed = Arc::new(AtomicBool::new(true));
        let missed = Arc::clone(&has_missed);
        let driver = Driver(tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                let AsyncMessage::Notification(said) = message else { continue };
                let wake = Some(said.payload()).filter(|name| !name.is_empty());
                let wake = wake.map_or(Wake::All, |name| Wake::At(name.to_owned()));
                // The connection is read on in any case: what the service waits for may be behind it.
                if let Err(TrySendError::Full(_)) = sender.try_send(wake) {
                    missed.store(true, Ordering::Release);
                }
            }
            let _ = sender.send(Wake::Gone).await;
        }));
        let listen = channels.iter().map(|channel| format!("; LISTEN \"{channel}\"")).collect::<String>();
        client.batch_execute(&format!("{TABLES}{listen}")).await.map_err(failed)?;
        let statements = Statements::prepare(&client).await.map_err(failed)?;
        Ok(Session { client, _driver: driver, wakes, has_missed, statements })
    }
}

impl Session {
    fn heard(&mut self) -> Option<Wake> {
        if self.has_missed.swap(false, Ordering::AcqRel) {
            while self.wakes.try_recv().is_ok_and(|wake| wake != Wake::Gone) {}
            return Some(Wake::All);
        }
        self.wakes.try_recv().ok()
    }
}

impl Statements {
    async fn prepare(client: &Client) -> Result<Self, tokio_postgres::Error> {
        Ok(Statements {
            join: client.prepare(JOIN).await?,
            renew: client.prepare(RENEW).await?,
            leave: client.prepare(LEAVE).await?,
            load: client.prepare(LOAD).await?,
            bury: client.prepare(BURY).await?,
            alive: client.prepare(ALIVE).await?,
            swap: client.prepare(SWAP).await?,
            call: client.prepare(CALL).await?,
            sweep: client.prepare(SWEEP).await?,
        })
    }
}

impl Store for Postgres {
    fn join(&mut self, member: Member, lease: Duration) -> Reply<'_, ()> {
        Box::pin(self.joined(member, lease))
    }

    fn renew(&mut self, member: Member, lease: Duration) -> Reply<'_, bool> {
        Box::pin(async move {
            let session = self.session().await?;
            let params: [&(dyn ToSql + Sync); 2] = [&id(member), &micros(lease)];
            let renewed = session.client.execute(&session.statements.renew, &params).await.map_err(failed)?;
            self.is_calling = false;
            Ok(renewed == 1)
        })
    }

    fn leave(&mut self, member: Member) -> Reply<'_, ()> {
        Box::pin(async move {
            let session = self.session().await?;
            session.client.execute(&session.statements.leave, &[&id(member)]).await.map_err(failed)?;
            self.is_calling = false;
            Ok(())
        })
    }

    fn load<'a>(&'a mut self, names: &'a [String]) -> Reply<'a, Loaded> {
        Box::pin(self.loaded(names))
    }

    fn swap<'a>(&'a mut self, swaps: &'a [Swap], limits: u64) -> Reply<'a, Vec<bool>> {
        Box::pin(self.swapped(swaps, limits))
    }

    fn call_all(&mut self) -> Reply<'_, ()> {
        Box::pin(async move {
            let channel = self.channel_of_all();
            let session = self.session().await?;
            session.client.execute(&session.statements.call, &[&channel]).await.map_err(failed)?;
            self.is_calling = false;
            Ok(())
        })
    }

    fn age(&mut self) -> Reply<'_, Option<Duration>> {
        Box::pin(async { Ok(None) })
    }

    fn sweep(&mut self) -> Reply<'_, ()> {
        Box::pin(async move {
            let (gate, name) = self.swept.clone();
            let session = self.session().await?;
            let last =
                session.client.query_opt(&session.statements.sweep, &[&gate, &name]).await.map_err(failed)?;
            self.swept = last.map(|last| (last.get(0), last.get(1))).unwrap_or_default();
            self.is_calling = false;
            Ok(())
        })
    }

    fn sweeps_limits(&self) -> bool {
        true
    }

    fn wake(&mut self) -> Pin<Box<dyn Future<Output = Wake> + Send + '_>> {
        Box::pin(async move {
            let Some(session) = &mut self.session else { return pending().await };
            match session.heard() {
                Some(wake) => wake,
                None => session.wakes.recv().await.unwrap_or(Wake::Gone),
            }
        })
    }

    fn heard(&mut self) -> Option<Wake> {
        self.session.as_mut()?.heard()
    }
}

fn read(row: &Row) -> Result<Seen, tokio_postgres::Error> {
    let version: Option<i64> = row.try_get(0)?;
    let dead: Option<Vec<i64>> = row.try_get(2)?;
    let soonest: Option<i64> = row.try_get(3)?;
    let now: i64 = row.try_get(4)?;
    Ok(Seen {
        version: version.map_or(0, i64::cast_unsigned),
        document: row.try_get::<_, Option<Vec<u8>>>(1)?.unwrap_or_default(),
        dead: dead.unwrap_or_default().into_iter().map(member).collect(),
        soonest: soonest.map(|micros| Duration::from_micros(micros.max(0).cast_unsigned())),
        now: Tick::from_nanos(now.max(0).cast_unsigned().saturating_mul(1000)),
    })
}

fn channel(member: Member) -> String {
    format!("flowgate_{:016x}", member.0)
}

fn id(member: Member) -> i64 {
    member.0.cast_signed()
}

fn member(id: i64) -> Member {
    Member(id.cast_unsigned())
}

fn array(members: &[Member]) -> String {
    let ids: Vec<String> = members.iter().map(|member| id(*member).to_string()).collect();
    format!("{{{}}}", ids.join(","))
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

/// A moment in microseconds, rounded up.
fn to_micros(at: Tick) -> i64 {
    i64::try_from(at.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX)
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn failed(error: tokio_postgres::Error) -> StoreError {
    match error.as_db_error() {
        Some(said) => StoreError::Refused(said.to_string()),
        None => StoreError::Unreachable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swap(expected: u64, version: u64, members: &[Member]) -> Swap {
        let (document, members) = (vec![0], members.to_vec());
        Swap {
            name: "ka".to_owned(),
            expected,
            version,
            document,
            members,
            rests_at: Tick::ZERO,
            woken: vec![],
        }
    }

    // Seen to fail: with the version not looked at, the lane was removed with its holder in it.
    #[tokio::test]
    async fn g1_a_lane_that_is_taken_while_it_is_about_to_be_swept_stays() {
        let server = flowgate_testkit::postgres::Postgres::shared();
        let url = server.create_database("sweep").expect("a database");
        let (holder, lease) = (Member(2), Duration::from_secs(600));
        let [mut sweeper, mut user] = [(); 2].map(|()| Postgres::new(&url, "gate").expect("an address"));
        sweeper.join(Member(1), lease).await.expect("joined");
        user.join(holder, lease).await.expect("joined");
        assert_eq!(user.swap(&[swap(0, 5, &[])], 0).await.expect("an idle lane"), [true]);
        // Taken, and not yet for others to see.
        let begun = user.session().await.expect("a session").client.batch_execute("BEGIN").await;
        begun.expect("begun");
        user.is_calling = false;
        assert_eq!(user.swap(&[swap(5, 6, &[holder])], 0).await.expect("taken"), [true]);
        // It waits where it would go past: so it is certain that it has looked before the lane was taken, and removes after.
        let sweep = SWEEP.replace(" SKIP LOCKED", "");
        let client = &sweeper.session().await.expect("a session").client;
        let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.expect("its number").get(0);
        let swept = async { client.query(&sweep, &[&"", &""]).await.expect("swept") };
        let commit = async {
            let client = &user.session().await.expect("a session").client;
            let waits = "SELECT count(*) FROM pg_locks WHERE pid = $1 AND NOT granted";
            while client.query_one(waits, &[&pid]).await.expect("locks").get::<_, i64>(0) == 0 {}
            client.batch_execute("COMMIT").await.expect("committed");
            user.is_calling = false;
        };
        tokio::join!(swept, commit);
        let loaded = user.load(&["ka".to_owned()]).await.expect("loaded");
        assert_eq!(loaded.seen[0].version, 6);
    }
}
