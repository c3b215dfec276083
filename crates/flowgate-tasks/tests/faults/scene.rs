//! A store, a worker of it, and a connection beside it.

use std::{sync::Arc, time::Duration};

use flowgate_core::Limits;
use flowgate_tasks::{
    NewTask,
    store::{Claimed, NewWorker, Postgres, Store, Turn, Want, WorkerId},
};
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client.batch_execute("SET search_path TO flowgate").await.expect("the schema");
    client
}

pub(crate) struct Scene {
    pub(crate) url: String,
    pub(crate) store: Arc<Postgres>,
    pub(crate) client: Client,
    pub(crate) worker: WorkerId,
}

pub(crate) async fn start(name: &str) -> Scene {
    let url = flowgate_testkit::postgres::Postgres::shared().create_database(name).expect("a database");
    let store = Arc::new(Postgres::connect(&url).await.expect("a store"));
    let worker = register(&store).await;
    Scene { client: connect(&url).await, url, store, worker }
}

pub(crate) async fn register(store: &Postgres) -> WorkerId {
    let lease = Duration::from_secs(60);
    let worker = NewWorker { name: "one".to_owned(), slots: 9, queues: Vec::new(), lease };
    store.register(worker).await.expect("a worker")
}

impl Scene {
    pub(crate) async fn claim(&self) -> Vec<Claimed> {
        let want = Some(Want { slots: 9, per_queue: 9, with_locks: true });
        self.store.turn(self.worker, Turn { want, ..Turn::default() }).await.expect("a turn").claimed
    }

    /// Claims until there are so many.
    pub(crate) async fn claim_all(&self, count: usize) -> Vec<Claimed> {
        let claiming = async {
            let mut claimed = Vec::new();
            while claimed.len() < count {
                claimed.append(&mut self.claim().await);
            }
            claimed
        };
        timeout(DEADLINE, claiming).await.expect("all of them are found")
    }

    pub(crate) async fn count(&self, what: &str) -> i64 {
        self.client.query_one(&format!("SELECT count(*) FROM {what}"), &[]).await.expect("a count").get(0)
    }

    pub(crate) async fn check(&self) {
        assert_eq!(self.store.audit().await.expect("an audit"), [""; 0]);
    }

    /// Waits until somebody waits for what this connection has locked, or the work is over.
    pub(crate) async fn until_it_waits<T>(&self, work: &tokio::task::JoinHandle<T>, holder: &Client) {
        let holder = holder.query_one("SELECT pg_backend_pid()", &[]).await.expect("its process");
        let waits =
            format!("pg_stat_activity WHERE {} = ANY(pg_blocking_pids(pid))", holder.get::<_, i32>(0));
        while !work.is_finished() && self.count(&waits).await == 0 {}
    }

    /// What connections begin with from now on.
    pub(crate) async fn set_default(&self, setting: &str) {
        let set = format!(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET {}', current_database()); END $$",
            setting.replace('\'', "''")
        );
        self.client.batch_execute(&set).await.expect("a default");
    }

    /// Ends all connections of stores; those that come take no writes.
    pub(crate) async fn lead_to_a_standby(&self) {
        self.set_default("default_transaction_read_only TO on").await;
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
            WHERE application_name = 'flowgate' AND datname = current_database()";
        self.client.execute(end, &[]).await.expect("they are ended");
    }

    pub(crate) fn sending(&self, task: NewTask) -> tokio::task::JoinHandle<()> {
        let store = Arc::clone(&self.store);
        tokio::spawn(async move { drop(store.send(vec![task]).await.expect("it is sent")) })
    }
}

pub(crate) fn keyed(key: &str, max: u32) -> NewTask {
    let limits = Limits::builder().max(max).build().expect("limits");
    NewTask::new("one", Vec::new()).key(key).limits(limits)
}
