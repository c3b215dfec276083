//! What a turn knows when it decides, made of what its first flight brought. It decides nothing.

use std::collections::{BTreeSet, HashMap, HashSet};

use tokio_postgres::Row;

use super::{
    connect::Lease,
    gather::{Asked, Begun, Rows, gather},
    ready::{A_FEW, MOST_PLAIN, ReadyLanes},
    rows,
};
use crate::{
    ledger::Ledger,
    plan::{Candidate, Counter, LaneState, Scene},
    store::{Claimed, Settle, StoreError},
    task::TaskId,
};

/// What the first flight brought.
pub(super) struct Loaded {
    pub(super) scene: Scene,
    /// Whether there are more lanes than a turn looks at.
    pub(super) has_more: bool,
    /// Whether there are lanes to look at, and all of them are locked by others.
    pub(super) is_locked_out: bool,
    /// Whether no other lane is ready, as far as anybody knows.
    pub(super) sees_all: bool,
    /// What was said of each lane so far. `None`: it was idle until the transaction filled it.
    pub(super) were: Vec<Option<LaneState>>,
    /// What was counted of each key, before anything came back.
    pub(super) counted: Vec<(u32, Ledger)>,
    /// Lanes whose head may take more than one slot.
    pub(super) heavy: HashSet<i64>,
    /// What is given back of leases that are still the worker's, by its place among the settles: the rest was lost before.
    pub(super) back: BTreeSet<usize>,
    /// What had started, and was not the worker's any more or took nobody's place.
    pub(super) missed: Vec<TaskId>,
    /// The leases of the latter.
    pub(super) refused: Vec<i64>,
}

/// Begins the transaction and reads what the plan needs, with what was given back already counted as free.
pub(super) async fn load(
    session: &Lease,
    asked: &Asked<'_>,
    begin: impl Future<Output = Result<Begun, StoreError>>,
) -> Result<(Begun, Loaded), StoreError> {
    let Rows { begun, tried, known, locked, given, cluster, queues, held, ready, filled } =
        gather(session, asked, begin).await?;
    let ReadyLanes { keyed, plain, any } = ready;
    let (waits, most) = (asked.waits(), asked.most_lanes());
    let tried_queues: HashSet<i64> = tried.1.iter().map(|row| row.get(0)).collect();
    let is_locked = |queue: &Row| waits || tried_queues.contains(&queue.get("id"));
    let known = known.first().expect("one row, whether or not there is such a worker");
    if asked.want.is_some() && known.get::<_, Option<i64>>("worker").is_none() {
        return Err(StoreError::Gone { worker: asked.worker });
    }
    let quota = asked.want.map_or(0, |want| want.per_queue);
    let mut builder = Builder {
        scene: Scene {
            now: rows::tick(known.get("now")),
            budget: asked.want.map_or(0, |want| want.slots),
            cluster: cluster
                .first()
                .map(|row| rows::cluster(row, waits || !tried.0.is_empty()))
                .unwrap_or_default(),
            queues: queues.iter().map(|row| rows::queue(row, quota, is_locked(row))).collect(),
            keys: Vec::new(),
            lanes: Vec::new(),
        },
        places: HashMap::new(),
        counted: Vec::new(),
        freed: HashMap::new(),
        seen: HashSet::new(),
        heavy: HashSet::new(),
    };
    for row in &locked {
        builder.key(row, "id");
    }
    let (started, whole, some) = given;
    let gone = || whole.iter().chain(&some);
    let uncounted: HashSet<i64> = gone().filter(|row| row.get("is_ahead")).map(|row| row.get("id")).collect();
    let back = fenced(asked.settles, gone());
    builder.count_starts(asked.starts, &started);
    let counted = |settle: &&Settle| !uncounted.contains(&settle.task.lease);
    builder.give_back(back.iter().map(|&index| &asked.settles[index]).filter(counted));
    let (missed, refused) = builder.start(asked, &started);
    let is_locked_out = keyed.is_empty() && !any.is_empty();
    let has_more = keyed.len() as i64 >= most && most > 0;
    let seen: HashSet<i64> = keyed.iter().map(|row| row.get("lane")).collect();
    let sees_all = plain.len() < MOST_PLAIN
        && any.len() < A_FEW
        && any.iter().all(|row| seen.contains(&row.get::<_, i64>("lane")));
    let known = builder.lanes(plain, keyed, &held, asked.where_to.cursor);
    let filled = builder.filled(&filled.0, &filled.1);
    let were = known.into_iter().map(Some).chain(std::iter::repeat_n(None, filled)).collect();
    let loaded = Loaded {
        scene: builder.scene,
        has_more,
        is_locked_out,
        sees_all,
        were,
        counted: builder.counted,
        heavy: builder.heavy,
        back,
        missed,
        refused,
    };
    Ok((begun, loaded))
}

/// The settles whose lease is still the worker's, each task once.
fn fenced<'a>(settles: &[Settle], leases: impl Iterator<Item = &'a Row>) -> BTreeSet<usize> {
    let mut done: HashMap<i64, HashSet<i64>> =
        leases.map(|row| (row.get("id"), row.get::<_, Vec<i64>>("done").into_iter().collect())).collect();
    let mut is_first =
        |settle: &Settle| done.get_mut(&settle.task.lease).is_some_and(|done| done.insert(settle.task.id.0));
    settles.iter().enumerate().filter(|(_, settle)| is_first(settle)).map(|(index, _)| index).collect()
}

/// A scene in the making.
struct Builder {
    scene: Scene,
    /// Where each key is, and what was counted of it.
    places: HashMap<i64, usize>,
    counted: Vec<(u32, Ledger)>,
    /// How many slots of each key came back, and were not taken by what was claimed ahead.
    freed: HashMap<i64, u32>,
    seen: HashSet<i64>,
    heavy: HashSet<i64>,
}

impl Builder {
    fn key(&mut self, row: &Row, id: &str) -> usize {
        let id: i64 = row.get(id);
        if let Some(&place) = self.places.get(&id) {
            return place;
        }
        let place = self.scene.keys.len();
        let key = rows::key(row, id);
        self.counted.push((key.in_use, key.ledger.clone()));
        self.scene.keys.push(key);
        self.places.insert(id, place);
        place
    }

    /// What was claimed ahead holds slots of its key from its start on. Before what ended is given back: that may be
    /// some of these.
    fn count_starts(&mut self, starts: &[Claimed], known: &[Row]) {
        let new: HashSet<i64> =
            known.iter().filter(|row| row.get("is_new")).map(|row| row.get("id")).collect();
        for task in starts.iter().filter(|task| new.contains(&task.lease)) {
            if let Some(&place) = task.place.key.and_then(|key| self.places.get(&key)) {
                self.scene.keys[place].in_use += task.weight;
            }
        }
    }

    /// What comes back is free for this turn.
    fn give_back<'a>(&mut self, settles: impl Iterator<Item = &'a Settle>) {
        for Settle { task, .. } in settles {
            free_one(&mut self.scene.cluster);
            if let Some(queue) = self.scene.queues.iter_mut().find(|queue| queue.id == task.place.queue) {
                free_one(&mut queue.counter);
            }
            if let Some(&place) = task.place.key.and_then(|key| self.places.get(&key)) {
                let key = &mut self.scene.keys[place];
                key.in_use = key.in_use.saturating_sub(task.weight);
                *self.freed.entry(key.id).or_default() += task.weight;
            }
        }
    }

    /// What was claimed ahead counts from its start on, in the place of one that ended; one that has ended by now, in
    /// its own. Gives what was lost before or takes nobody's place, and the leases of the latter.
    fn start(&mut self, asked: &Asked<'_>, known: &[Row]) -> (Vec<TaskId>, Vec<i64>) {
        let known: HashMap<i64, bool> = known.iter().map(|row| (row.get("id"), row.get("is_new"))).collect();
        let ended: HashSet<i64> = asked.settles.iter().map(|settle| settle.task.lease).collect();
        let mut starts: Vec<&Claimed> = asked.starts.iter().collect();
        starts.sort_by_key(|task| !ended.contains(&task.lease));
        let (mut missed, mut refused) = (Vec::new(), Vec::new());
        for task in starts {
            match known.get(&task.lease) {
                None => missed.push(task.id),
                Some(true) if !self.take_place(task) => {
                    missed.push(task.id);
                    refused.push(task.lease);
                }
                Some(_) => {}
            }
        }
        (missed, refused)
    }

    /// Whether there is a place for one that starts without having asked: of its queue, of the cluster and of its key.
    fn take_place(&mut self, task: &Claimed) -> bool {
        let Builder { scene, places, freed, .. } = self;
        let has_place = |counter: &Counter| counter.cap.is_none() || counter.taken < counter.freed;
        let mut queue = scene.queues.iter_mut().find(|queue| queue.id == task.place.queue);
        let left = |key: &i64| freed.get(key).copied().unwrap_or_default();
        let fits = queue.as_ref().is_none_or(|queue| has_place(&queue.counter))
            && has_place(&scene.cluster)
            && task.place.key.is_none_or(|key| left(&key) >= task.weight);
        if !fits {
            if let Some(&place) = task.place.key.and_then(|key| places.get(&key)) {
                scene.keys[place].in_use = scene.keys[place].in_use.saturating_sub(task.weight);
            }
            return false;
        }
        let counters = queue.as_mut().map(|queue| &mut queue.counter).into_iter().chain([&mut scene.cluster]);
        counters.filter(|counter| counter.cap.is_some()).for_each(|counter| counter.taken += 1);
        if let Some(left) = task.place.key.and_then(|key| freed.get_mut(&key)) {
            *left -= task.weight;
        }
        true
    }

    /// Lanes in the order in which they are served, and what was said of them.
    fn lanes(&mut self, plain: Vec<Row>, keyed: Vec<Row>, held: &[Row], cursor: i64) -> Vec<LaneState> {
        let mut were = Vec::new();
        // With a key or without: one rotation, which goes on behind the lane that was served last.
        let plain = plain.into_iter().map(|row| (row, false));
        let mut ready: Vec<(Row, bool)> = plain.chain(keyed.into_iter().map(|row| (row, true))).collect();
        ready.sort_by_cached_key(|(row, _)| {
            let lane: i64 = row.get("lane");
            (lane <= cursor, lane)
        });
        for (row, has_key) in &ready {
            if self.seen.insert(row.get("lane")) {
                let key = has_key.then(|| self.key(row, "key"));
                self.lane(row, key);
                were.push(LaneState::Ready);
            }
        }
        for row in held {
            if self.seen.insert(row.get("lane")) {
                let key = self.places.get(&row.get::<_, i64>("key")).copied();
                self.lane(row, key);
                were.push(LaneState::Held);
            }
        }
        were
    }

    /// Lanes that were idle until the transaction filled them, and how many.
    fn filled(&mut self, plain: &[Row], keyed: &[Row]) -> usize {
        for row in plain {
            self.lane(row, None);
        }
        for row in keyed {
            let key = self.key(row, "key");
            self.lane(row, Some(key));
        }
        plain.len() + keyed.len()
    }

    fn lane(&mut self, row: &Row, key: Option<usize>) {
        let lane: Candidate = rows::candidate(row, key);
        if key.is_some() && row.get("heavy") {
            self.heavy.insert(lane.id);
        }
        self.scene.lanes.push(lane);
    }
}

fn free_one(counter: &mut Counter) {
    if counter.cap.is_some() {
        counter.freed += 1;
        counter.in_use = counter.in_use.saturating_sub(1);
    }
}
