//! Cancelling.
//!
//! A task moves: from its line into a lease, and back when it is to run again. Whoever settles it looks for its
//! cancellation while it has the lease's row; so a cancellation is noted only by a statement that has that row
//! as well, and one of the two sees the other.
//!
//! Nobody waits here for a task, a lease or a heavy task's lane that somebody else has, for its connection is that of
//! all the rest: what is not to be had, or had moved on by then, is looked for anew after a pause, for some seconds in
//! all. It still waits for another note of the same cancellation.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use flowgate_core::backoff;
use tokio_postgres::Row;

use super::{columns::nanos, connect::Postgres, session::Tries, shelf::Values};
use crate::{
    store::{CANCELLING, Cancelled, Leaving, StoreError},
    task::TaskId,
    worker::clock::now,
};

/// So long a task is looked for that somebody has: whoever settles it takes some milliseconds, if nothing holds it up.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pauses between two looks.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// What stands behind a task that was too heavy may start without it, so its lane is looked at anew: as it is by now, and
/// not as it was when this began ([`super::heavy`]). A task whose lane is not to be had for that stays where it is.
const WAITING: &str = "WITH found AS MATERIALIZED (SELECT id, lane, weight FROM tasks WHERE id = ANY($1) ORDER BY id \
    FOR UPDATE SKIP LOCKED), \
    had AS MATERIALIZED (SELECT id, state FROM lanes WHERE id IN (SELECT lane FROM found WHERE weight > 1) ORDER BY id \
    FOR NO KEY UPDATE SKIP LOCKED), \
    gone AS (DELETE FROM tasks USING found WHERE tasks.id = found.id \
    AND (found.weight = 1 OR found.lane IN (SELECT id FROM had)) \
    RETURNING tasks.id, tasks.lane, attempt, tasks.weight, record), \
    looked AS (UPDATE lanes SET state = 1 FROM had WHERE lanes.id = had.id AND had.state = 2), \
    told AS (INSERT INTO dead (id, queue, key, priority, limits, attempt, weight, reason, error, at, record) \
    SELECT gone.id, queues.name, keys.name, lanes.priority, lanes.limits, attempt, weight, 'cancelled', '', now_ns($2), record \
    FROM gone JOIN lanes ON lanes.id = gone.lane JOIN queues ON queues.id = lanes.queue \
    LEFT JOIN keys ON keys.id = lanes.key WHERE $3) \
    SELECT id, pg_notify('flowgate', 'e' || id), pg_notify('flowgate', 'w') FROM gone";

/// Notes what is held, and tells which of these it saw: noted; or in a lease that is being settled, or in its line again.
const RUNNING: &str = "WITH seen AS MATERIALIZED (SELECT task, leases.id AS lease FROM unnest($1::bigint[]) AS asked (task) \
    JOIN leases ON task = ANY(ids) AND task <> ALL(done)), \
    held AS MATERIALIZED (SELECT task FROM seen JOIN leases ON leases.id = seen.lease AND task <> ALL(done) \
    FOR KEY SHARE OF leases SKIP LOCKED), \
    noted AS (INSERT INTO cancels SELECT task, now_ns($2) + $3::bigint FROM held ORDER BY task \
    ON CONFLICT (task) DO UPDATE SET until = excluded.until) \
    SELECT task, true AS is_noted, pg_notify('flowgate', 'c' || task)::text FROM held UNION ALL \
    SELECT task, false, NULL FROM seen WHERE task NOT IN (SELECT task FROM held) UNION ALL \
    SELECT id, false, NULL FROM tasks WHERE id = ANY($1)";

impl Postgres {
    pub(super) async fn cancel_tasks(
        &self,
        ids: Vec<TaskId>,
        leaving: Leaving,
    ) -> Result<Vec<Cancelled>, StoreError> {
        self.cancel_within(PATIENCE, ids, leaving).await
    }

    async fn cancel_within(
        &self,
        patience: Duration,
        ids: Vec<TaskId>,
        leaving: Leaving,
    ) -> Result<Vec<Cancelled>, StoreError> {
        let mut became: HashMap<i64, Cancelled> = HashMap::new();
        let mut left: BTreeSet<i64> = ids.iter().map(|id| id.0).collect();
        let (began, mut looks) = (now(), 0);
        // Once, but for those that move at this very moment.
        loop {
            let asked: Vec<i64> = left.iter().copied().collect();
            let values = || -> Values {
                let is_kept = leaving == Leaving::Dead;
                vec![Box::new(asked.clone()), Box::new(self.shared.told_time()), Box::new(is_kept)]
            };
            for row in self.rows_in_turn(WAITING, values).await? {
                left.remove(&row.get(0));
                became.insert(row.get(0), Cancelled::Waiting);
            }
            left = self.note(left, &mut became).await?;
            if left.is_empty() || began.elapsed() >= patience {
                break;
            }
            looks += 1;
            tokio::time::sleep(backoff(FIRST_PAUSE, 2.0, LONGEST_PAUSE, looks)).await;
        }
        // One that is named twice waited once.
        let told = |id: &TaskId| match became.get(&id.0) {
            Some(Cancelled::Running) => Some(Cancelled::Running),
            _ if left.contains(&id.0) => None,
            _ => Some(became.remove(&id.0).unwrap_or(Cancelled::Unknown)),
        };
        let became: Vec<Option<Cancelled>> = ids.iter().map(told).collect();
        match left.first() {
            None => Ok(became.into_iter().flatten().collect()),
            Some(&task) => Err(StoreError::Settling { task: TaskId(task), became }),
        }
    }

    /// Notes which of these are to be stopped. Gives those that were neither noted nor unknown.
    async fn note(
        &self,
        tasks: BTreeSet<i64>,
        became: &mut HashMap<i64, Cancelled>,
    ) -> Result<BTreeSet<i64>, StoreError> {
        let mut moving = BTreeSet::new();
        if tasks.is_empty() {
            return Ok(moving);
        }
        let (tasks, until) = (tasks.into_iter().collect::<Vec<i64>>(), nanos(CANCELLING));
        let values = || -> Values {
            vec![Box::new(tasks.clone()), Box::new(self.shared.told_time()), Box::new(until)]
        };
        for row in self.rows_in_turn(RUNNING, values).await? {
            let task = row.get("task");
            match row.get("is_noted") {
                true => drop(became.insert(task, Cancelled::Running)),
                false => drop(moving.insert(task)),
            }
        }
        Ok(moving)
    }

    /// One statement, and once more where it had to give way to another: then nothing of it was done.
    async fn rows_in_turn(
        &self,
        sql: &'static str,
        values: impl Fn() -> Values,
    ) -> Result<Vec<Row>, StoreError> {
        let mut tries = Tries::default();
        loop {
            match self.rows(sql, values()).await {
                Err(error) if tries.may_go_on_after(&error) => {}
                answer => return answer,
            }
        }
    }

    pub(super) async fn see_cancelled(&self, among: Vec<TaskId>) -> Result<Vec<TaskId>, StoreError> {
        const SQL: &str = "SELECT task FROM cancels WHERE task = ANY($1)";
        let among: Vec<i64> = among.iter().map(|task| task.0).collect();
        Ok(self.rows(SQL, vec![Box::new(among)]).await?.iter().map(|row| TaskId(row.get(0))).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use flowgate_core::Limits;
    use tokio::time::timeout;

    use crate::{
        store::{
            Cancelled, Claimed, End, Leaving, Settle, State, Store as _, StoreError,
            postgres::{
                beside::{DEADLINE, HAS_LOOKED, WAITS, other, until},
                session::Session,
                swap::tests::{Busy, task},
            },
        },
        task::{NewTask, Retry, TaskId},
    };

    /// A store where one runs under a cap, and another connection to it.
    async fn one_runs() -> (Busy, Claimed, Session) {
        first_runs(vec![task()]).await
    }

    /// The same, with others in line.
    async fn first_runs(tasks: Vec<NewTask>) -> (Busy, Claimed, Session) {
        let mut busy = Busy::with(tasks, Some(2)).await;
        let held = busy.running.remove(0);
        let other = other(&busy.url).await;
        (busy, held, other)
    }

    /// It failed, and is to run again at once.
    async fn fail(busy: &Busy, held: &Claimed) {
        let end = End::Failed { error: "no".to_owned(), retry_after: Duration::ZERO };
        let turned = busy.turn(vec![Settle { task: held.clone(), end }], 0).await;
        assert_eq!(turned.lost, [], "it was the worker's");
    }

    /// Whoever settles has the lease, and has to wait until this is over.
    async fn hold_up(other: &Session) {
        other
            .run("BEGIN; SELECT FROM cluster FOR UPDATE")
            .await
            .expect("whoever writes the count has to wait");
    }

    async fn is_dead(busy: &Busy, held: &Claimed) {
        let look = busy.store.look_at_task(held.id).await.expect("a look").expect("a task");
        assert!(matches!(&look.state, State::Dead { reason, .. } if reason == "cancelled"), "{look:?}");
        assert_eq!(busy.store.audit().await.expect("an audit"), [""; 0]);
    }

    // Seen to fail: without `FOR KEY SHARE`, it was noted when the settle had looked and was about to commit, and the
    // task waited to run again.
    #[tokio::test]
    async fn f4_a_cancellation_at_the_moment_of_a_settle_is_not_missed() {
        let (busy, held, other) = one_runs().await;
        hold_up(&other).await;
        let cancelled = async {
            until(&other, WAITS).await;
            let look = async {
                until(&other, HAS_LOOKED).await;
                other.run("COMMIT").await.expect("the settle goes on");
            };
            tokio::join!(busy.store.cancel(held.id), look).0.expect("a cancellation")
        };
        let ((), cancelled) = tokio::join!(fail(&busy, &held), cancelled);
        assert_eq!(cancelled, Cancelled::Waiting, "it had gone back by then");
        is_dead(&busy, &held).await;
    }

    // Seen to fail: without another look at those that were in their line again, it was `Unknown`, and waited to run again.
    #[tokio::test]
    async fn f4_a_task_that_goes_back_between_two_looks_is_cancelled() {
        let (busy, held, other) = one_runs().await;
        other.run("BEGIN; LOCK TABLE cancels IN SHARE MODE").await.expect("whoever notes has to wait");
        let goes_back = async {
            until(&other, WAITS).await;
            fail(&busy, &held).await;
            other.run("COMMIT").await.expect("the cancellation goes on");
        };
        let (cancelled, ()) = tokio::join!(busy.store.cancel(held.id), goes_back);
        assert_eq!(cancelled.expect("a cancellation"), Cancelled::Waiting, "it was in its line again");
        is_dead(&busy, &held).await;
    }

    // Seen to fail: with one look at each place, it was in none of them within the first rounds: to cancel it found nothing.
    #[tokio::test]
    async fn f4_a_task_that_goes_back_is_somewhere_at_every_moment() {
        let often = Retry { max_attempts: 1000, ..Retry::default() };
        let mut busy = Busy::with(vec![task().retry(often)], Some(2)).await;
        let mut held = busy.running.remove(0);
        for round in 0..200 {
            let look = async {
                // Until it has gone back, however often that is.
                loop {
                    let look = busy.store.look_at_task(held.id).await.expect("a look");
                    match look.unwrap_or_else(|| panic!("round {round}: it is nowhere")).state {
                        State::Held { .. } => {}
                        _ => return,
                    }
                }
            };
            tokio::join!(fail(&busy, &held), look);
            held = busy.turn(Vec::new(), 1).await.claimed.remove(0);
        }
    }

    // Seen to fail: with the error told as it comes, the cancellation failed: 40P01.
    #[tokio::test]
    async fn f4_a_cancellation_that_is_told_to_give_way_is_made_again() {
        let busy = Busy::with(vec![task(), task()], Some(2)).await;
        let ids: Vec<TaskId> = busy.running.iter().map(|held| held.id).collect();
        let other = other(&busy.url).await;
        // Whoever waits looks once whether it waits for itself: this one later, as a rule.
        other.run("SET deadlock_timeout TO '30s'").await.expect("it is patient");
        let note = |of: TaskId| format!("INSERT INTO cancels VALUES ({of}, 0)");
        loop {
            other.run(&format!("BEGIN; {}", note(ids[1]))).await.expect("the second is noted");
            let crossing = async {
                until(&other, WAITS).await;
                let crossed = other.run(&note(ids[0])).await;
                other.run("ROLLBACK").await.expect("it goes on");
                crossed.is_ok()
            };
            let cancelling = busy.store.cancel_all(ids.clone());
            let (cancelled, is_other_first) = tokio::join!(cancelling, crossing);
            assert_eq!(cancelled.expect("a cancellation"), [Cancelled::Running, Cancelled::Running]);
            if is_other_first {
                return;
            }
        }
    }

    // Seen to fail: without `SKIP LOCKED` for leases, or without an end to its patience, the first cancellation did not
    // give up; with an error that names the first alone, nobody knew that another one was cancelled.
    #[tokio::test]
    async fn f4_a_settle_that_does_not_end_holds_up_its_cancellation_and_no_look() {
        let (busy, held, other) = one_runs().await;
        let waits = busy.store.send(vec![task()]).await.expect("sent")[0].id;
        hold_up(&other).await;
        let meanwhile = async {
            until(&other, WAITS).await;
            let all = vec![held.id, held.id, waits];
            let cancel = |patience| busy.store.cancel_within(patience, all.clone(), Leaving::Dead);
            let told = timeout(DEADLINE, cancel(Duration::ZERO)).await.expect("it gives up");
            let told = told.expect_err("it is being settled");
            assert!(told.to_string().contains(&format!("task {} is being settled", held.id)), "{told}");
            let StoreError::Settling { became, .. } = told else {
                panic!("it says what became of the others")
            };
            assert_eq!(became, [None, None, Some(Cancelled::Waiting)]);
            let look = async {
                until(&other, HAS_LOOKED).await;
                let look =
                    timeout(DEADLINE, busy.store.look_at_task(held.id)).await.expect("it waits for nobody");
                assert!(matches!(look.expect("a look").expect("a task").state, State::Held { .. }));
                other.run("COMMIT").await.expect("the settle goes on");
            };
            let (cancelled, ()) = tokio::join!(cancel(DEADLINE), look);
            assert_eq!(
                cancelled.expect("a cancellation"),
                [Cancelled::Waiting, Cancelled::Unknown, Cancelled::Unknown]
            );
        };
        tokio::join!(fail(&busy, &held), meanwhile);
        is_dead(&busy, &held).await;
    }

    // Seen to fail: with the lane waited for, the first cancellation did not give up.
    #[tokio::test]
    async fn f4_a_heavy_task_whose_lane_somebody_has_holds_up_its_cancellation_and_no_look() {
        let limits = Limits::builder().max(2).build().expect("limits");
        let heavy = || task().key("k").limits(limits).weight(2);
        let (busy, held, other) = first_runs(vec![heavy(), heavy()]).await;
        let waits = TaskId(held.id.0 + 1);
        hold_up(&other).await;
        let meanwhile = async {
            // The settle has written the lane by now.
            until(&other, WAITS).await;
            let cancel = |patience| busy.store.cancel_within(patience, vec![waits], Leaving::Dead);
            let told = timeout(DEADLINE, cancel(Duration::ZERO)).await.expect("it gives up");
            let told = told.expect_err("its lane is somebody's");
            assert!(matches!(told, StoreError::Settling { task, .. } if task == waits), "{told}");
            let look = timeout(DEADLINE, busy.store.look_at_task(waits)).await.expect("it waits for nobody");
            assert!(matches!(look.expect("a look").expect("a task").state, State::Waiting { .. }));
            other.run("COMMIT").await.expect("the settle goes on");
        };
        tokio::join!(fail(&busy, &held), meanwhile);
        assert_eq!(busy.store.cancel(waits).await.expect("a cancellation"), Cancelled::Waiting);
        let looked = busy.store.look_at_task(waits).await.expect("a look").expect("a task");
        assert!(matches!(&looked.state, State::Dead { reason, .. } if reason == "cancelled"), "{looked:?}");
        let claimed = busy.turn(Vec::new(), 1).await.claimed;
        assert_eq!(claimed.iter().map(|task| task.id).collect::<Vec<_>>(), [held.id], "its lane is ready");
    }
}
