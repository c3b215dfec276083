//! A store that goes away, and comes back.

use std::time::Duration;

use flowgate::{
    Reason,
    shared::{Gate, OnOutage},
};
use flowgate_testkit::{
    Redis,
    postgres::{Options, Postgres},
};

use tokio::time::timeout;

use super::kit::{PATIENCE, runtime};

async fn goes_and_comes(url: &str, stop: impl Fn(), start: impl Fn()) {
    let builder = |name: &str| Gate::builder(url).name(name).max(1).lease(Duration::from_secs(1));
    let strict = builder("strict").start().await.unwrap();
    let open = builder("open").on_outage(OnOutage::Admit).start().await.unwrap();
    let held = strict.enter().await.unwrap();
    assert!(!held.is_lost());
    stop();
    let refusal = strict.enter().await.unwrap_err();
    assert_eq!(refusal.reason, Reason::Unreachable);
    assert!(refusal.is_retryable());
    assert!(strict.look().trouble.is_some() && strict.look().refusals.of(Reason::Unreachable) == 1);
    let (one, two) = (open.enter().await.unwrap(), open.enter().await.unwrap());
    assert!(one.is_uncounted() && two.is_uncounted(), "more than max, and both know it");
    assert_eq!(open.look().uncounted, 2);
    // Without a word from the store, the lease is over in time.
    held.lost().await;
    start();
    let pass = loop {
        if let Ok(pass) = strict.enter().await {
            break pass;
        }
    };
    assert!(strict.look().trouble.is_none() && !pass.is_lost());
    assert_eq!(strict.try_enter().await.unwrap_err().reason, Reason::Busy, "it counts again");
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
    let builder = || Gate::builder(&redis.url()).name("forgotten").max(1).lease(Duration::from_secs(3));
    // Its service runs no more once it has its pass: it hears of nothing, and goes by its lease.
    let (deaf, runtime) =
        (tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(), runtime());
    let one = deaf.block_on(builder().start()).unwrap();
    let other = runtime.block_on(builder().start()).unwrap();
    let held = deaf.block_on(one.enter().into_future()).unwrap();
    redis.restart().unwrap();
    let pass = runtime.block_on(async {
        loop {
            // Until it is there again it is refused.
            if let Ok(pass) = other.enter().await {
                break pass;
            }
        }
    });
    assert!(held.is_lost() && !pass.is_lost());
}

// Seen to fail: with lanes of a lost lease still to be told of, it never closed; and limits for a closed gate were waited for without end.
#[test]
fn g10_a_gate_whose_store_is_gone_closes_when_its_lease_is_over() {
    let redis = Redis::start().unwrap();
    runtime().block_on(async {
        let gate = Gate::builder(&redis.url()).max(2).lease(Duration::from_secs(1)).start().await.unwrap();
        let pass = gate.enter().await.unwrap();
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
        let builder = Gate::builder(&redis.url()).max(1).lease(Duration::from_secs(1));
        let gate = builder.on_outage(OnOutage::Admit).keyed().max_keys(2).start().await.unwrap();
        let pass = gate.enter_key("before").await.unwrap();
        redis.kill_nine().unwrap();
        pass.lost().await;
        for number in 0..20 {
            assert!(gate.enter_key(&format!("key-{number}")).await.unwrap().is_uncounted());
        }
    });
}
