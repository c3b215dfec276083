//! Runs: steps that are stored once, with the task that follows them, or not at all.

use flowgate_core::Tick;
use flowgate_tasks::{
    NewTask,
    store::{NewStep, RunChange, RunOutcome, RunQuery, RunState, RunWrite},
};

use crate::kit::Kit;

fn start(name: &str, id: &str, origin: Option<&str>) -> RunChange {
    let write = RunWrite::Start { id: id.into(), origin: origin.map(Into::into), head: b"head".to_vec() };
    RunChange { name: name.into(), write, steps: vec![step("init")], tasks: Vec::new() }
}

fn step(name: &str) -> NewStep {
    let task = NewTask::new("deliver", name.as_bytes().to_vec());
    NewStep { name: name.into(), body: name.as_bytes().to_vec(), task: Some(task) }
}

fn append(name: &str, steps: Vec<NewStep>) -> RunChange {
    RunChange { name: name.into(), write: RunWrite::append(), steps, tasks: Vec::new() }
}

fn change(name: &str, version: Option<i64>, head: Option<&str>, state: Option<RunState>) -> RunChange {
    let head = head.map(|head| head.as_bytes().to_vec());
    let write = RunWrite::Change { version, head, state, even_ended: false };
    RunChange { name: name.into(), write, steps: Vec::new(), tasks: Vec::new() }
}

impl Kit {
    async fn change(&self, change: RunChange) -> RunOutcome {
        self.shelf.change_runs(vec![change]).await.expect("a store").remove(0)
    }

    /// The names of the steps, and of the tasks that wait.
    async fn steps_and_tasks(&self, run: &str) -> (Vec<String>, Vec<String>) {
        let (_, steps) = self.shelf.run(run.into()).await.expect("a store").expect("a run");
        let live = self.shelf.live_tasks(flowgate_tasks::TaskId(0), 100).await.expect("a store");
        let bodies = live.into_iter().map(|task| String::from_utf8(task.record.expect("kept").body));
        (steps.into_iter().map(|step| step.name).collect(), bodies.map(|body| body.expect("text")).collect())
    }
}

on_every_store! {
    #[test]
    async fn s1_a_step_is_stored_once_with_its_task_whatever_is_sent_again(kit: &Kit) {
        // Seen to fail: without the unique name of a step.
        assert!(matches!(kit.change(start("r1", "one", None)).await, RunOutcome::Written { .. }));
        let first = kit.change(append("r1", vec![step("a"), step("b")])).await;
        let RunOutcome::Written { steps: first, .. } = first else { panic!("{first:?}") };
        assert!(first.iter().all(|sent| !sent.is_duplicate));
        let again = kit.change(append("r1", vec![step("b"), step("c"), step("c")])).await;
        let RunOutcome::Written { steps: again, .. } = again else { panic!("{again:?}") };
        assert_eq!(again.iter().map(|sent| sent.is_duplicate).collect::<Vec<_>>(), [true, false, true]);
        assert_eq!(again[0].id, first[1].id, "the first of a name is the one");
        let (steps, tasks) = kit.steps_and_tasks("r1").await;
        assert_eq!(steps, ["init", "a", "b", "c"]);
        assert_eq!(tasks, steps, "one task for each step");
        let ids: Vec<_> = first.iter().map(|sent| sent.id).collect();
        assert_eq!(kit.shelf.waiting(ids.clone()).await.expect("a store"), ids);
    }

    #[test]
    async fn s1_nothing_is_stored_of_a_run_that_has_ended(kit: &Kit) {
        // Seen to fail: without the state in the condition of a change.
        kit.change(start("r1", "one", None)).await;
        assert_eq!(kit.change(append("none", vec![step("a")])).await, RunOutcome::Unknown);
        kit.change(change("r1", None, Some("last"), Some(RunState::Failed))).await;
        let outcome = kit.change(append("r1", vec![step("a")])).await;
        assert_eq!(outcome, RunOutcome::Ended(RunState::Failed));
        assert_eq!(kit.steps_and_tasks("r1").await.1, ["init"]);
        let (run, _) = kit.shelf.run("r1".into()).await.expect("a store").expect("a run");
        assert_eq!((run.state, run.head.as_slice(), run.version), (RunState::Failed, &b"last"[..], 2));
        assert!(run.ended.is_some());
        let even_ended = RunWrite::Change { version: Some(2), head: None, state: None, even_ended: true };
        let quiet = NewStep { task: None, ..step("late") };
        let noted = RunChange { write: even_ended, ..append("r1", vec![quiet]) };
        assert!(matches!(kit.change(noted).await, RunOutcome::Written { .. }));
        assert_eq!(kit.steps_and_tasks("r1").await.1, ["init"], "a step without a task sends none");
    }

    #[test]
    async fn s1_of_two_who_saw_the_same_version_one_writes(kit: &Kit) {
        // Seen to fail: without the version in the condition of a change.
        kit.change(start("r1", "one", None)).await;
        kit.change(append("r1", vec![step("a")])).await;
        let mut first = change("r1", Some(1), Some("first"), None);
        first.tasks.push(NewTask::new("deliver", b"beside".to_vec()));
        let RunOutcome::Written { tasks, .. } = kit.change(first).await else { panic!("it was the version") };
        assert_eq!(tasks.len(), 1);
        let mut second = change("r1", Some(1), Some("second"), None);
        second.steps.push(step("b"));
        assert_eq!(kit.change(second).await, RunOutcome::Stale);
        assert_eq!(kit.steps_and_tasks("r1").await, (vec!["init".into(), "a".into()], vec!["init".into(), "a".into(),
            "beside".into()]));
    }

    #[test]
    async fn s1_an_id_is_one_live_run_and_an_origin_one_run(kit: &Kit) {
        // Seen to fail: without the look at the origin.
        let started = [start("r1", "one", Some("from")), start("r2", "one", None), start("r3", "three", Some("from"))];
        let outcomes = kit.shelf.change_runs(started.to_vec()).await.expect("a store");
        let taken = RunOutcome::Taken { name: "r1".into() };
        assert!(matches!(outcomes[0], RunOutcome::Written { .. }));
        assert_eq!(outcomes[1..], [taken.clone(), taken.clone()]);
        kit.change(change("r1", None, None, Some(RunState::Done))).await;
        assert!(matches!(kit.change(start("r4", "one", None)).await, RunOutcome::Written { .. }), "an id is free again");
        assert_eq!(kit.change(start("r5", "five", Some("from"))).await, taken, "an origin is not");
        let listed = kit.shelf.runs(RunQuery { most: 10, ..RunQuery::default() }).await.expect("a store");
        assert_eq!(listed.iter().map(|run| run.name.as_str()).collect::<Vec<_>>(), ["r4", "r1"]);
        let live = RunQuery { is_live: true, id: Some("one".into()), most: 10, before: None };
        assert_eq!(kit.shelf.runs(live).await.expect("a store").len(), 1);
        let before = RunQuery { before: Some("r4".into()), most: 10, ..RunQuery::default() };
        assert_eq!(kit.shelf.runs(before).await.expect("a store")[0].name, "r1");
    }

    #[test]
    async fn s4_runs_that_ended_long_ago_are_removed_with_their_steps(kit: &Kit) {
        // Seen to fail: without runs in what is removed.
        kit.change(start("r1", "one", None)).await;
        kit.change(start("r2", "two", None)).await;
        kit.change(change("r1", None, None, Some(RunState::Done))).await;
        kit.advance(std::time::Duration::from_secs(60));
        let now = Tick::from_nanos(u64::MAX >> 1);
        assert_eq!(kit.shelf.prune(Tick::ZERO, now).await.expect("a store"), 1);
        assert_eq!(kit.shelf.run("r1".into()).await.expect("a store"), None);
        assert!(kit.shelf.run("r2".into()).await.expect("a store").is_some(), "it is live");
    }

    #[test]
    async fn s4_a_run_has_a_bounded_number_of_steps(kit: &Kit) {
        // Seen to fail: without the bound in the condition of a change.
        kit.change(start("r1", "one", None)).await;
        let quiet = |number: u32| NewStep { name: number.to_string(), body: Vec::new(), task: None };
        assert_eq!(kit.change(append("r1", (0..10_000).map(quiet).collect())).await, RunOutcome::Full);
        assert!(matches!(kit.change(append("r1", (0..9_999).map(quiet).collect())).await, RunOutcome::Written { .. }));
        assert_eq!(kit.change(append("r1", vec![step("more")])).await, RunOutcome::Full);
    }
}
