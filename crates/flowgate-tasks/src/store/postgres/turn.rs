//! A turn: settle and claim in one transaction, in three flights of statements.
//!
//! First flight: what is given back is fenced and its keys are locked; counters and lanes that may run are
//! read, and their keys locked where nobody else has them. Then the plan decides. Second flight: tasks that
//! are to run again go back to their lines, and tasks move into one lease. Third flight: counts, lane states
//! and the other ends are written, and all of it commits. Where there is nothing to decide, one statement is
//! all of it ([`super::swap`]).

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{
    ahead,
    balance::{self, TAKE, TAKE_BALANCED, TAKE_BALANCED_BOUNDED, TAKE_BOUNDED, TAKE_WEIGHED, Way},
    connect::{Lease, Line, Postgres, Shared},
    gather::{self, Asked, Begun, Filling},
    heavy,
    idle::{self, Rest},
    marks, ready, rows,
    scene::{self, Loaded},
    send::{DELAYED, READY_LANES, SHARE_LANES},
    session::{Params, flight},
    settle::{self, Ends},
    swap::{self, swap},
    swap_keys,
    write::{self, Call, Changes, write},
};
use crate::{
    plan::{Grant, Plan, Scene},
    store::{Again, Claimed, MOST_BYTES, Place, Settle, StoreError, Turn, Turned, Wake, WorkerId},
    task::TaskId,
};

pub(super) const STATEMENTS: &[&[&str]] = &[
    &gather::STATEMENTS,
    &ready::STATEMENTS,
    write::STATEMENTS,
    &idle::STATEMENTS,
    &marks::STATEMENTS,
    &balance::STATEMENTS,
    &[
        ahead::TAKE_AHEAD,
        ahead::TAKE_AHEAD_OF_KEYS,
        ahead::REFUSE,
        heavy::HEADS,
        swap::SWAP,
        swap_keys::SWAP_KEYS,
        SHARE_LANES,
        READY_LANES,
        DELAYED,
        settle::ADD_AGAIN,
        settle::BURY_CANCELLED,
        settle::ADD_DEAD,
        settle::ADD_RESULTS,
    ],
];

impl Postgres {
    /// What was claimed may start as soon as it is committed: lanes that came up short are seen to after that.
    pub(super) async fn take_turn(&self, worker: WorkerId, turn: Turn) -> Result<Turned, StoreError> {
        let mut turned = self.turn_of(Line::Turns, worker, turn, None).await;
        // Whoever has its number there is another one.
        if turned.is_err() && self.shared.known.is_replaced() {
            turned = Err(StoreError::Gone { worker });
        }
        if let Err(StoreError::Gone { .. }) = turned {
            self.shared.turning.forget(worker);
        }
        turned
    }

    /// Settles all that was left of this lease when it was read; what was settled since stays as it is. It is upkeep's,
    /// and waits as long as that for others' locks.
    pub(super) async fn end_lease(
        &self,
        worker: WorkerId,
        ending: Ending,
        settles: Vec<Settle>,
    ) -> Result<Turned, StoreError> {
        self.turn_of(Line::Upkeep, worker, Turn { settles, ..Turn::default() }, Some(ending)).await
    }

    async fn turn_of(
        &self,
        line: Line,
        worker: WorkerId,
        turn: Turn,
        ending: Option<Ending>,
    ) -> Result<Turned, StoreError> {
        let (turned, rest) = self
            .job(line, move |shared, session| async move {
                Box::pin(run(&shared, session, worker, turn, ending)).await
            })
            .await?;
        if !turned.claimed.is_empty() {
            self.shared.turning.idling.rest();
        }
        if let Some(rest) = rest {
            tokio::spawn(idle::settle(Arc::clone(&self.shared), rest));
        }
        Ok(turned)
    }
}

/// A turn that ends a whole lease.
pub(super) struct Ending {
    pub(super) lease: i64,
    /// How long it waits for others' locks. `None`: as long as its connection does.
    pub(super) patience: Option<Duration>,
}

/// A turn on a connection.
async fn run(
    shared: &Shared,
    mut session: Lease,
    worker: WorkerId,
    turn: Turn,
    ending: Option<Ending>,
) -> Result<(Turned, Option<Rest>), StoreError> {
    let (whole, patience) = match ending {
        None => (shared.turning.whole(&turn.settles), None),
        Some(Ending { lease, patience }) => (HashSet::from([lease]), patience),
    };
    session.begin();
    match turn_out(shared, &session, worker, (turn, whole), patience).await {
        Ok(Turnout { turned, short, .. }) => {
            session.end();
            let asks_again = turned.again != Again::WhenWoken;
            let turning = &shared.turning;
            let promised = match turning.idling.is_waiting() {
                true => Vec::new(),
                false => turning.promised.some(),
            };
            let passed = turning.marks.due();
            let is_left = !(short.is_empty() && promised.is_empty() && passed.is_empty());
            Ok((turned, is_left.then_some(Rest { short, promised, passed, session, asks_again })))
        }
        Err(error) => {
            session.roll_back().await;
            Err(error)
        }
    }
}

/// In one statement, if nothing has to be decided; else as a plan decides.
async fn turn_out(
    shared: &Shared,
    session: &Lease,
    worker: WorkerId,
    (turn, whole): (Turn, HashSet<i64>),
    patience: Option<Duration>,
) -> Result<Turnout, StoreError> {
    if let Some(turnout) = swap(shared, session, worker, (&turn, &whole)).await? {
        return Ok(turnout);
    }
    Box::pin(transact(shared, session, worker, (turn, whole), None, gather::begin(session, patience))).await
}

/// What came of the transaction.
#[derive(Default)]
pub(super) struct Turnout {
    pub(super) turned: Turned,
    /// The lanes that had less than they might have started.
    pub(super) short: Vec<i64>,
    pub(super) begun: Begun,
    /// Whether there may be something to claim for others.
    pub(super) makes_room: bool,
}

/// The transaction, from however it begins to its commit. Of the leases that are `whole` everything that is left is
/// settled. `sent` is what it stores, if a send began it.
pub(super) async fn transact(
    shared: &Shared,
    session: &Lease,
    worker: WorkerId,
    (turn, whole): (Turn, HashSet<i64>),
    sent: Option<&Filling>,
    begin: impl Future<Output = Result<Begun, StoreError>> + Send,
) -> Result<Turnout, StoreError> {
    let Turn { settles, starts, want, ahead } = turn;
    let (where_to, told) = (shared.turning.where_to_look(want.is_some()), shared.told_time());
    let asked = Asked { worker, settles: &settles, starts: &starts, want, where_to, told, whole, sent };
    let (begun, loaded) = scene::load(session, &asked, begin).await?;
    let Loaded { mut scene, has_more, is_locked_out, sees_all, were, counted, heavy, back, missed, refused } =
        loaded;
    let mut plan = if want.is_some() { scene.plan() } else { Plan::default() };
    // What is held from now on hides the others no more.
    plan.has_more |= has_more && !(plan.grants.is_empty() && plan.held.is_empty());
    let ends = Ends::of(back.iter().map(|&index| &settles[index]), scene.now);
    let is_plain = starts.is_empty() && ahead.is_none() && ends.is_empty();
    let grants = &plan.grants;
    let way = match is_plain {
        true if is_bare(&scene, grants) && empties(&scene, grants, sent, &begun.idle) => Way::Bare,
        true if sent.is_none() && balance::holds(&scene, grants, (&were, &counted), &heavy) => Way::Balanced,
        _ => Way::Written,
    };
    let taking = take(session, &scene, &plan.grants, (worker, shared), (way, &begun.idle, &heavy));
    let ((), (), taken, heads, ()) = flight!(
        session.carry(ends.bytes()),
        ends.again.put_back(session),
        taking,
        heavy::heads(session, &scene, grants, (&heavy, &shared.turning.marks)),
        session.run_if(way != Way::Written, "COMMIT"),
    )?;
    let stuck = heavy::stuck(&scene, grants, &taken, &heads);
    let (short, is_full, is_cut) = book(&mut scene, &plan.grants, &taken, &stuck);
    let last = last_served(&scene, &plan.grants, &taken, is_cut);
    let again = again(
        &plan,
        &scene,
        &taken,
        (is_full, !short.is_empty() || !stuck.is_empty(), is_cut),
        (sees_all, is_locked_out),
        last.is_some_and(|lane| lane <= asked.where_to.cursor),
    );
    let ahead = ahead::Room::of(ahead.filter(|_| want.is_some()), &scene, &shared.turning.marks);
    let left = not_emptied(sent, &begun.idle, &taken);
    let changes = Changes::of(&scene, (&were, &counted), &stuck, &left);
    let (makes_room, rest) = (changes.makes_room, changes.rest(scene.now));
    let call = whom_to_call(&changes, !short.is_empty(), sent.map(|_| shared.mark.as_str()), again);
    let is_idle = is_plain
        && settles.is_empty()
        && asked.whole.is_empty()
        && sent.is_none()
        && taken.is_empty()
        && changes.is_empty();
    let ahead = match way {
        // It is over: what is left is to wake those for whom something was left.
        Way::Bare | Way::Balanced => call.out(session).await.map(|()| Vec::new())?,
        // Nothing but looked: then nobody waits for the disk.
        Way::Written if is_idle => session.run("ROLLBACK").await.map(|()| Vec::new())?,
        Way::Written => {
            Box::pin(write(session, changes, &scene, &ends, call, (worker, ahead, refused))).await?
        }
    };
    shared.turning.see(sent.map(|_| (&begun, &left[..])), way, (&scene, &plan.grants, &heavy));
    remember(shared, &asked, (last, rest), [&taken, &ahead]);
    let (lost, unread) = (lost(&settles, &back, missed), rows::named(session, scene.unread()).await);
    let turned = Turned { claimed: taken, ahead, lost, now: scene.now, again, unread };
    Ok(Turnout { turned, short, begun, makes_room })
}

/// The lane behind which the rotation goes on. Of a claim that was cut, with those that got nothing.
fn last_served(scene: &Scene, grants: &[Grant], taken: &[Claimed], is_cut: bool) -> Option<i64> {
    let got_some = |lane: i64| taken.iter().any(|task| task.place.lane == lane);
    let mut lanes = grants.iter().rev().map(|grant| scene.lanes[grant.lane].id);
    lanes.find(|lane| !is_cut || got_some(*lane))
}

/// What is good to know for the next turns, and for upkeep, once this one is over: the last lane that got something,
/// and the shortest rest.
fn remember(
    shared: &Shared,
    asked: &Asked<'_>,
    (last, rest): (Option<i64>, Option<Duration>),
    claimed: [&[Claimed]; 2],
) {
    let turning = &shared.turning;
    if let Some(rest) = rest {
        let _ = shared.wakes.send(Wake::Rests(rest));
    }
    if let Some(lane) = last {
        turning.cursor.store(lane, Ordering::Relaxed);
    }
    turning.settled(asked.settles, &asked.whole);
    for claimed in claimed {
        turning.claimed(asked.worker, claimed);
    }
}

/// A send tells the workers of its own process itself; a worker that asks again finds what there is, but of a cap that
/// its own lanes did not use it may leave something for lanes that it does not serve.
fn whom_to_call<'a>(changes: &Changes, is_short: bool, sent_by: Option<&'a str>, again: Again) -> Call<'a> {
    let Changes { makes_room, leaves_cap, .. } = *changes;
    match sent_by {
        Some(mark) if makes_room => Call::Others(mark),
        None if leaves_cap && is_short || makes_room && again == Again::WhenWoken => Call::All,
        _ => Call::Nobody,
    }
}

/// What was given back and had been lost before, and what had started and was.
fn lost(settles: &[Settle], back: &BTreeSet<usize>, missed: Vec<TaskId>) -> Vec<TaskId> {
    let settled = settles.iter().enumerate().filter(|(index, _)| !back.contains(index));
    settled.map(|(_, settle)| settle.task.id).chain(missed).collect()
}

/// When the worker should ask again. Lanes may be ready for long before something is in them, as somebody's transaction
/// goes on: so a rotation that has come round is not begun again at once if nothing came of its end.
fn again(
    plan: &Plan,
    scene: &Scene,
    taken: &[Claimed],
    (is_full, is_left, is_cut): (bool, bool, bool),
    (sees_all, is_locked_out): (bool, bool),
    has_come_round: bool,
) -> Again {
    // What one lane did not take is for the others.
    let may_be_others = plan.passed_over || plan.is_spent && !sees_all;
    let has_more = scene.budget > 0 && (plan.has_more || is_left && (is_full || may_be_others));
    if plan.wants_locks {
        Again::WithLocks
    } else if is_cut && scene.budget > 0 || has_more && !(has_come_round && taken.is_empty()) {
        Again::Now
    } else if taken.is_empty() && (has_more || is_locked_out) {
        Again::Soon
    } else {
        Again::WhenWoken
    }
}

/// Books what was taken. Gives the lanes that had less than they were granted, but for those whose next one is too heavy;
/// whether one had all of it; and whether there may be more, but for the bytes of what was taken: then no lane came up
/// short.
fn book(
    scene: &mut Scene,
    grants: &[Grant],
    taken: &[Claimed],
    stuck: &HashSet<i64>,
) -> (Vec<i64>, bool, bool) {
    let is_cut = taken.iter().map(|task| task.record.len()).sum::<usize>() >= MOST_BYTES;
    let (mut short, mut is_full) = (Vec::new(), false);
    for grant in grants {
        let lane = scene.lanes[grant.lane].id;
        let weights: Vec<u32> =
            taken.iter().filter(|task| task.place.lane == lane).map(|task| task.weight).collect();
        match weights.len() < grant.count as usize {
            true if !is_cut && !stuck.contains(&lane) => short.push(lane),
            true => {}
            false => is_full = true,
        }
        scene.book(*grant, &weights);
    }
    (short, is_full, is_cut)
}

/// Whether these grants take all that was sent into lanes that were idle, whatever happens: then those stay idle.
fn empties(scene: &Scene, grants: &[Grant], sent: Option<&Filling>, idle: &[i64]) -> bool {
    let granted = |lane: &i64| {
        let grant = grants.iter().find(|grant| scene.lanes[grant.lane].id == *lane);
        grant.map_or(0, |grant| grant.count)
    };
    sent.is_none_or(|sent| sent.is_prompt && idle.iter().all(|lane| granted(lane) >= sent.lanes[lane]))
}

/// Lanes that were idle and in which something is left of what was sent.
fn not_emptied(sent: Option<&Filling>, idle: &[i64], taken: &[Claimed]) -> Vec<i64> {
    let Some(sent) = sent else { return Vec::new() };
    let taken = |lane: &i64| taken.iter().filter(|task| task.place.lane == *lane).count();
    idle.iter().copied().filter(|lane| taken(lane) < sent.lanes[lane] as usize).collect()
}

/// Whether these grants change no count: no key is locked, and nobody has a cap.
fn is_bare(scene: &Scene, grants: &[Grant]) -> bool {
    let mut queues = scene.queues.iter();
    !grants.is_empty()
        && scene.keys.is_empty()
        && scene.cluster.cap.is_none()
        && queues.all(|queue| queue.counter.cap.is_none())
}

/// Moves tasks into a lease: the second flight. Of lanes that were idle first: what a send of [few
/// bytes](crate::store::Board::take) put there is taken, whatever else there is.
async fn take(
    session: &Lease,
    scene: &Scene,
    grants: &[Grant],
    (worker, shared): (WorkerId, &Shared),
    (way, idle, heavy): (Way, &[i64], &HashSet<i64>),
) -> Result<Vec<Claimed>, StoreError> {
    if grants.is_empty() {
        return Ok(Vec::new());
    }
    let mut grants = grants.to_vec();
    if !idle.is_empty() {
        grants.sort_by_key(|grant| !idle.contains(&scene.lanes[grant.lane].id));
    }
    let lanes: Vec<i64> = grants.iter().map(|grant| scene.lanes[grant.lane].id).collect();
    let counts: Vec<i32> = grants.iter().map(|grant| grant.count as i32).collect();
    let alone: Vec<bool> = grants.iter().map(|grant| scene.lanes[grant.lane].key.is_some()).collect();
    let (now, lows) = (rows::stored(scene.now), shared.turning.marks.of(&lanes));
    let fits = shared.turning.largest.fits(grants.iter().map(|grant| grant.count).sum());
    let rows = match way {
        _ if lanes.iter().any(|lane| heavy.contains(lane)) => {
            let rooms: Vec<i64> = grants.iter().map(|grant| i64::from(grant.room)).collect();
            let told: Params<'_, 7> = [&lanes, &counts, &alone, &now, &worker.0, &lows, &rooms];
            session.query(TAKE_WEIGHED, told).await?
        }
        Way::Bare | Way::Written => {
            let take = if fits { TAKE } else { TAKE_BOUNDED };
            session.query(take, [&lanes, &counts, &alone, &now, &worker.0, &lows]).await?
        }
        Way::Balanced => {
            let key = |grant: &Grant| scene.lanes[grant.lane].key.map(|key| scene.keys[key].id);
            let keys: Vec<Option<i64>> = grants.iter().map(key).collect();
            let queue = scene.lanes[grants[0].lane].queue;
            let told: Params<'_, 8> = [&lanes, &counts, &alone, &now, &worker.0, &lows, &keys, &queue];
            session.query(if fits { TAKE_BALANCED } else { TAKE_BALANCED_BOUNDED }, told).await?
        }
    };
    let Some(row) = rows.first() else { return Ok(Vec::new()) };
    let places: HashMap<i64, Place> = grants
        .iter()
        .map(|grant| {
            let lane = &scene.lanes[grant.lane];
            let key = lane.key.map(|key| scene.keys[key].id);
            (lane.id, Place { lane: lane.id, queue: lane.queue, key })
        })
        .collect();
    let lease: i64 = row.get("id");
    Ok(rows::claimed(row).map(|told| Claimed { lease, place: places[&told.place.lane], ..told }).collect())
}
