//! The stores, and a fleet of members on one of them.

use std::{
    future::Future,
    sync::atomic::{AtomicU32, Ordering},
    task::Poll,
    thread,
    time::Duration,
};

use flowgate::{
    Reason, Refusal,
    gate::LaneLook,
    shared::{Gate, GateBuilder, KeyedGate, StartError, StoreError},
};
use flowgate_testkit::{Redis, postgres::Postgres};
use tokio::time::timeout;

/// Longer than anything here may take, however busy the machine: so that what never comes fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// For tests that wait until a lease is over. A gate gives its store a third of this to answer: what may be late for that is
/// asked again, by [`started`] and [`answered`].
pub(crate) const LEASE: Duration = Duration::from_secs(6);

/// A runtime for one test. It has threads of its own: members of a fleet run beside each other.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Tries something on each store. The name is the gate's, new each time.
pub(crate) fn on_each_store<F: Future<Output = ()>>(test: impl Fn(Store) -> F + Sync) {
    on_each(|store| runtime().block_on(test(store)));
}

/// The same for what makes its own runtimes. On all stores at once: most of the time they wait.
pub(crate) fn on_each(test: impl Fn(Store) + Sync) {
    thread::scope(|scope| {
        for store in stores() {
            let name = format!("on {}", store.url);
            thread::Builder::new().name(name).spawn_scoped(scope, || test(store)).unwrap();
        }
    });
}

#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) url: String,
    pub(crate) gate: String,
}

pub(crate) fn stores() -> [Store; 2] {
    static MADE: AtomicU32 = AtomicU32::new(1);
    let name = || format!("gate-{}", MADE.fetch_add(1, Ordering::Relaxed));
    let postgres = Postgres::shared().create_database("shared").unwrap();
    [Store { url: postgres, gate: name() }, Store { url: Redis::shared().url(), gate: name() }]
}

impl Store {
    pub(crate) fn builder(&self) -> GateBuilder {
        Gate::builder(&self.url).name(&self.gate).lease(Duration::from_secs(15))
    }

    /// Members of a fleet with one gate.
    pub(crate) async fn members(
        &self,
        count: usize,
        limits: impl Fn(GateBuilder) -> GateBuilder,
    ) -> Vec<KeyedGate> {
        let mut members = Vec::new();
        for _ in 0..count {
            members.push(started(|| limits(self.builder()).keyed()).await);
        }
        members
    }
}

impl Store {
    /// Does something to what is kept, behind the gates' backs: in SQL, or in Redis's Lua. `{gate}` is the gate's name there.
    pub(crate) fn tamper(&self, sql: &str, lua: &str) -> String {
        match self.url.starts_with("redis") {
            true => Redis::shared().cli(&["EVAL", &lua.replace("{gate}", &self.gate), "0"]).unwrap(),
            false => Postgres::shared().psql(&self.url, &sql.replace("{gate}", &self.gate)).unwrap(),
        }
    }
}

/// Starts a gate. On a busy machine the store may be late, and is asked again then; any other error is told.
pub(crate) async fn try_start<K>(builder: impl Fn() -> GateBuilder<K>) -> Result<Gate<K>, StartError> {
    let answers = async {
        loop {
            match builder().start().await {
                Err(StartError::Store(StoreError::Unreachable(_))) => {}
                answer => return answer,
            }
        }
    };
    timeout(PATIENCE, answers).await.expect("the store answers")
}

pub(crate) async fn started<K>(builder: impl Fn() -> GateBuilder<K>) -> Gate<K> {
    try_start(builder).await.unwrap_or_else(|error| panic!("{error}"))
}

/// What a gate answers that is asked until its store does: on a busy machine that may be late. That it opens at a certain
/// moment is an answer.
pub(crate) async fn answered<T>(ask: impl AsyncFn() -> Result<T, Refusal>) -> Result<T, Refusal> {
    let answers = async {
        loop {
            match ask().await {
                Err(refusal) if refusal.reason == Reason::Unreachable && refusal.retry_after.is_none() => {}
                answer => return answer,
            }
        }
    };
    timeout(PATIENCE, answers).await.expect("the store answers")
}

/// Waits until a lane of the fleet has so many in use and so many in line, and gives that look.
pub(crate) async fn until(gate: &KeyedGate, key: &str, in_use: u32, waiting: u32) -> LaneLook {
    let mut last = None;
    let reached = async {
        loop {
            // On a busy machine the store may be late.
            let Ok(look) = gate.look_key(key).await else { continue };
            last = Some((look.in_use, look.waiting));
            if last == Some((in_use, waiting)) {
                return look;
            }
        }
    };
    match timeout(PATIENCE, reached).await {
        Ok(look) => look,
        Err(_) => panic!("{key:?} was to have {in_use} and {waiting}, and had {last:?} at last"),
    }
}

/// Polls once, and says whether it is done.
pub(crate) async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|cx| {
        Poll::Ready(match std::pin::Pin::new(&mut *future).poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}
