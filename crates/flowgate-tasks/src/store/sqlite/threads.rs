//! The thread that writes and the thread that reads.
//!
//! Owns the connections and the transactions. The writer commits everything that waits for it at once; a job that fails is
//! rolled back alone. Answers are given by the [`Disk`], after the commit, never before.

use std::{
    fs::File,
    sync::{Arc, mpsc as std_mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use flowgate_core::Tick;
use rusqlite::Connection;
use tokio::sync::{broadcast, mpsc, oneshot};

use super::{
    candidates::Cursors,
    disk::{Answer, Disk},
    error::Fault,
    open::Opened,
};
use crate::{
    clock::Wall,
    store::{Reply, StoreError, Wake},
    task::TaskId,
};

/// How many jobs wait for a thread before their callers do.
const WAITING: usize = 4096;
/// How many jobs share a commit at most.
const GROUP: usize = 512;
/// How often a shared file is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// What a job works with.
pub(super) struct Hand<'a> {
    pub(super) db: &'a Connection,
    pub(super) now: Tick,
    /// What to say after the commit.
    pub(super) wakes: Vec<Wake>,
    pub(super) cursors: &'a mut Cursors,
    /// Whether nothing else shares the transaction: then a failure ends all of it.
    is_alone: bool,
}

impl Hand<'_> {
    /// There may be something to claim.
    pub(super) fn wake(&mut self) {
        if !self.wakes.contains(&Wake::Work) {
            self.wakes.push(Wake::Work);
        }
    }
}

/// Done with a hand, or refused because there is no transaction. Says whether it worked.
type Write = Box<dyn FnOnce(Result<&mut Hand<'_>, String>) -> (Answer, bool) + Send>;
type Read = Box<dyn FnOnce(&Connection, Tick) -> Answer + Send>;

/// These threads, the one that waits for the disk, and the watch over a shared file.
pub(super) struct Threads {
    writes: Option<mpsc::Sender<Write>>,
    reads: Option<mpsc::Sender<Read>>,
    watch: Option<std_mpsc::Sender<()>>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Without a reader, the writer reads as well.
    pub(super) fn start(
        Opened { writer, file }: Opened,
        reader: Option<(Connection, Connection)>,
        wall: Arc<dyn Wall>,
        wakes: broadcast::Sender<Wake>,
    ) -> Result<Self, StoreError> {
        let mut threads = Threads { writes: None, reads: None, watch: None, handles: Vec::new() };
        let disk = match file.map(Disk::of) {
            Some((disk, syncer)) => {
                threads.spawn("flowgate-sqlite-sync", move || syncer.run(File::sync_data))?;
                disk
            }
            None => Disk::none(),
        };
        if let Some((reader, watcher)) = reader {
            let (send, receive) = mpsc::channel(WAITING);
            let (wall, disk) = (Arc::clone(&wall), disk.clone());
            threads
                .spawn("flowgate-sqlite-read", move || read_all(&reader, receive, wall.as_ref(), &disk))?;
            threads.reads = Some(send);
            let (send, receive) = std_mpsc::channel();
            let wakes = wakes.clone();
            // What others write from now on is a change, however late the thread begins.
            let seen = version(&watcher);
            threads.spawn("flowgate-sqlite-watch", move || watch(&watcher, seen, &receive, &wakes))?;
            threads.watch = Some(send);
        }
        let (send, receive) = mpsc::channel(WAITING);
        threads.spawn("flowgate-sqlite-write", move || {
            Writer { db: &writer, wall: wall.as_ref(), wakes, cursors: Cursors::default(), disk }
                .run(receive);
        })?;
        threads.writes = Some(send);
        Ok(threads)
    }

    /// Does a job in the next transaction, and answers when that is committed and on disk.
    pub(super) fn write<'a, T: Send + 'static>(
        &'a self,
        doing: &'static str,
        job: impl FnOnce(&mut Hand<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Reply<'a, T> {
        let (tell, told) = oneshot::channel();
        let write: Write = Box::new(move |hand| {
            let outcome = match hand {
                Ok(hand) if hand.is_alone => job(hand),
                Ok(hand) => in_savepoint(hand, job),
                Err(why) => Err(StoreError::Database { doing, why }.into()),
            };
            let is_sound = outcome.is_ok();
            let answer = move |committed: Result<(), String>| {
                let answer = match (outcome, committed) {
                    (Ok(_), Err(why)) => Err(StoreError::Database { doing, why }),
                    (outcome, _) => outcome.map_err(|fault| fault.while_it(doing)),
                };
                // Nobody may be left to hear it.
                let _ = tell.send(answer);
            };
            (Box::new(answer), is_sound)
        });
        let writes = self.writes.as_ref();
        Box::pin(async move {
            let closed = || StoreError::Database { doing, why: "the store was closed".to_owned() };
            writes.ok_or_else(closed)?.send(write).await.map_err(|_| closed())?;
            told.await.map_err(|_| closed())?
        })
    }

    /// Reads in a transaction of its own, from what is committed.
    pub(super) fn read<'a, T: Send + 'static>(
        &'a self,
        doing: &'static str,
        job: impl FnOnce(&Connection, Tick) -> Result<T, Fault> + Send + 'static,
    ) -> Reply<'a, T> {
        let Some(reads) = self.reads.as_ref() else {
            return self.write(doing, move |hand| job(hand.db, hand.now));
        };
        let (tell, told) = oneshot::channel();
        let read: Read = Box::new(move |db, now| {
            let outcome = in_snapshot(db, |db| job(db, now));
            Box::new(move |kept: Result<(), String>| {
                let kept = kept.map_err(|why| StoreError::Database { doing, why });
                // Nobody may be left to hear it.
                let _ = tell.send(kept.and_then(|()| outcome.map_err(|fault| fault.while_it(doing))));
            })
        });
        Box::pin(async move {
            let closed = || StoreError::Database { doing, why: "the store was closed".to_owned() };
            reads.send(read).await.map_err(|_| closed())?;
            told.await.map_err(|_| closed())?
        })
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
        let handle = thread::Builder::new().name(name.to_owned()).spawn(run);
        let handle = handle
            .map_err(|error| StoreError::Database { doing: "started a thread", why: error.to_string() })?;
        self.handles.push(handle);
        Ok(())
    }
}

impl Drop for Threads {
    /// Does what was asked for, and closes the file.
    fn drop(&mut self) {
        (self.writes, self.reads, self.watch) = (None, None, None);
        for handle in self.handles.drain(..) {
            // One that panicked has said so.
            let _ = handle.join();
        }
    }
}

struct Writer<'a> {
    db: &'a Connection,
    wall: &'a dyn Wall,
    wakes: broadcast::Sender<Wake>,
    cursors: Cursors,
    disk: Disk,
}

impl Writer<'_> {
    fn run(mut self, mut jobs: mpsc::Receiver<Write>) {
        let mut group = Vec::new();
        while let Some(first) = jobs.blocking_recv() {
            group.push(first);
            while group.len() < GROUP {
                let Ok(next) = jobs.try_recv() else { break };
                group.push(next);
            }
            self.commit(&mut group);
        }
    }

    /// All of these in one transaction.
    fn commit(&mut self, group: &mut Vec<Write>) {
        let is_alone = group.len() == 1;
        let mut answers: Vec<Answer> = Vec::with_capacity(group.len());
        let mut wakes = Vec::new();
        let mut is_sound = true;
        for job in group.drain(..) {
            if self.db.is_autocommit() {
                // The first of the group; or SQLite gave up the whole transaction, because the disk is full, say.
                fail(answers.drain(..), "the transaction was rolled back");
                if let Err(why) = self.run_sql("BEGIN IMMEDIATE") {
                    answers.push(job(Err(why)).0);
                    continue;
                }
            }
            let (db, now, cursors) = (self.db, self.wall.now(), &mut self.cursors);
            let mut hand = Hand { db, now, wakes: Vec::new(), cursors, is_alone };
            let (answer, worked) = job(Ok(&mut hand));
            wakes.append(&mut hand.wakes);
            answers.push(answer);
            is_sound &= worked || !is_alone;
        }
        self.disk.commit(answers, || {
            let committed = match (self.db.is_autocommit(), is_sound) {
                (true, _) => Err("the transaction was rolled back".to_owned()),
                (false, true) => self.run_sql("COMMIT"),
                (false, false) => Err("the job failed".to_owned()),
            };
            if committed.is_err() && !self.db.is_autocommit() {
                let _ = self.run_sql("ROLLBACK");
            }
            committed
        });
        // Before it is on disk: who is woken may claim what is there, and is answered when all of that is kept.
        wakes.sort_unstable_by_key(|wake| matches!(wake, Wake::Work));
        wakes.dedup();
        for wake in wakes {
            // Nobody may listen.
            let _ = self.wakes.send(wake);
        }
    }

    fn run_sql(&self, sql: &str) -> Result<(), String> {
        let run = || self.db.prepare_cached(sql)?.execute([]);
        run().map(drop).map_err(|error| error.to_string())
    }
}

fn fail(answers: impl Iterator<Item = Answer>, why: &str) {
    for answer in answers {
        answer(Err(why.to_owned()));
    }
}

fn in_savepoint<T>(
    hand: &mut Hand<'_>,
    job: impl FnOnce(&mut Hand<'_>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    hand.db.prepare_cached("SAVEPOINT job")?.execute([])?;
    let outcome = job(hand);
    if outcome.is_err() && !hand.db.is_autocommit() {
        hand.db.prepare_cached("ROLLBACK TO job")?.execute([])?;
    }
    if !hand.db.is_autocommit() {
        hand.db.prepare_cached("RELEASE job")?.execute([])?;
    }
    outcome
}

fn in_snapshot<T>(db: &Connection, job: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, Fault> {
    db.prepare_cached("BEGIN")?.execute([])?;
    let outcome = job(db);
    db.prepare_cached("COMMIT")?.execute([])?;
    outcome
}

fn read_all(db: &Connection, mut jobs: mpsc::Receiver<Read>, wall: &dyn Wall, disk: &Disk) {
    while let Some(job) = jobs.blocking_recv() {
        disk.answer(job(db, wall.now()));
    }
}

/// Wakes everybody when the file changed, whoever changed it: the net under what other processes do.
fn watch(
    db: &Connection,
    mut seen: Option<i64>,
    end: &std_mpsc::Receiver<()>,
    wakes: &broadcast::Sender<Wake>,
) {
    let cancels = || -> Vec<i64> {
        let Ok(mut find) = db.prepare_cached("SELECT task FROM cancels LIMIT 1000") else {
            return Vec::new();
        };
        let found = find.query_map([], |row| row.get(0)).and_then(Iterator::collect);
        found.unwrap_or_default()
    };
    while let Err(std_mpsc::RecvTimeoutError::Timeout) = end.recv_timeout(LOOK) {
        let found = version(db);
        if found != seen {
            seen = found;
            let _ = wakes.send(Wake::Work);
            for task in cancels() {
                let _ = wakes.send(Wake::Cancel(TaskId(task)));
            }
        }
    }
}

/// A number that changes when somebody else has written to the file.
fn version(db: &Connection) -> Option<i64> {
    db.prepare_cached("PRAGMA data_version").ok()?.query_row([], |row| row.get(0)).ok()
}
