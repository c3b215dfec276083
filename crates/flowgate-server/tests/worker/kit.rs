//! Both stores, and tasks in them.

use std::{path::PathBuf, process::Command, sync::Arc, time::Duration};

use flowgate_tasks::{
    Client, NewTask, TaskId,
    store::{Postgres, Sqlite, State, Store, TaskLook, WorkerLook},
};
use flowgate_testkit::postgres;
use tokio::runtime::Runtime;

use crate::program::{DEADLINE, Said, Worker, flowgate, folder, python};

/// A place with a store of its own.
pub(crate) struct Place {
    pub(crate) folder: PathBuf,
    pub(crate) address: String,
    pub(crate) store: Arc<dyn Store>,
    runtime: Runtime,
}

/// Runs a law on SQLite and on Postgres.
pub(crate) fn on_both(name: &str, law: impl Fn(&Place)) {
    law(&Place::sqlite(name));
    law(&Place::postgres(name));
}

impl Place {
    pub(crate) fn sqlite(name: &str) -> Self {
        let folder = folder(&format!("{name}-sqlite"));
        let path = folder.join("flowgate.db");
        let store = Arc::new(Sqlite::open(&path).expect("a new file"));
        let runtime = Runtime::new().expect("a runtime");
        Place { folder, address: format!("sqlite:{}", path.display()), store, runtime }
    }

    pub(crate) fn postgres(name: &str) -> Self {
        let address = postgres::Postgres::shared().create_database(name).expect("a new database");
        let runtime = Runtime::new().expect("a runtime");
        let store = runtime.block_on(Postgres::connect(&address)).expect("it is there");
        Place { folder: folder(&format!("{name}-postgres")), address, store: Arc::new(store), runtime }
    }

    /// The binary, in this place.
    pub(crate) fn flowgate(&self, arguments: &[&str]) -> Command {
        let mut command = flowgate(&self.folder, &self.address);
        command.args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        Said::by(&mut self.flowgate(arguments))
    }

    /// What a command printed that went well.
    pub(crate) fn told(&self, arguments: &[&str]) -> String {
        let said = self.run(arguments);
        assert_eq!((said.code, &*said.stderr), (Some(0), ""), "{arguments:?}: {said:?}");
        said.stdout
    }

    /// A worker with this script.
    pub(crate) fn worker(&self, arguments: &[&str], script: &str) -> Worker {
        Worker::start(&mut self.worker_command(arguments, script))
    }

    pub(crate) fn worker_command(&self, arguments: &[&str], script: &str) -> Command {
        let mut command = self.flowgate(&["worker"]);
        command.args(arguments).arg("--").arg(python()).args(["-S", "-E", "-c", script]);
        command
    }

    pub(crate) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        let patient = async { tokio::time::timeout(DEADLINE, work).await.expect("it comes about in time") };
        self.runtime.block_on(patient)
    }

    pub(crate) fn send(&self, tasks: Vec<NewTask>) -> Vec<TaskId> {
        let sent = self.wait(self.store.send(tasks)).expect("they are stored");
        sent.into_iter().map(|sent| sent.id).collect()
    }

    /// So many tasks whose ends can be waited for.
    pub(crate) fn send_many(&self, count: usize, kind: &str, queue: &str) -> Vec<TaskId> {
        let task = || NewTask::new(kind, b"null".to_vec()).queue(queue).keep_result(Duration::from_secs(600));
        self.send((0..count).map(|_| task()).collect())
    }

    /// Returns when one worker has claimed so many tasks ahead.
    pub(crate) fn until_claimed_ahead(&self, count: u32) {
        self.until_a_worker(|worker| worker.ahead >= count);
    }

    /// Returns when one worker has no more than so many tasks at hand.
    pub(crate) fn until_at_hand(&self, count: u32) {
        self.until_a_worker(|worker| worker.ahead <= count);
    }

    /// Returns when one worker runs so many.
    pub(crate) fn until_in_use(&self, count: u32) {
        self.until_a_worker(|worker| worker.in_use == count);
    }

    fn until_a_worker(&self, holds: impl Fn(&WorkerLook) -> bool) {
        self.wait(async {
            let mut look = tokio::time::interval(Duration::from_millis(20));
            while !self.store.workers().await.expect("the store answers").iter().any(&holds) {
                look.tick().await;
            }
        });
    }

    /// Returns when a worker has this task.
    pub(crate) fn until_held(&self, id: TaskId) {
        self.wait(async {
            let mut look = tokio::time::interval(Duration::from_millis(20));
            let is_held =
                |look: Option<TaskLook>| look.is_some_and(|look| matches!(look.state, State::Held { .. }));
            while !is_held(self.store.look_at_task(id).await.expect("the store answers")) {
                look.tick().await;
            }
        });
    }

    /// How these ended.
    pub(crate) fn ends(&self, ids: &[TaskId]) -> Vec<State> {
        self.wait(async {
            let client = Client::new(Arc::clone(&self.store));
            let mut ends = Vec::new();
            // The last ones first: when they have ended, most others have, and nobody has to look for those.
            for &id in ids.iter().rev() {
                ends.push(client.wait(id).await.expect("the store answers").expect("its end is kept"));
            }
            ends.reverse();
            ends
        })
    }

    /// The error of a task that will not run again.
    pub(crate) fn error(&self, id: TaskId) -> String {
        match self.ends(&[id]).pop() {
            Some(State::Dead { error, .. }) => error,
            other => panic!("task {id}: {other:?}"),
        }
    }
}
