//! A store that goes away, and comes back.

use std::time::Duration;

use flowgate::{
    Reason,
    shared::{Gate, KeyedGate, OnOutage, Pass},
};
use flowgate_testkit::{
    Redis,
    postgres::{Options, Postgres, pool_transactions},
};

use tokio::time::timeout;

use super::kit::{
    LEASE, PATIENCE, Store, answered, on_each_store, poll_once, runtime, started, try_start, until,
};

/// A gate is to open in two hundred years, say its limits: after one byte for their form, and nine for the time they were set at.
const SHUT_SQL: &str = "UPDATE flowgate_shared.lanes SET version = version + 2,
    document = substring(document for 10) || '\\xffffffffffffffff7f' || substring(document from 12)
    WHERE gate = '{gate}' AND name = 'limits'";
const SHUT_LUA: &str = r"local text = redis.call('HGET', 'flowgate:{{gate}}:lanes', 'limits')
    local kept = text:match('\n(.*)$')
    local shut = kept:sub(1, 10) .. ('\255'):rep(8) .. '\127' .. kept:sub(12)
    return redis.call('HSET', 'flowgate:{{gate}}:lanes', 'limits', '7  0\n' .. shut)";

async fn goes_and_comes(url: &str, stop: impl Fn(), start: impl Fn()) {
    let builder = |name: &str| Gate::builder(url).name(name).max(1).lease(LEASE);
    let strict = started(|| builder("strict")).await;
    let open = started(|| builder("open").on_outage(OnOutage::Admit)).await;
    let held = entered(&strict).await;
    assert!(!held.is_lost());
    let unreachable = || strict.look().refusals.of(Reason::Unreachable);
    let before = unreachable();
    stop();
    let refusal = strict.enter().await.unwrap_err();
    assert_eq!(refusal.reason, Reason::Unreachable);
    assert!(refusal.is_retryable());
    assert!(strict.look().trouble.is_some() && unreachable() == before + 1);
    let (one, two) = (open.enter().await.unwrap(), open.enter().await.unwrap());
    assert!(one.is_uncounted() && two.is_uncounted(), "more than max, and both know it");
    assert_eq!(open.look().uncounted, 2);
    // Without a word from the store, the lease is over in time.
    held.lost().await;
    start();
    let pass = entered(&strict).await;
    assert!(!pass.is_lost());
    let is_well = async {
        while strict.look().trouble.is_some() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, is_well).await.expect("it says so");
    let refused = answered(async || strict.try_enter().await).await.unwrap_err();
    assert_eq!(refused.reason, Reason::Busy, "it counts again");
}

/// Enters as soon as the store answers.
async fn entered(gate: &Gate) -> Pass {
    answered(async || gate.enter().await).await.unwrap()
}

async fn entered_key(gate: &KeyedGate, key: &str) -> Pass {
    answered(async || gate.enter_key(key).await).await.unwrap()
}

// Seen to fail: with nobody turned away while the store fails, the entry waited for ever.
#[test]
fn s1_an_outage_of_redis_is_refused_or_let_in_as_said_and_mends_itself() {
    let redis = Redis::start().unwrap();
    let url = redis.url();
    let (stop, start) = (|| redis.kill_nine().unwrap(), || redis.restart().unwrap());
    runtime().block_on(goes_and_comes(&url, stop, start));
}

// Seen to fail: as on Redis.
#[test]
fn s1_an_outage_of_postgres_is_refused_or_let_in_as_said_and_mends_itself() {
    let postgres = Postgres::start(Options::default()).unwrap();
    let url = postgres.create_database("outage").unwrap();
    let (stop, start) = (|| postgres.kill_nine().unwrap(), || postgres.restart().unwrap());
    runtime().block_on(goes_and_comes(&url, stop, start));
}

// Seen to fail: with `opens` left at zero, it had its pass while the other's was still good.
#[test]
fn s1_a_redis_that_forgot_lets_nobody_in_while_a_pass_of_before_is_good() {
    let redis = Redis::start().unwrap();
    let builder = || Gate::builder(&redis.url()).name("forgotten").max(1).lease(LEASE);
    // Its service runs no more once it has its pass: it hears of nothing, and goes by its lease.
    let (deaf, runtime) =
        (tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(), runtime());
    let one = deaf.block_on(started(builder));
    let other = runtime.block_on(started(builder));
    let held = deaf.block_on(entered(&one));
    redis.restart().unwrap();
    let pass = runtime.block_on(entered(&other));
    assert!(held.is_lost() && !pass.is_lost());
}

// Seen to fail: with lanes of a lost lease still to be told of, it never closed; and limits for a closed gate were
// waited for without end.
#[test]
fn g10_a_gate_whose_store_is_gone_closes_when_its_lease_is_over() {
    let redis = Redis::start().unwrap();
    runtime().block_on(async {
        let gate = started(|| Gate::builder(&redis.url()).max(2).lease(LEASE)).await;
        let pass = entered(&gate).await;
        redis.kill_nine().unwrap();
        drop(pass);
        timeout(PATIENCE, gate.close(Duration::ZERO)).await.expect("it closes");
        let set = timeout(PATIENCE, gate.set_limits(gate.limits())).await.expect("it is told");
        assert!(set.is_err());
    });
}

// Seen to fail: with lanes that nobody was told of kept, the third key was refused `keys-full`.
#[test]
fn g7_keys_that_come_while_the_store_is_gone_take_no_room() {
    let redis = Redis::start().unwrap();
    runtime().block_on(async {
        let builder = || Gate::builder(&redis.url()).max(1).lease(LEASE).on_outage(OnOutage::Admit);
        let gate = started(|| builder().keyed().max_keys(2)).await;
        let pass = loop {
            // Counted, for its lease is to be over.
            let pass = gate.enter_key("before").await.unwrap();
            if !pass.is_uncounted() {
                break pass;
            }
        };
        redis.kill_nine().unwrap();
        pass.lost().await;
        for number in 0..20 {
            assert!(gate.enter_key(&format!("key-{number}")).await.unwrap().is_uncounted());
        }
    });
}

// Seen to fail: with the age of a store that knows nothing not looked at, it had its pass while the other's was still good.
#[test]
fn s1_one_who_is_new_at_a_redis_that_forgot_lets_nobody_in_while_a_pass_of_before_is_good() {
    let redis = Redis::start_forgetful().unwrap();
    let builder = || Gate::builder(&redis.url()).name("forgotten").max(1).lease(LEASE);
    let (deaf, runtime) =
        (tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(), runtime());
    let one = deaf.block_on(started(builder));
    let held = deaf.block_on(entered(&one));
    redis.restart().unwrap();
    let pass = runtime.block_on(async {
        // Nobody who was there before has come back.
        let new = started(builder).await;
        entered(&new).await
    });
    assert!(held.is_lost() && !pass.is_lost());
}

// Seen to fail: with the age of a store that knows the limits not asked for, it had its pass while the other's was still good.
#[test]
fn s1_one_who_is_new_at_a_redis_that_has_an_older_state_lets_nobody_in_while_a_pass_of_before_is_good() {
    let redis = Redis::start_forgetful().unwrap();
    let builder = || Gate::builder(&redis.url()).name("older").max(1).lease(LEASE);
    let (deaf, runtime) =
        (tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(), runtime());
    let one = deaf.block_on(started(builder));
    // What a snapshot had of it: the limits, and nobody who holds anything.
    let to_hex = "return (redis.call('HGET', 'flowgate:{older}:lanes', 'limits'):gsub('.', function(c) return \
        ('%02x'):format(c:byte()) end))";
    let from_hex = "local text = ARGV[1]:gsub('..', function(c) return string.char(tonumber(c, 16)) end) \
        return redis.call('HSET', 'flowgate:{older}:lanes', 'limits', text)";
    let limits = redis.cli(&["EVAL", to_hex, "0"]).unwrap();
    let held = deaf.block_on(entered(&one));
    redis.restart().unwrap();
    redis.cli(&["EVAL", from_hex, "0", &limits]).unwrap();
    let pass = runtime.block_on(async {
        let new = started(builder).await;
        entered(&new).await
    });
    assert!(held.is_lost() && !pass.is_lost());
}

// Seen to fail: with what the limits say taken as it is, nobody was let in any more.
#[test]
fn s1_a_gate_whose_stores_clock_was_set_back_is_shut_for_one_lease_at_most() {
    on_each_store(async |store| {
        let opens = async |is_new: bool| {
            let store = Store { gate: format!("{}-{is_new}", store.gate), ..store.clone() };
            let start = async || started(|| store.builder().max(1).lease(LEASE)).await;
            let mut gate = start().await;
            store.tamper(SHUT_SQL, SHUT_LUA);
            if is_new {
                gate = start().await;
            }
            drop(entered(&gate).await);
        };
        tokio::join!(opens(false), opens(true));
    });
}

// Seen to fail: with a gate taken for closed for as long as it says when it opens, each round asked the store for the time.
#[test]
fn s1_a_gate_that_has_opened_after_its_store_forgot_costs_no_more_than_before() {
    let redis = Redis::start_forgetful().unwrap();
    let times = || {
        let said = redis.cli(&["INFO", "commandstats"]).unwrap();
        let calls = said.lines().find_map(|line| line.strip_prefix("cmdstat_time:calls="));
        calls.and_then(|calls| calls.split(',').next()?.parse::<u32>().ok()).unwrap_or(0)
    };
    runtime().block_on(async {
        let gate = started(|| Gate::builder(&redis.url()).max(1).lease(LEASE)).await;
        drop(entered(&gate).await);
        let before = times();
        for _ in 0..300 {
            drop(entered(&gate).await);
        }
        // Renewals ask for it too, now and then.
        assert!(times() - before < 100, "{before} and {}", times());
    });
}

// Seen to fail: with the whole round given up, the other lane's entry was refused as well.
#[test]
fn s2_a_lane_that_cannot_be_read_refuses_its_own_and_nobody_else() {
    on_each_store(async |store| {
        let builder = || store.builder().max(2).keyed();
        let (gate, other) = (builder().start().await.unwrap(), builder().start().await.unwrap());
        let held = other.enter_key("a").await.unwrap();
        store.tamper(
            "UPDATE flowgate_shared.lanes SET version = version + 2, document = '\\xff' WHERE gate = '{gate}' AND name = 'ka'",
            "return redis.call('HSET', 'flowgate:{{gate}}:lanes', 'ka', '7 1 0\\n\\255')",
        );
        for _ in 0..3 {
            let (unread, fine) =
                tokio::join!(gate.enter_key("a").into_future(), gate.enter_key("b").into_future());
            assert_eq!(unread.unwrap_err().reason, Reason::Unreachable);
            drop(fine.unwrap());
        }
        assert!(gate.look_key("a").await.is_err() && gate.look_key("b").await.is_ok());
        // Who held something there goes on as well.
        drop(held);
        drop(other.enter_key("b").await.unwrap());
        store.tamper(
            "DELETE FROM flowgate_shared.lanes WHERE gate = '{gate}' AND name = 'ka'",
            "return redis.call('HDEL', 'flowgate:{{gate}}:lanes', 'ka')",
        );
        assert!(gate.enter_key("a").await.is_ok());
    });
}

// Seen to fail: without the question the gate started.
#[test]
fn s1_behind_a_pooler_of_transactions_a_gate_does_not_start_and_says_what_to_do() {
    let cluster = Postgres::shared();
    let url = cluster.create_database("pooled").unwrap();
    let port = pool_transactions(cluster.port()).unwrap();
    let pooled = url.replace(&format!(":{}/", cluster.port()), &format!(":{port}/"));
    let start = |url: String| async move { Gate::builder(&url).name("pooled").max(1).start().await };
    runtime().block_on(async {
        start(url).await.unwrap();
        let refused = start(pooled).await.err().unwrap().to_string();
        assert!(refused.contains("pool_mode = session"), "{refused}");
    });
}

// Seen to fail: with `CREATE SCHEMA IF NOT EXISTS`, permission was denied for the database, although the schema was there.
#[test]
fn s3_a_role_that_owns_the_schema_needs_no_right_in_the_database() {
    let cluster = Postgres::shared();
    let url = cluster.create_database("least").unwrap();
    cluster.psql(&url, "CREATE ROLE least LOGIN; CREATE SCHEMA flowgate_shared AUTHORIZATION least").unwrap();
    let theirs = url.replace("flowgate@", "least@");
    let start = || Gate::builder(&theirs).name("least").max(1).start();
    runtime().block_on(async {
        start().await.unwrap();
        drop(start().await.unwrap().enter().await.unwrap());
    });
}

// Seen to fail: with `CREATE TABLE IF NOT EXISTS`, permission was denied for the schema, although the tables were there.
#[test]
fn s3_a_role_that_may_only_use_the_tables_will_do() {
    let cluster = Postgres::shared();
    let url = cluster.create_database("tables").unwrap();
    let start = |url: String| async move { Gate::builder(&url).name("tables").max(1).start().await };
    runtime().block_on(async {
        let owner = start(url.clone()).await.unwrap();
        let grant = "CREATE ROLE user_of_lanes LOGIN; \
            DO $$ BEGIN EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database()); \
            EXECUTE format('GRANT CONNECT ON DATABASE %I TO user_of_lanes', current_database()); END $$; \
            GRANT USAGE ON SCHEMA flowgate_shared TO user_of_lanes; \
            GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA flowgate_shared TO user_of_lanes";
        cluster.psql(&url, grant).unwrap();
        let user = start(url.replace("flowgate@", "user_of_lanes@")).await.unwrap();
        let pass = user.enter().await.unwrap();
        assert_eq!(owner.try_enter().await.unwrap_err().reason, Reason::Busy);
        drop(pass);
        user.close(Duration::ZERO).await;
        drop(owner.enter().await.unwrap());
    });
}

// Seen to fail: without a look at its encoding, the gate started, and every key that came together with one that cannot be
// stored was refused.
#[test]
fn s2_a_database_that_cannot_store_every_key_is_refused_when_the_gate_starts() {
    let cluster = Postgres::shared();
    let url = cluster.create_database("encoding").unwrap();
    let (server, _) = url.rsplit_once('/').unwrap();
    let create =
        "CREATE DATABASE latin_lanes TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'";
    cluster.psql(&url, create).unwrap();
    runtime().block_on(async {
        let start = Gate::builder(&format!("{server}/latin_lanes")).max(1).start();
        let refused = start.await.err().unwrap().to_string();
        assert!(
            refused.contains("its encoding is LATIN1") && refused.contains("ENCODING 'UTF8'"),
            "{refused}"
        );
    });
}

/// Limits of this version that say nothing, and ones of another.
const SPOILT: [&str; 2] = ["01", "02"];

// Seen to fail: with those that say nothing taken for ones of a later version, no gate of the name started again; with `opens`
// left at zero, the entry was let in at once, whatever the lost limits had said of when the gate opens.
#[test]
fn s2_limits_that_say_nothing_are_replaced_and_those_of_a_later_version_are_not() {
    on_each_store(async |store| {
        let start = async || try_start(|| store.builder().max(1).lease(LEASE).keyed()).await;
        let gate = start().await.unwrap();
        for (bytes, is_replaced) in SPOILT.into_iter().zip([true, false]) {
            let spoil = || {
                store.tamper(
                    &format!(
                        "UPDATE flowgate_shared.lanes SET version = version + 2, document = '\\x{bytes}'
                         WHERE gate = '{{gate}}' AND name = 'limits'"
                    ),
                    &format!("return redis.call('HSET', 'flowgate:{{{{gate}}}}:lanes', 'limits', '7  0\\n\\{bytes}')"),
                )
            };
            spoil();
            if !is_replaced {
                let (refused, entry) =
                    (start().await.err().unwrap(), gate.enter_key("new").await.unwrap_err());
                assert!(refused.to_string().contains("a newer version may have written it"), "{refused}");
                assert_eq!(entry.reason, Reason::Unreachable);
                continue;
            }
            // By whoever comes, and by whoever is there. Until when the gate was shut is lost with them.
            let slow = started(|| store.builder().max(1).lease(Duration::from_secs(600)).keyed()).await;
            let refused = slow.try_enter_key("a").await.unwrap_err();
            assert!(refused.reason == Reason::Unreachable && refused.retry_after.is_some(), "{refused}");
            spoil();
            let new = start().await.unwrap();
            drop(entered_key(&new, "a").await);
            spoil();
            drop(entered_key(&gate, "b").await);
            assert_eq!(until(&gate, "b", 0, 0).await.limits, gate.limits());
        }
    });
}

// Seen to fail: with whoever stands in line no more taken for let in, all of them had a pass at once.
#[test]
fn g1_a_store_that_forgot_who_stood_in_line_lets_them_in_one_by_one() {
    on_each_store(async |store| {
        // The lease of the other is so long that nobody looks just because it may be over.
        let members = [
            started(|| store.builder().max(1).keyed()).await,
            started(|| store.builder().max(1).lease(Duration::from_secs(600)).keyed()).await,
        ];
        let held = members[1].enter_key("k").await.unwrap();
        store.tamper(
            "CREATE TABLE kept AS SELECT * FROM flowgate_shared.lanes WHERE gate = '{gate}' AND name = 'kk'",
            "return redis.call('HSET', 'kept', 'kk', redis.call('HGET', 'flowgate:{{gate}}:lanes', 'kk'))",
        );
        let mut line = Vec::new();
        for place in 0..3 {
            let mut enter = members[0].enter_key("k").into_future();
            assert!(poll_once(&mut enter).await.is_none());
            until(&members[1], "k", 1, place + 1).await;
            line.push(enter);
        }
        // What a replica is that became the primary, and lacks the last writes.
        store.tamper(
            "UPDATE flowgate_shared.lanes l SET version = k.version, document = k.document, members = k.members FROM kept k
             WHERE l.gate = k.gate AND l.name = k.name",
            "return redis.call('HSET', 'flowgate:{{gate}}:lanes', 'kk', redis.call('HGET', 'kept', 'kk'))",
        );
        drop(held);
        until(&members[1], "k", 0, 0).await;
        let mut late = members[0].enter_key("k").into_future();
        assert!(poll_once(&mut late).await.is_none());
        line.push(late);
        for waiting in (0..4).rev() {
            until(&members[1], "k", 1, waiting).await;
            drop(timeout(PATIENCE, line.remove(0)).await.expect("in order").unwrap());
        }
    });
}
