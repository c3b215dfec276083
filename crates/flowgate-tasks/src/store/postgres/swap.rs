//! A turn in one statement: what ended in a lane is replaced by as many from the same lane, and nothing else
//! changes.
//!
//! Once a worker without keys is busy nearly every turn is such a one, and to read what a plan decides by was
//! a third of it. Here the statement itself asks whether the plan could decide anything else. If so, or if it
//! does not find all that it would take, it changes nothing, and an ordinary turn follows. What a process
//! remembers of its last turn says only whether to try. Lanes whose keys are full have a statement of their
//! own ([`super::swap_keys`]).
//!
//! Why the laws hold. **Caps**: as many are taken as come back, so no count changes, and none is written; it
//! is done only while no more are out than each cap allows. Whoever changes a cap waits for the table of
//! leases, which the statement has before it looks: it is the table it is about, so it comes first. **All
//! that is free is taken**: either the worker has no other slot, or a cap is reached, and what came back is
//! all there is. **Order**: no other lane is ready that the worker serves, so there is nothing to choose
//! between; of the lane, the first are taken, as ever. **Fencing**: every task that ended has to be in a
//! lease that is the worker's, locked, and not be settled before; and the worker itself must be there, and
//! stays while the statement lasts.
//!
//! It waits for the rows of its worker and of its own leases, and for nothing after that: tasks are taken
//! where nobody else has them.

use std::{
    collections::{HashMap, HashSet},
    sync::atomic::{AtomicI64, Ordering},
};

use flowgate_core::Tick;

use super::{
    balance::{SURE, Way, leased},
    connect::{Lease, Shared},
    gather::{is_served, serves},
    rows,
    session::Params,
    settle::Ends,
    swap_keys::{self, Full},
    turn::Turnout,
};
use crate::{
    plan::{Grant, Scene},
    store::{Again, Claimed, Place, Settle, StoreError, Turn, Turned, WorkerId},
};

/// No more tasks than these: what is saved is the same for one and for many, and the statement locks what the ordinary
/// turn only deletes. A drain of 500 at a time took the server 6.5 µs for a task, and 5.8 without.
const MOST: u32 = SURE;

/// $3: the worker has no slot but those that come back. $10: how many leases there are in $7.
pub(super) const SWAP: &str = concat!(
    "WITH own AS MATERIALIZED (SELECT leases.id FROM lanes JOIN queues ON queues.id = lanes.queue CROSS JOIN cluster \
     CROSS JOIN workers CROSS JOIN leases WHERE lanes.id = $1 AND state = 1 AND key IS NULL AND NOT paused AND ",
    is_served!(),
    " AND (cap IS NULL OR cluster.in_use <= cap) AND (max IS NULL OR queues.in_use <= max) \
     AND ($3 OR coalesce(cluster.in_use = cap, false) OR coalesce(queues.in_use = max, false)) \
     AND NOT EXISTS (SELECT FROM queues CROSS JOIN LATERAL (\
     (SELECT queue FROM lanes WHERE queue = queues.id AND state = 1 AND key IS NULL AND id <> $1 LIMIT 1) UNION ALL \
     (SELECT queue FROM lanes WHERE queue = queues.id AND state = 1 AND key IS NOT NULL LIMIT 1)) AS lanes \
     WHERE NOT paused AND ",
    serves!("$5"),
    ") AND workers.id = $5 AND leases.id = ANY($7) AND worker + 0 = $5 AND ahead_until IS NULL AND NOT done && $8 \
     ORDER BY leases.id FOR KEY SHARE OF workers FOR UPDATE OF leases), \
     taken AS (DELETE FROM tasks WHERE ctid = ANY((SELECT array_agg(spot) FROM (\
     SELECT ctid AS spot FROM tasks WHERE lane = $1 AND place >= $6 AND (good_until IS NULL OR good_until > now_ns($4)) \
     AND (SELECT count(*) FROM own) = $10 ORDER BY place, id LIMIT $2 FOR UPDATE SKIP LOCKED) AS picked \
     HAVING count(*) = $2)::tid[]) RETURNING id, lane, place, attempt, weight, good_until, record), \
     ended AS (DELETE FROM leases WHERE id = ANY($9) AND EXISTS (SELECT FROM taken)), \
     shrunk AS (UPDATE leases SET done = done || ARRAY(\
     SELECT id FROM unnest($7::bigint[], $8::bigint[]) AS told (lease, id) WHERE lease = leases.id) \
     WHERE id = ANY($7) AND id <> ALL($9) AND EXISTS (SELECT FROM taken))",
    leased!("now_ns($4)")
);

/// Where a turn may be repeated, as far as this process knows.
#[derive(Default)]
pub(super) struct Steady {
    /// A lane without a key. 0: none.
    lane: AtomicI64,
    full: Full,
}

impl Steady {
    /// What an ordinary turn with these grants was like, once they are booked.
    pub(super) fn see(&self, scene: &Scene, grants: &[Grant], way: Way, heavy: &HashSet<i64>) {
        self.full.see(scene, heavy);
        let lane = match (&scene.lanes[..], grants) {
            (_, []) => return,
            ([lane], [_]) if lane.key.is_none() && way != Way::Written => lane.id,
            _ => 0,
        };
        self.lane.store(lane, Ordering::Relaxed);
    }

    /// Whether it is worth a try where these lanes were left.
    fn may_be(&self, lanes: &[i64]) -> bool {
        lanes == [self.lane.load(Ordering::Relaxed)] || self.full.has(lanes)
    }

    fn forget(&self) {
        self.lane.store(0, Ordering::Relaxed);
        self.full.forget();
    }
}

/// What ended, as a swap is told of it: each task once, and nothing is to be written of any.
pub(super) struct Ended {
    /// The places that were left, and how often, in the order of their lanes.
    pub(super) places: Vec<(Place, i32)>,
    pub(super) lanes: Vec<i64>,
    pub(super) leases: Vec<i64>,
    pub(super) ids: Vec<i64>,
    /// How many leases there are among these.
    pub(super) many: i64,
}

impl Ended {
    /// `None`: a plan has to see it.
    fn of(settles: &[Settle]) -> Option<Self> {
        let leases: Vec<i64> = settles.iter().map(|settle| settle.task.lease).collect();
        let ids: Vec<i64> = settles.iter().map(|settle| settle.task.id.0).collect();
        let is_told_twice = ids.iter().collect::<HashSet<_>>().len() < ids.len();
        let is_heavy =
            settles.iter().any(|settle| settle.task.weight != 1 && settle.task.place.key.is_some());
        if settles.is_empty() || is_told_twice || is_heavy || !Ends::of(settles.iter(), Tick::ZERO).is_empty()
        {
            return None;
        }
        let mut places: Vec<(Place, i32)> = Vec::new();
        for Settle { task, .. } in settles {
            match places.iter_mut().find(|(place, _)| place.lane == task.place.lane) {
                Some((_, count)) => *count += 1,
                None => places.push((task.place, 1)),
            }
        }
        places.sort_unstable_by_key(|(place, _)| place.lane);
        let lanes = places.iter().map(|(place, _)| place.lane).collect();
        let many = leases.iter().collect::<HashSet<_>>().len() as i64;
        Some(Ended { places, lanes, leases, ids, many })
    }
}

/// The turn in one statement. `None`: nothing happened, and an ordinary one has to decide.
pub(super) async fn swap(
    shared: &Shared,
    session: &Lease,
    worker: WorkerId,
    (turn, whole): (&Turn, &HashSet<i64>),
) -> Result<Option<Turnout>, StoreError> {
    let Turn { settles, starts, want, ahead } = turn;
    let (Some(want), true, None) = (want, starts.is_empty(), ahead) else { return Ok(None) };
    // While a lane is promised, another one is ready than the one that was left.
    if !shared.turning.promised.is_empty() {
        return Ok(None);
    }
    let count = settles.len() as u32;
    // One that takes as much of a queue as it may in one pass has to look again; one that may be too large, at sizes.
    if count > want.slots.min(MOST) || count >= want.per_queue || !shared.turning.largest.fits(count) {
        return Ok(None);
    }
    let steady = &shared.turning.steady;
    let Some(ended) = Ended::of(settles).filter(|ended| steady.may_be(&ended.lanes)) else {
        return Ok(None);
    };
    let (whole_ids, told) = (whole.iter().copied().collect::<Vec<i64>>(), shared.told_time());
    let lows = shared.turning.marks.of(&ended.lanes);
    let rows = match &ended.places[..] {
        [(Place { lane, key: None, .. }, _)] => {
            let (count, is_spent) = (i64::from(count), want.slots == count);
            let params: Params<'_, 10> = [
                lane,
                &count,
                &is_spent,
                &told,
                &worker.0,
                &lows[0],
                &ended.leases,
                &ended.ids,
                &whole_ids,
                &ended.many,
            ];
            session.query(SWAP, params).await?
        }
        _ => swap_keys::ask(session, worker, (&ended, &steady.full), (&lows, &whole_ids, told)).await?,
    };
    let Some(row) = rows.first() else {
        steady.forget();
        return Ok(None);
    };
    let places: HashMap<i64, Place> = ended.places.iter().map(|(place, _)| (place.lane, *place)).collect();
    let claimed: Vec<Claimed> =
        rows::claimed(row).map(|told| Claimed { place: places[&told.place.lane], ..told }).collect();
    shared.turning.settled(settles, whole);
    shared.turning.claimed(worker, &claimed);
    if let Some(task) = claimed.last() {
        shared.turning.cursor.store(task.place.lane, Ordering::Relaxed);
    }
    let (now, again) = (rows::tick(row.get("since")), Again::WhenWoken);
    let turned = Turned { claimed, now, again, ..Turned::default() };
    Ok(Some(Turnout { turned, ..Turnout::default() }))
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use flowgate_core::Limits;

    use super::swap;
    use crate::{
        store::{
            Claimed, End, NewWorker, Postgres, QueueLimits, Settle, Store as _, Turn, Turned, Want, WorkerId,
            postgres::{beside::behind, connect::Line},
        },
        task::NewTask,
    };

    /// A store, and a worker that has been busy for a while.
    pub(in super::super) struct Busy {
        pub(in super::super) url: String,
        pub(in super::super) store: Postgres,
        worker: WorkerId,
        pub(in super::super) running: Vec<Claimed>,
    }

    impl Busy {
        /// With a cap of two: two run, and others wait in one lane.
        async fn new(tasks: usize) -> Self {
            let mut busy = Busy::with((0..tasks).map(|_| task()).collect(), Some(2)).await;
            busy.go_on().await;
            busy
        }

        /// What may run of these runs.
        pub(in super::super) async fn with(tasks: Vec<NewTask>, cap: Option<u32>) -> Self {
            let url =
                flowgate_testkit::postgres::Postgres::shared().create_database("swap").expect("a database");
            let store = Postgres::connect(&url).await.expect("a store");
            store.set_cluster_cap(cap).await.expect("a cap");
            store.send(tasks).await.expect("sent");
            let worker = worker(&store).await;
            let mut busy = Busy { url, store, worker, running: Vec::new() };
            busy.running = busy.turn(Vec::new(), 5).await.claimed;
            busy
        }

        /// The next turn is an ordinary one.
        pub(in super::super) fn forget(&self) {
            self.store.shared.turning.steady.forget();
        }

        /// An ordinary turn that gives back one and takes one.
        async fn go_on(&mut self) {
            self.forget();
            let settles = vec![done(self.running.remove(0))];
            self.running.extend(self.turn(settles, 4).await.claimed);
            assert_eq!(self.running.len(), 2, "as many as may run");
        }

        pub(in super::super) async fn turn(&self, settles: Vec<Settle>, slots: u32) -> Turned {
            let with_locks = settles.is_empty();
            let want = (slots > 0).then_some(Want { slots, per_queue: u32::MAX, with_locks });
            self.store.turn(self.worker, Turn { settles, want, ..Turn::default() }).await.expect("a turn")
        }

        /// The numbers of what was claimed in the place of these, if nothing had to be decided.
        pub(in super::super) async fn swap(&self, ended: &[&Claimed], slots: u32) -> Option<Vec<i64>> {
            self.swap_of(self.worker, ended, slots).await
        }

        pub(in super::super) async fn swap_of(
            &self,
            worker: WorkerId,
            ended: &[&Claimed],
            slots: u32,
        ) -> Option<Vec<i64>> {
            let settles: Vec<Settle> = ended.iter().map(|task| done((*task).clone())).collect();
            let want = Some(Want { slots, per_queue: u32::MAX, with_locks: false });
            let turn = Turn { settles, want, ..Turn::default() };
            let whole = self.store.shared.turning.whole(&turn.settles);
            let job = self.store.job(Line::Turns, move |shared, session| async move {
                swap(&shared, &session, worker, (&turn, &whole)).await
            });
            let turned = job.await.expect("an answer").map(|turnout| turnout.turned);
            assert_eq!(self.store.audit().await.expect("an audit"), [""; 0]);
            turned.map(|turned| turned.claimed.iter().map(|task| task.id.0).collect())
        }

        /// Nothing comes of a swap for so many slots, and an ordinary turn leaves so many running.
        async fn decides(&mut self, why: &str, slots: u32, running: usize) {
            let ended = self.running.remove(0);
            assert_eq!(self.swap(&[&ended], slots).await, None, "{why}");
            let turned = self.turn(vec![done(ended)], slots).await;
            assert_eq!(turned.lost, [], "nothing had happened");
            self.running.extend(turned.claimed);
            assert_eq!(self.running.len(), running, "{why}");
        }

        pub(in super::super) async fn run(&self, sql: &'static str) {
            let job = self.store.job(Line::Rest, move |_, session| async move { session.run(sql).await });
            job.await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        }

        async fn cap_queue(&self, max: u32) {
            let queue = QueueLimits { name: "default".to_owned(), priority: 1, max: Some(max) };
            self.store.set_queue(queue).await.expect("a cap of the queue");
        }
    }

    pub(in super::super) fn task() -> NewTask {
        NewTask::new("one", Vec::new())
    }

    pub(in super::super) fn done(task: Claimed) -> Settle {
        Settle { task, end: End::Done { result: Vec::new() } }
    }

    pub(in super::super) async fn worker(store: &Postgres) -> WorkerId {
        let (name, lease) = ("one".to_owned(), Duration::from_secs(600));
        store.register(NewWorker { name, slots: 5, queues: Vec::new(), lease }).await.expect("a worker")
    }

    // Seen to fail: with `done` left as it was, both that had ended were still there to be settled; with `ORDER BY
    // place DESC`, the last of the lane came first.
    #[tokio::test]
    async fn t1_what_ended_is_replaced_by_the_next_of_its_lane_and_no_count_changes() {
        let mut busy = Busy::new(12).await;
        let (first, second) = (&busy.running[0], &busy.running[1]);
        let last = second.id.0;
        assert_eq!(busy.swap(&[first], 4).await, Some(vec![last + 1]), "the cap is reached");
        assert_eq!(busy.store.cluster().await.expect("a look"), (2, Some(2)));
        assert_eq!(busy.swap(&[second], 1).await, Some(vec![last + 2]), "and no other slot is free");
        busy.store.set_cluster_cap(None).await.expect("no cap");
        busy.running = busy.turn(Vec::new(), 3).await.claimed;
        let ended = &busy.running[1..];
        let last = ended[1].id.0;
        let taken = busy.swap(&[&ended[0], &ended[1]], 2).await;
        assert_eq!(taken, Some(vec![last + 1, last + 2]), "two of a lease of three");
        let settles = busy.running.iter().cloned().map(done).collect();
        assert_eq!(busy.turn(settles, 0).await.lost, [ended[0].id, ended[1].id], "the third had not ended");
    }

    // Seen to fail: without `NOT paused`, `in_use <= cap`, `in_use <= max`, or what stands behind `$3`, a task was
    // taken: of the paused queue, under the lowered cap, under that of the queue, and with room for more.
    #[tokio::test]
    async fn t1_a_swap_leaves_it_to_the_plan_where_a_cap_or_a_pause_came() {
        let mut busy = Busy::new(30).await;
        busy.store.pause_queue("default".to_owned(), true).await.expect("a pause");
        busy.decides("the queue is paused", 1, 1).await;
        busy.store.pause_queue("default".to_owned(), false).await.expect("no pause");
        busy.running.extend(busy.turn(Vec::new(), 4).await.claimed);
        busy.go_on().await;
        busy.store.set_cluster_cap(Some(1)).await.expect("a cap");
        busy.decides("the cap was lowered", 1, 1).await;
        busy.store.set_cluster_cap(Some(2)).await.expect("a cap");
        busy.running.extend(busy.turn(Vec::new(), 4).await.claimed);
        busy.go_on().await;
        busy.store.set_cluster_cap(Some(3)).await.expect("a cap");
        busy.decides("there is room for more than ended, for one who has the counts", 4, 2).await;
        busy.cap_queue(2).await;
        busy.go_on().await;
        let ended = busy.running.remove(0);
        assert!(busy.swap(&[&ended], 4).await.is_some(), "the queue's cap is reached");
        busy.cap_queue(1).await;
        busy.decides("the queue's cap was lowered", 1, 0).await;
    }

    // Seen to fail: without either half of the ready lanes, or with those of one queue only, the other lane was passed
    // over; without the count of those picked, one of two was replaced, and the audit found one less than was counted.
    #[tokio::test]
    async fn t3_a_swap_leaves_it_to_the_plan_where_another_lane_is_ready() {
        let limits = Limits::builder().max(1).build().expect("limits");
        for (why, other) in [
            ("of another priority", task().priority(1)),
            ("with a key", task().key("key").limits(limits)),
            ("of another queue", task().queue("other")),
        ] {
            let mut busy = Busy::new(30).await;
            busy.store.send(vec![other]).await.expect("sent");
            busy.decides(why, 4, 2).await;
        }
        let busy = Busy::new(30).await;
        busy.store.send(vec![task().queue("other")]).await.expect("sent");
        busy.store.pause_queue("other".to_owned(), true).await.expect("a pause");
        assert!(busy.swap(&[&busy.running[0]], 4).await.is_some(), "of a queue that is paused");
        let busy = Busy::new(4).await;
        let ended: Vec<&Claimed> = busy.running.iter().collect();
        assert_eq!(busy.swap(&ended, 5).await, None, "but one is left in the lane");
    }

    // Seen to fail: with one told twice let through, the audit found three under a cap of two; without `worker + 0 =
    // $5`, `is_served` or `NOT done && $8`, what was another's, of a queue not served, or settled before was replaced;
    // without `ahead_until IS NULL`, what had not counted was.
    #[tokio::test]
    async fn t5_a_swap_settles_only_what_is_still_the_workers() {
        let mut busy = Busy::new(30).await;
        let first = &busy.running[0];
        assert_eq!(busy.swap(&[first, first], 4).await, None, "it ended once");
        busy.go_on().await;
        let other = worker(&busy.store).await;
        assert_eq!(busy.swap_of(other, &[&busy.running[0]], 4).await, None, "it is another's");
        busy.go_on().await;
        busy.run("UPDATE flowgate.workers SET queues = '{-1}'").await;
        assert_eq!(busy.swap(&[&busy.running[0]], 4).await, None, "it does not serve the queue");
        busy.run("UPDATE flowgate.workers SET queues = NULL").await;
        busy.store.set_cluster_cap(Some(5)).await.expect("a cap");
        let more = busy.turn(Vec::new(), 3).await.claimed;
        assert_eq!(more.len(), 3, "of one lease");
        busy.turn(vec![done(more[0].clone())], 0).await;
        busy.go_on().await;
        assert_eq!(busy.swap(&[&more[0]], 1).await, None, "it had been settled");
        busy.go_on().await;
        assert!(busy.swap(&[&more[1]], 1).await.is_some(), "of the same lease, and it had not");
        busy.go_on().await;
        busy.run("UPDATE flowgate.leases SET ahead_until = 1; UPDATE flowgate.cluster SET in_use = 0").await;
        assert_eq!(busy.swap(&[&busy.running[0]], 1).await, None, "it was claimed ahead, and counts nowhere");
    }

    /// Whether a swap finds nothing to do that had to wait for this.
    pub(in super::super) async fn gives_way(busy: &Busy, ended: &Claimed, change: &str) -> bool {
        behind(&busy.url, change, busy.swap(&[ended], 4)).await.is_none()
    }

    // Seen to fail: without `FOR KEY SHARE`, it did.
    #[tokio::test]
    async fn t5_a_worker_that_is_being_buried_swaps_nothing() {
        let busy = Busy::new(30).await;
        assert!(gives_way(&busy, &busy.running[0], "DELETE FROM workers").await);
    }

    // Seen to fail: with `default_transaction_isolation` at `repeatable read`, where what a statement sees is settled
    // before it waits, it took one.
    #[tokio::test]
    async fn t1_a_swap_sees_the_cap_that_it_waited_for() {
        let busy = Busy::new(30).await;
        let lower = "LOCK TABLE leases IN SHARE ROW EXCLUSIVE MODE; UPDATE cluster SET cap = 1";
        assert!(gives_way(&busy, &busy.running[0], lower).await);
    }
}
