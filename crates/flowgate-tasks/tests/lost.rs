//! What workers held that are gone, on a PostgreSQL that several processes share: who looks for it, and what waits for it.

#![cfg(feature = "postgres")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use flowgate_core::{Limits, Tick};
use flowgate_tasks::{
    NewTask,
    clock::Wall,
    store::{NewWorker, Postgres, PostgresOptions, Store, Turn, Want, WorkerId},
};
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

const DEADLINE: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(15);

/// A clock that is moved by hand. While it stands, upkeep does not look for what nobody told it of.
#[derive(Default)]
struct HandWall(AtomicU64);

impl HandWall {
    fn advance(&self, span: Duration) {
        self.0.fetch_add(span.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Wall for HandWall {
    fn now(&self) -> Tick {
        Tick::from_nanos(1_800_000_000_000_000_000 + self.0.load(Ordering::SeqCst))
    }

    fn passed(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

/// A fleet of one process, whose upkeep has come by.
struct Fleet {
    url: String,
    wall: Arc<HandWall>,
    store: Postgres,
    client: Client,
}

impl Fleet {
    async fn start(name: &str) -> Self {
        let url = flowgate_testkit::postgres::Postgres::shared().create_database(name).expect("a database");
        let wall = Arc::<HandWall>::default();
        let store = join(&url, &wall).await;
        let client = connect(&url).await;
        Fleet { url, wall, store, client }
    }

    /// A worker that holds a task of this key.
    async fn holder(&self, key: &str) -> WorkerId {
        let worker = NewWorker { name: key.to_owned(), slots: 9, queues: Vec::new(), lease: LEASE };
        let worker = self.store.register(worker).await.expect("a worker");
        let limits = Limits::builder().max(9).build().expect("limits");
        let task = NewTask::new("one", Vec::new()).key(key).limits(limits);
        self.store.send(vec![task]).await.expect("sent");
        let want = Some(Want { slots: 1, per_queue: 1, with_locks: true });
        // What tidies up behind the turn before may have its lane for a moment.
        let claimed = async {
            let turn = || Turn { want, ..Turn::default() };
            while self.store.turn(worker, turn()).await.expect("a turn").claimed.is_empty() {}
        };
        timeout(DEADLINE, claimed).await.expect("it has its task");
        worker
    }

    async fn leases(&self) -> i64 {
        self.client.query_one("SELECT count(*) FROM leases", &[]).await.expect("a count").get(0)
    }
}

/// A process of the fleet, whose upkeep has come by.
async fn join(url: &str, wall: &Arc<HandWall>) -> Postgres {
    let options = PostgresOptions { clock: Some(Arc::clone(wall) as Arc<dyn Wall>) };
    let store = Postgres::connect_with(url, options).await.expect("a store");
    store.upkeep().await.expect("upkeep");
    store
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client.batch_execute("SET search_path TO flowgate").await.expect("the schema");
    client
}

/// Somebody who has these keys locked.
async fn locked(url: &str, which: &str) -> Client {
    let other = connect(url).await;
    let lock = format!("BEGIN; SELECT FROM keys WHERE {which} FOR UPDATE");
    other.batch_execute(&lock).await.expect("it has them, and says no more");
    other
}

#[tokio::test]
async fn t5_what_the_process_that_removed_a_worker_did_not_take_back_another_one_does() {
    // Seen to fail: with nothing told of a worker that is removed, the other process took nothing back in time.
    let fleet = Fleet::start("lost_twice").await;
    let other = join(&fleet.url, &fleet.wall).await;
    fleet.holder("k").await;
    let lock = locked(&fleet.url, "true").await;
    fleet.wall.advance(LEASE + Duration::from_secs(1));
    let kept = fleet.store.upkeep().await.expect("upkeep");
    assert!(kept.held_up.is_some() && kept.recovered == 0, "{kept:?}");
    drop(fleet.store);
    lock.batch_execute("ROLLBACK").await.expect("it goes on");
    let taken_back = async { while other.upkeep().await.expect("upkeep").recovered == 0 {} };
    timeout(DEADLINE, taken_back).await.expect("it does not wait until it looks by itself");
    assert_eq!(other.audit().await.expect("an audit"), [""; 0]);
}

#[tokio::test]
async fn t5_leases_of_nobody_are_looked_for_when_there_may_be_some_and_now_and_then() {
    // Seen to fail: with each round looking for them, the second found it; with none but those that were told, the last did not.
    let fleet = Fleet::start("lost_unheard").await;
    let gone = fleet.holder("k").await;
    fleet.client.execute("DELETE FROM workers WHERE id = $1", &[&gone.0]).await.expect("by nobody of us");
    assert_eq!(
        fleet.store.upkeep().await.expect("upkeep").recovered,
        0,
        "nothing is read of what is settled"
    );
    fleet.wall.advance(Duration::from_secs(30));
    assert_eq!(fleet.store.upkeep().await.expect("upkeep").recovered, 1);
    assert_eq!(fleet.store.audit().await.expect("an audit"), [""; 0]);
}

#[tokio::test]
async fn t5_a_process_that_begins_looks_for_what_those_before_it_left() {
    // Seen to fail: with nothing expected at the beginning.
    let fleet = Fleet::start("lost_before").await;
    let gone = fleet.holder("k").await;
    fleet.client.execute("DELETE FROM workers WHERE id = $1", &[&gone.0]).await.expect("by nobody of us");
    join(&fleet.url, &fleet.wall).await;
    assert_eq!(fleet.leases().await, 0, "its first round took it back");
}

#[tokio::test]
async fn t5_a_worker_that_leaves_takes_back_what_it_held_and_nothing_of_others() {
    // Seen to fail: with all that is nobody's taken back by whoever leaves, nothing was left of the other one's.
    let fleet = Fleet::start("lost_others").await;
    let (gone, leaving) = (fleet.holder("k").await, fleet.holder("other").await);
    fleet.client.execute("DELETE FROM workers WHERE id = $1", &[&gone.0]).await.expect("by nobody of us");
    fleet.store.leave(leaving).await.expect("it leaves");
    assert_eq!(fleet.leases().await, 1, "its own was taken back");
}

#[tokio::test]
async fn s1_leases_that_stay_locked_hold_up_no_other() {
    // Seen to fail: with what was not tried left behind what was waited for in vain, the second round waited for the same three;
    // with what shares a key with a locked lease not left to the next round, it was not taken back.
    let fleet = Fleet::start("lost_locked").await;
    for key in ["one", "two", "three", "four", "five", "five", "free"] {
        fleet.holder(key).await;
    }
    let lock = locked(&fleet.url, "name <> 'free'").await;
    fleet.wall.advance(LEASE + Duration::from_secs(1));
    for recovered in [0, 1, 0] {
        let kept = fleet.store.upkeep().await.expect("what is locked fails nothing else");
        let why = kept.held_up.expect("it waited in vain").to_string();
        assert!(why.ends_with("(55P03)"), "{why}");
        assert_eq!(kept.recovered, recovered);
    }
    assert_eq!(fleet.leases().await, 6);
    lock.batch_execute("ROLLBACK").await.expect("it goes on");
    assert_eq!(fleet.store.upkeep().await.expect("upkeep").recovered, 6);
    assert_eq!(fleet.store.audit().await.expect("an audit"), [""; 0]);
}

#[tokio::test]
async fn s1_while_what_is_known_stays_locked_nothing_else_is_looked_for() {
    // Seen to fail: with each round looking anew while something was left, the next one read all that is settled, and found
    // this one.
    let fleet = Fleet::start("lost_known").await;
    let (gone, other) = (fleet.holder("locked").await, fleet.holder("free").await);
    let lock = locked(&fleet.url, "name = 'locked'").await;
    // By nobody of us: whoever removes a worker says so.
    let remove = async |worker: WorkerId| {
        fleet.client.execute("DELETE FROM workers WHERE id = $1", &[&worker.0]).await
    };
    remove(gone).await.expect("removed");
    for _ in 0..3 {
        fleet.wall.advance(Duration::from_secs(10));
        assert!(fleet.store.beat(other).await.expect("renewed"));
    }
    let held_up = async || {
        let kept = fleet.store.upkeep().await.expect("upkeep");
        assert!(kept.held_up.is_some(), "{kept:?}");
        kept.recovered
    };
    assert_eq!(held_up().await, 0);
    remove(other).await.expect("removed");
    assert_eq!(held_up().await, 0);
    fleet.wall.advance(Duration::from_secs(30));
    assert_eq!(held_up().await, 1);
    lock.batch_execute("ROLLBACK").await.expect("it goes on");
    assert_eq!(fleet.store.upkeep().await.expect("upkeep").recovered, 1);
    assert_eq!(fleet.store.audit().await.expect("an audit"), [""; 0]);
}
