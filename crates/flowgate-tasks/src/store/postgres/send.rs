//! Tasks come in: many in one transaction, and that in one round trip.
//!
//! A sender shares the rows of its lanes until it commits, and a lane is made idle only by one who has its row alone: so no
//! lane is left idle with a task in it.

use std::sync::Arc;

use flowgate_core::OptionError;
use tokio_postgres::Transaction;

use super::{
    columns::{self, Columns, HEAVY_LANES, LOCK_SENT, SENT_LIMITS, nanos},
    connect::{Lease, Line, Postgres, Shared},
    direct,
    gather::{self, Begun},
    lanes::{self, LaneName},
    runs,
    session::{BEGIN, Params, Tries, begun, failed, flight},
    straight,
    turn::Turnout,
};
use crate::{
    store::{Sent, StoreError, Taken, Wake},
    task::{NewTask, TaskId},
};

/// Shares the lanes' rows until the end of the transaction.
pub(super) const SHARE_LANES: &str =
    "SELECT FROM flowgate.lanes WHERE id = ANY($1) ORDER BY id FOR KEY SHARE";

/// Makes idle lanes ready. What will stand in them is not there yet, but whoever adds to them before finds them ready, and
/// wakes nobody: so the workers are woken now, and look again until the transaction is over.
const OPEN_LANES: &str = "WITH opened AS (UPDATE lanes SET state = 1 WHERE id = ANY($1) AND state = 0 RETURNING id) \
    SELECT pg_notify('flowgate', 'w') FROM opened LIMIT 1";

/// Makes idle lanes ready, and wakes the workers if there were any.
pub(super) const READY_LANES: &str = "WITH idle AS (SELECT id FROM lanes WHERE id = ANY($1) AND state = 0 \
    ORDER BY id FOR NO KEY UPDATE), \
    woken AS (UPDATE lanes SET state = 1 FROM idle WHERE lanes.id = idle.id AND lanes.state = 0 RETURNING lanes.id) \
    SELECT pg_notify('flowgate', 'w') FROM woken LIMIT 1";

/// The same for what is stored by this process, which is told who it is: it need not be told in turn.
const READY_SENT: &str = "WITH idle AS (SELECT id FROM lanes WHERE id = ANY($1) AND state = 0 \
    ORDER BY id FOR NO KEY UPDATE), \
    woken AS (UPDATE lanes SET state = 1 FROM idle WHERE lanes.id = idle.id AND lanes.state = 0 RETURNING lanes.id) \
    SELECT pg_notify('flowgate', 'w' || $2::text) FROM woken LIMIT 1";

/// Idle lanes, until the end of the transaction its own.
const LOCK_IDLE: &str = "SELECT id FROM lanes WHERE id = ANY($1) AND state = 0 ORDER BY id FOR NO KEY UPDATE";

/// Tells those who keep up that something is due one day.
pub(super) const DELAYED: &str = "SELECT pg_notify('flowgate', 'd')";

pub(super) const REMOVE_DEAD: &str = concat!(
    "WITH forgotten AS (DELETE FROM cancels WHERE task = $1) DELETE FROM dead WHERE id = $1 AND ",
    begun!(),
    " RETURNING id"
);

/// At the end of its line, as new; unless that lane is gone.
pub(super) const ADD_REVIVED: &str = concat!(
    "INSERT INTO tasks (id, lane, place, attempt, weight, record) \
    SELECT $1, id, nextval('task_ids'), 0, $3, $4 FROM lanes WHERE id = $2 AND ",
    begun!(),
    " RETURNING id"
);

/// Remembers dedupe ids, unless they are remembered already.
const CLAIM_NAMES: &str = concat!(
    "INSERT INTO dedupes (name, task, until) \
    SELECT name, nextval('task_ids'), now_ns($3) + lasting FROM unnest($1::text[], $2::bigint[]) AS asked (name, lasting) WHERE ",
    begun!(),
    " ORDER BY name \
    ON CONFLICT (name) DO UPDATE SET task = excluded.task, until = excluded.until \
    WHERE dedupes.until <= now_ns($3) RETURNING name, task"
);
const NAMED: &str = "SELECT name, task FROM dedupes WHERE name = ANY($1)";

pub(super) const STATEMENTS: &[&str] = &[
    lanes::STATEMENTS[0],
    lanes::STATEMENTS[1],
    lanes::STATEMENTS[2],
    lanes::STATEMENTS[3],
    lanes::STATEMENTS[4],
    SHARE_LANES,
    READY_LANES,
    READY_SENT,
    OPEN_LANES,
    LOCK_IDLE,
    DELAYED,
    columns::STATEMENTS[0],
    columns::STATEMENTS[1],
    columns::STATEMENTS[2],
    columns::STATEMENTS[3],
    CLAIM_NAMES,
    NAMED,
    REMOVE_DEAD,
    ADD_REVIVED,
    runs::START,
    runs::TAKEN,
    runs::CHANGE,
    runs::STOOD,
    runs::STEPS_OF,
    straight::STATEMENTS[0],
];

impl Postgres {
    pub(super) async fn send_all(&self, tasks: Vec<NewTask>) -> Result<Vec<Sent>, StoreError> {
        tasks.iter().try_for_each(NewTask::check)?;
        if tasks.is_empty() {
            return Ok(Vec::new());
        }
        self.job(
            Line::Sends,
            move |shared, session| async move { Box::pin(send(&shared, session, &tasks)).await },
        )
        .await
    }
}

impl Postgres {
    /// Stores tasks in a transaction of yours, on a connection of yours to the same database: they exist if it commits, and from
    /// then on. A dedupe id is refused here: whether the task is stored is for the transaction to decide.
    ///
    /// The transaction shares the lanes' rows with other senders and keeps nobody waiting, however long it
    /// takes. Therefore the limits that tasks bring along are their key's newest from now on, whatever
    /// becomes of the transaction.
    ///
    /// # Cancel safety
    /// Dropped, some of the tasks may be in the transaction: roll it back.
    pub async fn send_in(
        &self,
        transaction: &Transaction<'_>,
        tasks: Vec<NewTask>,
    ) -> Result<Vec<Sent>, StoreError> {
        tasks.iter().try_for_each(NewTask::check)?;
        if let Some(dedupe) = tasks.iter().find_map(|task| task.dedupe.as_ref()) {
            let accepted = "none for a task that is sent inside your own transaction";
            return Err(OptionError::new("dedupe", format_args!("{:?}", dedupe.id), accepted).into());
        }
        loop {
            let names: Vec<LaneName> = tasks.iter().map(LaneName::of).collect();
            let lanes = self.job(Line::Sends, move |shared, session| async move {
                shared.lanes.resolve(&session, &names).await
            });
            let columns = Columns::of(&tasks, &lanes.await?, &vec![None; tasks.len()]);
            let asked = columns.all_lanes.clone();
            let shared =
                transaction.query(SHARE_LANES, &[&asked]).await.map_err(failed("locking its lanes"))?;
            if shared.len() < asked.len() {
                // One was swept away, being empty: it is made again.
                self.shared.lanes.forget();
                continue;
            }
            let heavy = columns.heavy_lanes.clone();
            let (keys, limits) = columns::sent_limits(&tasks);
            let keys: Vec<String> = keys.into_iter().map(str::to_owned).collect();
            // Now nobody can make them idle; and they are made ready here and not there, for whoever wants them ready as well
            // would have to wait for that transaction.
            self.job(Line::Sends, move |_, mut session| async move {
                let told: Params<'_, 2> = [&keys, &limits];
                session.begin();
                flight!(
                    session.run(BEGIN),
                    session.query_if(!keys.is_empty(), LOCK_SENT, told),
                    session.query_if(!keys.is_empty(), SENT_LIMITS, told),
                    session.query(OPEN_LANES, [&asked]),
                    session.query_if(!heavy.is_empty(), HEAVY_LANES, [&heavy]),
                    session.run("COMMIT"),
                )?;
                session.end();
                Ok(())
            })
            .await?;
            return columns.add_in(transaction, self.shared.told_time()).await;
        }
    }
}

async fn send(shared: &Arc<Shared>, mut session: Lease, tasks: &[NewTask]) -> Result<Vec<Sent>, StoreError> {
    let (names, places) = LaneName::of_all(tasks);
    let mut tries = Tries::default();
    let mut may_claim = true;
    loop {
        let lanes = shared.lanes.resolve(&session, &names).await?;
        let lanes: Vec<i64> = places.iter().map(|&place| lanes[place]).collect();
        let taken = may_claim.then(|| shared.offers.take(tasks)).flatten();
        may_claim = false;
        session.begin();
        match Box::pin(store(shared, &session, tasks, &lanes, taken.as_ref())).await {
            Ok((sent, claimed)) => {
                session.end();
                direct::hand_over(shared, taken, claimed);
                return Ok(sent);
            }
            Err(error) => {
                let is_swept = lost_a_lane(&error);
                let goes_on = is_swept || tries.may_go_on_after(&error);
                direct::fail(&mut session, taken, error, goes_on).await?;
                if is_swept {
                    shared.lanes.forget();
                }
            }
        }
    }
}

/// A lane that was known had been swept away, being empty: 23502 is the null it left.
pub(super) fn lost_a_lane(error: &StoreError) -> bool {
    matches!(error, StoreError::Database { why, .. } if why.ends_with("(23502)"))
}

/// How a transaction that stores tasks begins: one that may claim as a turn does.
pub(super) fn beginning(taken: Option<&Taken>) -> &'static str {
    if taken.is_some() { gather::BEGIN } else { BEGIN }
}

async fn store(
    shared: &Shared,
    session: &Lease,
    tasks: &[NewTask],
    lanes: &[i64],
    taken: Option<&Taken>,
) -> Result<(Vec<Sent>, Option<Turnout>), StoreError> {
    if let Some(taken) = taken
        && let Some(turnout) = Box::pin(straight::send(shared, session, (tasks, lanes), taken)).await?
    {
        let sent = turnout.begun.added.iter().map(|id| Sent { id: TaskId(*id), is_duplicate: false });
        return Ok((sent.collect(), Some(turnout)));
    }
    let told = shared.told_time();
    let is_named = tasks.iter().any(|task| task.dedupe.is_some());
    let begin = beginning(taken);
    let named = match is_named {
        true => claim_names(session, begin, tasks, told).await?,
        false => vec![None; tasks.len()],
    };
    let batch = Batch { tasks, lanes, named: &named, begin: (!is_named).then_some(begin) };
    add(shared, session, batch, taken).await
}

/// Tasks on their way in.
pub(super) struct Batch<'a> {
    pub(super) tasks: &'a [NewTask],
    pub(super) lanes: &'a [i64],
    pub(super) named: &'a [Option<Named>],
    /// How the transaction begins, unless it has.
    pub(super) begin: Option<&'static str>,
}

/// Stores those of these tasks that are new, claims for the worker whose offer was taken, and commits.
pub(super) async fn add(
    shared: &Shared,
    session: &Lease,
    batch: Batch<'_>,
    taken: Option<&Taken>,
) -> Result<(Vec<Sent>, Option<Turnout>), StoreError> {
    let Batch { tasks, lanes, named, .. } = batch;
    let columns = Columns::of(tasks, lanes, named);
    let is_delayed = tasks.iter().any(|task| task.start.is_some());
    // In a box, for it is most of what this future would be.
    let put = Box::pin(columns.put(shared, session, &batch));
    let (added, turnout) = match taken {
        None => {
            let (added, ready, _, _) = flight!(
                put,
                session.query(READY_SENT, [&columns.all_lanes, &shared.mark]),
                session.query_if(is_delayed, DELAYED, []),
                session.run("COMMIT"),
            )?;
            if !ready.is_empty() {
                // Workers of this process hear of it now, and not by way of the server.
                let _ = shared.wakes.send(Wake::Work);
            }
            (added, None)
        }
        Some(taken) => {
            let filling = columns.filling(tasks);
            let begin = async {
                let (added, idle, _) = flight!(
                    put,
                    session.query(LOCK_IDLE, [&columns.all_lanes]),
                    session.query_if(is_delayed, DELAYED, []),
                )?;
                Ok(Begun { added, idle: idle.iter().map(|row| row.get(0)).collect() })
            };
            let mut turnout = direct::claim(shared, session, taken, &filling, begin).await?;
            (std::mem::take(&mut turnout.begun.added), Some(turnout))
        }
    };
    let mut added = added.into_iter().map(TaskId);
    let sent = |named: &Option<Named>| match named {
        Some(Named { task, is_new: false }) => Sent { id: TaskId(*task), is_duplicate: true },
        _ => Sent { id: added.next().expect("each new one has a number"), is_duplicate: false },
    };
    Ok((named.iter().map(sent).collect(), turnout))
}

/// The task that a dedupe id stands for.
#[derive(Clone, Copy)]
pub(super) struct Named {
    pub(super) task: i64,
    pub(super) is_new: bool,
}

/// Begins the transaction, and finds for each task with a dedupe id whether it is the first of that id.
async fn claim_names(
    session: &Lease,
    begin: &str,
    tasks: &[NewTask],
    told: Option<i64>,
) -> Result<Vec<Option<Named>>, StoreError> {
    let mut lasting = std::collections::BTreeMap::new();
    for dedupe in tasks.iter().filter_map(|task| task.dedupe.as_ref()) {
        lasting.entry(dedupe.id.as_str()).or_insert_with(|| nanos(dedupe.window));
    }
    let names: Vec<&str> = lasting.keys().copied().collect();
    let lasting: Vec<i64> = lasting.values().copied().collect();
    let (_, _, mine, all) = flight!(
        session.run(begin),
        session.carry(names.iter().map(|name| name.len()).sum()),
        session.query(CLAIM_NAMES, [&names, &lasting, &told]),
        session.query(NAMED, [&names]),
    )?;
    let mut fresh: std::collections::HashSet<String> = mine.iter().map(|row| row.get(0)).collect();
    let known: std::collections::HashMap<String, i64> =
        all.iter().map(|row| (row.get(0), row.get(1))).collect();
    let named = |task: &NewTask| {
        let id = task.dedupe.as_ref().map(|dedupe| &dedupe.id)?;
        known.get(id).map(|&task| Named { task, is_new: fresh.remove(id) })
    };
    Ok(tasks.iter().map(named).collect())
}
