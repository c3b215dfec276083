//! Runs end: with a result, by a message that no attempt is left for, or because somebody says so.

use bytes::Bytes;
use flowgate_tasks::{
    NewTask, TaskId,
    store::{Run, RunChange, RunOutcome, RunQuery, RunState, RunWrite, Sent, StoreError},
};

use super::{Chore, RunRefused};
use crate::{
    message::{Message, Part, Role},
    office::{Answered, Desk, posting},
    workflow::{CALLED, Failed, FailureCall, RunHead, result_text},
};

/// The end of a run by one of its messages.
pub(crate) struct Failing {
    /// The message.
    pub(crate) task: TaskId,
    pub(crate) error: String,
    pub(crate) answer: Option<Answered>,
    /// What tells the workflow, if it wants to know.
    pub(crate) callback: Option<Message>,
}

impl Desk {
    /// A run did what it should. `false`: there is no such live run.
    pub(crate) async fn finish_run(&self, id: &str, result: &Bytes) -> Result<bool, StoreError> {
        let run = match self.live_run(id).await {
            Ok((run, _)) => run,
            Err(RunRefused::Store(error)) => return Err(error),
            Err(_) => return Ok(false),
        };
        let result = result_text(result);
        let closed = self.close(&run.name, RunState::Done, |head| {
            head.result.clone_from(&result);
            Vec::new()
        });
        Ok(closed.await?.is_some())
    }

    /// Nothing more of a run is started. `false`: it had ended.
    pub(crate) async fn cancel_run(&self, name: &str) -> Result<bool, StoreError> {
        Ok(self.close(name, RunState::Cancelled, |_| Vec::new()).await?.is_some())
    }

    /// A run has failed. Said twice of the same message, it is done once. `false`: it had ended otherwise, and this message is no
    /// letter of it.
    pub(crate) async fn fail_run(&self, name: &str, failing: Failing) -> Result<bool, StoreError> {
        let task = failing.task;
        let closed = match self.close_failed(name, &failing, failing.callback.as_ref()).await {
            // Nobody can be told of it in this form; it has failed all the same.
            Err(StoreError::Option(_)) if failing.callback.is_some() => {
                self.close_failed(name, &failing, None).await
            }
            closed => closed,
        };
        let Some(tasks) = closed? else {
            let run = self.run_alone(name).await?;
            return Ok(run.is_some_and(|run| RunHead::from_bytes(&run.head).has_letter(task)));
        };
        if let (Some(message), Some(told)) = (failing.callback, tasks.first()) {
            self.accepted(Sent { id: *told, is_duplicate: false }, message);
            self.change_head(name, |head| {
                if let Some(call) = &mut head.failure_call
                    && call.task == 0
                {
                    call.task = told.0;
                }
            })
            .await?;
        }
        Ok(true)
    }

    /// A run has failed, with this message to tell of it.
    async fn close_failed(
        &self,
        name: &str,
        Failing { task, error, answer, callback }: &Failing,
        sent: Option<&Message>,
    ) -> Result<Option<Vec<TaskId>>, StoreError> {
        let state = if sent.is_some() { CALLED } else { "CALLBACK_FAIL" };
        self.close(name, RunState::Failed, |head| {
            let (error, answer) = (error.clone(), answer.clone());
            head.failed = Some(Failed { task: task.0, error, answer, has_letter: true, behind: None });
            head.failure_call = callback.as_ref().map(|message| FailureCall {
                url: message.head.url.clone(),
                task: 0,
                state: state.to_owned(),
                answer: None,
            });
            sent.map(posting::task).into_iter().collect()
        })
        .await
    }

    /// Ends a live run, in one transaction with what is sent for it and what is left to do. Gives the tasks that were sent.
    /// `None`: it had ended.
    pub(super) async fn close(
        &self,
        name: &str,
        state: RunState,
        edit: impl Fn(&mut RunHead) -> Vec<NewTask>,
    ) -> Result<Option<Vec<TaskId>>, StoreError> {
        loop {
            let Some((run, steps)) = self.store.run(name.to_owned()).await? else { return Ok(None) };
            let mut head = RunHead::from_bytes(&run.head);
            let mut tasks = edit(&mut head);
            let sent = tasks.len();
            if head.invoker.is_some() {
                tasks.push(Chore::Resolve { run: name.to_owned() }.task()?);
            }
            // Of steps that follow each other, none is left when the last is done.
            let has_branches = steps.iter().any(|step| step.name.starts_with("plan/"));
            if state != RunState::Done || has_branches || !head.waits.is_empty() {
                let waits = head.waits.iter().map(|wait| wait.event.clone()).collect();
                tasks.push(Chore::Sweep { run: name.to_owned(), waits }.task()?);
            }
            (head.waits, head.events) = (Vec::new(), Vec::new());
            let write = RunWrite::Change {
                version: Some(run.version),
                head: Some(head.to_bytes()),
                state: Some(state),
                even_ended: false,
            };
            let change = RunChange { name: name.to_owned(), write, steps: Vec::new(), tasks };
            match self.runs.write(vec![change]).await?.pop() {
                Some(RunOutcome::Written { mut tasks, .. }) => {
                    tasks.truncate(sent);
                    return Ok(Some(tasks));
                }
                Some(RunOutcome::Stale) => {}
                _ => return Ok(None),
            }
        }
    }

    /// A run by its own name, without its steps: those can be large.
    pub(crate) async fn run_alone(&self, name: &str) -> Result<Option<Run>, StoreError> {
        let behind = Some(format!("{name}~"));
        let query = RunQuery { before: behind, id: None, is_live: false, most: 1 };
        Ok(self.store.runs(query).await?.pop().filter(|run| run.name == name))
    }

    /// Changes what is kept of a run, ended or not. `false`: there is none.
    pub(crate) async fn change_head(
        &self,
        name: &str,
        edit: impl Fn(&mut RunHead),
    ) -> Result<bool, StoreError> {
        loop {
            let Some(run) = self.run_alone(name).await? else { return Ok(false) };
            let mut head = RunHead::from_bytes(&run.head);
            edit(&mut head);
            let write = RunWrite::Change {
                version: Some(run.version),
                head: Some(head.to_bytes()),
                state: None,
                even_ended: true,
            };
            let change = RunChange { name: run.name, write, steps: Vec::new(), tasks: Vec::new() };
            match self.runs.write(vec![change]).await?.pop() {
                Some(RunOutcome::Stale) => {}
                outcome => return Ok(matches!(outcome, Some(RunOutcome::Written { .. }))),
            }
        }
    }

    /// What was to tell a workflow of its failure is cancelled: nobody tells it any more.
    pub(crate) async fn cancel_failure_call(&self, name: &str) -> Result<(), StoreError> {
        let canceled = |head: &mut RunHead| {
            if let Some(call) = head.failure_call.as_mut().filter(|call| call.state == CALLED) {
                "CALLBACK_CANCELED".clone_into(&mut call.state);
            }
        };
        self.change_head(name, canceled).await.map(drop)
    }

    /// The part of the message that tells a workflow of its failure.
    pub(crate) fn failure_part(part: &Part) -> Part {
        Part { role: Role::Failure, step: String::new(), ..part.clone() }
    }
}
