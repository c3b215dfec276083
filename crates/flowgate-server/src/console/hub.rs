//! One look at the store for all pages that watch, however many; none while nobody watches.
//!
//! Owns how often it looks, and which page watches what. A look that takes long is followed by a longer rest,
//! so that watching never takes more than a tenth of what the store can do.

use std::{
    collections::{HashMap, HashSet},
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use flowgate_tasks::store::{Among, KindOf, StoreError};
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, watch},
    time::sleep,
};

use super::sample::{self, Past, Rounds, Sample, Totals};
use crate::{
    api::OF_QUEUES,
    clock,
    delivery::{KIND, QUEUE},
    office::{Desk, Queue, Tally},
};

/// How often it is looked, if that is cheap.
const BEAT: Duration = Duration::from_secs(1);
/// The rest is so many times as long as the look.
const REST: u32 = 9;
const LONGEST_REST: Duration = Duration::from_secs(30);
/// What is counted over everything is counted at every so many looks.
const CENSUS: u64 = 5;
/// So many looks are taken after the last one has left: a page that is loaded again finds no hole.
const IDLE: u32 = 10;
/// A key that nobody watches any more is looked at so many times more: whoever comes back finds its last minute.
const LINGER: u32 = 60;
/// Beyond so many keys none lingers.
const MOST_LINGERING: usize = 2000;
/// So many keys may one page watch.
pub(super) const MOST_KEYS: usize = 100;

/// The one that looks.
pub(crate) struct Hub {
    desk: Desk,
    state: Mutex<State>,
    told: watch::Sender<Arc<Sample>>,
    woken: Notify,
}

#[derive(Default)]
struct State {
    viewers: usize,
    keys: HashMap<String, Watched>,
    totals: Past<Totals>,
}

#[derive(Default)]
struct Watched {
    viewers: usize,
    /// For how many looks nobody has watched it.
    left: u32,
    past: Past<(u64, u64, u64)>,
}

/// One who watches these keys, until it is dropped.
pub(super) struct Viewer {
    hub: Arc<Hub>,
    pub(super) keys: Vec<String>,
    pub(super) told: watch::Receiver<Arc<Sample>>,
}

/// What a look has to remember for the next one.
#[derive(Default)]
struct Before {
    looks: u64,
    at: u64,
    tally: Tally,
    rounds: Rounds,
}

impl Hub {
    pub(crate) fn new(desk: Desk) -> Arc<Self> {
        let (told, _) = watch::channel(Arc::default());
        Arc::new(Hub { desk, state: Mutex::default(), told, woken: Notify::new() })
    }

    /// Looks while anybody watches, until `closed`.
    ///
    /// Cancel safety: dropped, nobody is told anything more.
    pub(crate) async fn run(self: Arc<Self>, closed: impl Future<Output = ()>) {
        tokio::select! {
            () = closed => {}
            () = self.look_for_ever() => {}
        }
    }

    async fn look_for_ever(&self) {
        let (mut before, mut idle) = (Before::default(), 0);
        loop {
            let viewers = self.state().viewers;
            idle = if viewers == 0 { idle + 1 } else { 0 };
            if idle > IDLE {
                self.state().forget();
                before = Before::default();
                while self.state().viewers == 0 {
                    self.woken.notified().await;
                }
            }
            let began = clock::now();
            let sample = match self.look(&mut before).await {
                Ok(sample) => sample,
                Err(error) => Sample { trouble: Some(error.to_string()), ..Sample::default() },
            };
            self.told.send_replace(Arc::new(sample));
            let took = Duration::from_millis(clock::now().saturating_sub(began));
            let rest = (took * REST).clamp(BEAT.saturating_sub(took), LONGEST_REST);
            // Who has just come does not wait for the next beat, if looking is cheap.
            tokio::select! {
                () = sleep(rest) => {}
                () = self.woken.notified(), if took * 20 < BEAT => {}
            }
        }
    }

    async fn look(&self, before: &mut Before) -> Result<Sample, StoreError> {
        let store = &self.desk.store;
        if before.looks.is_multiple_of(CENSUS) {
            let mut census = store.census(vec![OF_QUEUES.to_owned()]).await?;
            census.keys += self.idle_keys().await?;
            let paused_fifo = Queue::all(&**store).await?.iter().filter(|queue| queue.paused).count() as u64;
            let letters = if census.dead == 0 { 0 } else { self.letters().await? };
            before.rounds =
                Rounds { census, letters, paused_fifo, workers: store.workers().await?.len() as u64 };
        }
        let (_, cap) = store.cluster().await?;
        let queues = store.queues().await?;
        let names: Vec<String> = self.state().keys.keys().cloned().collect();
        let looked_for: HashSet<String> = names.iter().cloned().collect();
        let mut keys = HashMap::with_capacity(names.len());
        for some in names.chunks(500) {
            for spent in store.keys_named(some.to_vec()).await? {
                keys.insert(spent.key.key.clone(), spent);
            }
        }
        let (now, tally) = (clock::now(), self.desk.journal.tally());
        let mut totals = Totals::new(now, &queues, cap, before.rounds);
        if before.at > 0 {
            totals = totals.done(before.tally, tally, now.saturating_sub(before.at));
        }
        (before.looks, before.at, before.tally) = (before.looks + 1, now, tally);
        let mut state = self.state();
        state.totals.push(totals.clone());
        state.keys.retain(|name, watched| {
            // One that came while this was asked was not looked at: there is nothing to remember of it.
            if !looked_for.contains(name) {
                return true;
            }
            watched.left = if watched.viewers == 0 { watched.left + 1 } else { 0 };
            let look = keys.get(name).map(|spent| (u64::from(spent.key.in_use), spent.key.waiting));
            let (in_use, waiting) = look.unwrap_or_default();
            watched.past.push((now, in_use, waiting));
            watched.left <= LINGER
        });
        drop(state);
        let keys = keys.into_iter().map(|(name, spent)| (name, sample::key(&spent))).collect();
        Ok(Sample { totals, keys, looked_for, trouble: None })
    }

    /// How many were used lately and are not known to the store any more: they are listed, so they count.
    async fn idle_keys(&self) -> Result<u64, StoreError> {
        let recent: Vec<String> = self.desk.recent_keys().into_iter().map(|spent| spent.key.key).collect();
        let mut idle = recent.len();
        for some in recent.chunks(500) {
            idle -= self.desk.store.keys_named(some.to_vec()).await?.len();
        }
        Ok(idle as u64)
    }

    /// How many messages of this namespace are dead: what a worker's tasks came to is not among the letters.
    async fn letters(&self) -> Result<u64, StoreError> {
        let messages = KindOf { kind: KIND.to_owned(), ..KindOf::default() };
        self.desk.store.count_of(messages, Among::Dead { queue: QUEUE.to_owned() }).await
    }

    /// Watches these keys, and all that is the same for everybody.
    pub(super) fn watch(self: &Arc<Self>, mut keys: Vec<String>) -> Viewer {
        keys.truncate(MOST_KEYS);
        keys.sort_unstable();
        keys.dedup();
        let mut state = self.state();
        if state.keys.len() > MOST_LINGERING {
            state.keys.retain(|_, watched| watched.viewers > 0);
        }
        state.viewers += 1;
        for key in &keys {
            state.keys.entry(key.clone()).or_default().viewers += 1;
        }
        drop(state);
        self.woken.notify_one();
        Viewer { hub: Arc::clone(self), keys, told: self.told.subscribe() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Nobody watches: what was seen is not remembered, for there would be a hole in it.
    fn forget(&mut self) {
        self.totals.clear();
        self.keys.clear();
    }
}

impl Viewer {
    /// What was seen before this one came.
    pub(super) fn history(&self) -> Value {
        let state = self.hub.state();
        let keys: HashMap<&str, Vec<_>> = self
            .keys
            .iter()
            .filter_map(|key| Some((key.as_str(), state.keys.get(key)?.past.all())))
            .collect();
        json!({ "totals": state.totals.all(), "keys": keys })
    }

    /// What was seen last, of what this one watches.
    pub(super) fn sample(&self, sample: &Sample) -> Value {
        if let Some(trouble) = &sample.trouble {
            return json!({ "trouble": trouble });
        }
        let keys: HashMap<&str, &Value> =
            self.keys.iter().filter_map(|key| Some((key.as_str(), sample.keys.get(key)?))).collect();
        // Of a key that was asked for and is not there, there is nothing; of one that was not asked for, nothing is known.
        let unseen: Vec<&String> = self.keys.iter().filter(|key| !sample.looked_for.contains(*key)).collect();
        json!({ "totals": sample.totals, "keys": keys, "unseen": unseen })
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        state.viewers = state.viewers.saturating_sub(1);
        for key in &self.keys {
            if let Some(watched) = state.keys.get_mut(key) {
                watched.viewers = watched.viewers.saturating_sub(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use flowgate_tasks::{
        NewTask,
        store::{End, KeyChange, NewWorker, Settle, Shelf, Sqlite, Turn, Want},
    };

    use super::*;
    use crate::message::{Head, Message, Space};

    #[tokio::test]
    async fn f6_a_look_that_was_not_about_a_key_does_not_say_that_there_is_nothing_of_it() {
        // Seen to fail: without `unseen`, whoever came while the store was asked was told of no such key, and showed it as idle.
        let store: Arc<dyn Shelf> = Arc::new(Sqlite::in_memory().expect("a store"));
        store.change_key("paused".to_owned(), KeyChange::Pause).await.expect("a key");
        let (desk, _log) = Desk::open(store, false).await.expect("a desk");
        let hub = Hub::new(desk);
        let (mut before, first) = (Before::default(), hub.watch(vec!["paused".to_owned()]));
        let look = hub.look(&mut before).await.expect("a look");
        let late = hub.watch(vec!["gone".to_owned(), "paused".to_owned()]);
        assert_eq!(first.sample(&look)["unseen"], json!([]));
        assert_eq!(late.sample(&look)["unseen"], json!(["gone"]));
        let look = hub.look(&mut before).await.expect("a look");
        assert_eq!(late.sample(&look)["unseen"], json!([]), "it was looked for, and is not there");
        assert_eq!(late.sample(&look)["keys"]["paused"]["isPaused"], true);
    }

    #[tokio::test]
    async fn f6_the_letters_are_those_that_are_listed() {
        // Seen to fail: with all that is dead counted, a task of a worker was told as a letter; with the dead of the
        // queue counted, one of another namespace was, and one that was cancelled.
        let store: Arc<dyn Shelf> = Arc::new(Sqlite::in_memory().expect("a store"));
        let (desk, _log) = Desk::open(Arc::clone(&store), false).await.expect("a desk");
        let hub = Hub::new(desk);
        let dead = async || hub.look(&mut Before::default()).await.expect("a look").totals.dead;
        assert_eq!(dead().await, 0);
        let letter = |space: &str| {
            let head = Head { space: Space::read(space).unwrap_or_default(), ..Head::default() };
            Message { head: Box::new(head), body: Bytes::new() }.to_bytes()
        };
        let (name, queues) = ("one".to_owned(), vec!["images".to_owned(), QUEUE.to_owned()]);
        let worker = NewWorker { name, slots: 9, queues, lease: Duration::from_secs(15) };
        let worker = store.register(worker).await.expect("a worker");
        for (queue, kind, space, letters) in
            [("images", "any", "", 0), (QUEUE, KIND, "other", 0), (QUEUE, "any", "", 0), (QUEUE, KIND, "", 1)]
        {
            let task = || NewTask::new(kind, letter(space)).queue(queue);
            let sent = store.send(vec![task(), task()]).await.expect("sent");
            store.cancel(sent[0].id).await.expect("cancelled");
            let want = Some(Want { slots: 1, per_queue: 1, with_locks: true });
            let claimed = store.turn(worker, Turn { want, ..Turn::default() }).await.expect("a turn").claimed;
            let end = |task| Settle { task, end: End::Dead { error: "no".to_owned() } };
            let settles = claimed.into_iter().map(end).collect();
            store.turn(worker, Turn { settles, ..Turn::default() }).await.expect("a turn");
            assert_eq!(dead().await, letters, "{queue} {kind} {space}");
        }
    }
}
