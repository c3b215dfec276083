//! The stores, and a fleet of members on one of them.

use std::{
    future::Future,
    sync::atomic::{AtomicU32, Ordering},
    task::Poll,
    time::Duration,
};

use flowgate::shared::{Gate, GateBuilder, KeyedGate};
use flowgate_testkit::{Redis, postgres::Postgres};

/// Longer than anything here may take, however busy the machine: so that what never comes fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A runtime for one test. It has threads of its own: members of a fleet run beside each other.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Tries something on each store. The name is the gate's, new each time.
pub(crate) fn on_each_store<F: Future<Output = ()>>(test: impl Fn(Store) -> F) {
    for store in stores() {
        println!("on {}", store.url);
        runtime().block_on(test(store));
    }
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
            members.push(limits(self.builder()).keyed().start().await.unwrap());
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

/// Waits until a lane of the fleet has so many in use and so many in line.
pub(crate) async fn until(gate: &KeyedGate, key: &str, in_use: u32, waiting: u32) {
    let mut last = None;
    let reached = async {
        loop {
            // On a busy machine the store may be late.
            let Ok(look) = gate.look_key(key).await else { continue };
            last = Some((look.in_use, look.waiting));
            if last == Some((in_use, waiting)) {
                return;
            }
        }
    };
    if tokio::time::timeout(PATIENCE, reached).await.is_err() {
        panic!("{key:?} was to have {in_use} and {waiting}, and had {last:?} at last");
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
