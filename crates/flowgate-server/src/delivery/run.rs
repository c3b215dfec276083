//! The messages of a run: what each carries, and what follows from its end.

use bytes::Bytes;
use flowgate_tasks::{
    TaskId,
    store::{Run, RunState, RunStep, StoreError},
    worker::{Context, Failure},
};
use serde_json::{Map, json};

use super::{
    callback::{self, Told},
    egress::{Answer, NoAnswer},
    handler::{Attempt, Courier, MOST_OF_A_CALL, Parcel, words},
    verdict::Verdict,
};
use crate::{
    clock,
    message::{Callback, Head, Message, Part, Role, bytes_as_letters},
    office::{Answered, Desk, Entry, Failing, RunRefused, Stage, Telling},
    workflow::{CALLED, Kept, RunHead, SDK_INIT, Slice, from_init, inherit, is_superseded, slice},
};

const NO_WORKFLOW: &str = "detected a non-workflow destination for trigger/invoke. make sure you are sending the \
    request to the correct endpoint";
const TOO_LARGE: &str = "the answer to the call has 4 MiB or more, which is too large";
const OLD_CLIENT: &str = "trigger rest api is only usable with sdk versions after v1.0.0 major version";
/// Said by this server to itself: the run was begun over REST.
pub(crate) const BY_REST: &str = "Flowgate_TriggeredByRest";
/// The same, where nobody knows which version the endpoint is of: it is asked first, and sends the payload again in its own form.
pub(crate) const UNKNOWN_SDK: &str = "Flowgate_UnknownSdk";

impl Courier {
    pub(super) async fn deliver_in_run(
        &self,
        context: &Context,
        message: Message,
        part: Part,
    ) -> Result<Vec<u8>, Failure> {
        let task = context.id;
        let Some((run, steps)) = self.desk.store.run(part.run.clone()).await? else { return Ok(Vec::new()) };
        if part.role == Role::Letter {
            return self.lay_down(task, &message, &part).await;
        }
        let head = RunHead::from_bytes(&run.head);
        if run.state != RunState::Live && part.role != Role::Failure {
            // A crash between the end of the run and the end of the message that ended it.
            let is_letter = head.has_letter(task);
            let error = head.failed.map(|failed| failed.error).unwrap_or_default();
            return self.lay(task, &message, is_letter, error).await;
        }
        if context.attempt > 1 && part.role == Role::Step && is_superseded(&steps, &part.step) {
            self.desk.journal.add(task, &Entry::plain(Stage::Delivered, message.without_body())).await;
            return Ok(Vec::new());
        }
        let message = self.dress(message, &part, &run, &head, &steps);
        let bare = message.without_body().to_bytes().into();
        let parcel = Parcel { task, message, bare };
        let retried = self.failed_before(context).await?;
        let mut attempt = Box::pin(self.attempt(&parcel, retried)).await;
        let why = match is_question(&part, &head) {
            true => self.unanswered(&part, &attempt).await?,
            false => wrong_endpoint(&part, &head, &attempt),
        };
        if let Some(why) = why {
            attempt.answer = Err(NoAnswer::Unfit(why));
            attempt.verdict = Verdict::Failed;
        }
        if part.role == Role::Call
            && attempt.answer.as_ref().is_ok_and(|answer| answer.body.len() >= MOST_OF_A_CALL)
        {
            // A part of it would pass for the whole.
            attempt.answer = Err(NoAnswer::Unfit(TOO_LARGE));
        }
        self.write_down(&parcel, &attempt).await;
        let Parcel { message, .. } = parcel;
        match (part.role, attempt.verdict) {
            (Role::Failure, verdict) => {
                self.note_failure_call(&part, task, &attempt).await?;
                match verdict {
                    Verdict::Again(wait) => Err(Failure::new(words(&attempt.answer)).after(wait)),
                    Verdict::Delivered | Verdict::Failed => Ok(Vec::new()),
                }
            }
            (_, Verdict::Again(wait)) => Err(Failure::new(words(&attempt.answer)).after(wait)),
            (Role::Call, _) => self.bring_back(task, &message, &part, (&run, &steps), &attempt).await,
            (_, Verdict::Delivered) => Ok(Vec::new()),
            (_, Verdict::Failed) => {
                let is_letter = self.fail_run(task, &message, &part, &attempt, (&head, &steps)).await?;
                self.lay(task, &message, is_letter, words(&attempt.answer)).await
            }
        }
    }

    /// A message that no attempt is left for is the dead letter of its run if it ended that. Otherwise it has gone with it: a run
    /// has one letter, by which it is begun again once.
    async fn lay(
        &self,
        task: TaskId,
        message: &Message,
        is_letter: bool,
        error: String,
    ) -> Result<Vec<u8>, Failure> {
        if is_letter {
            return Err(Failure::last(error));
        }
        self.desk.journal.add(task, &Entry::plain(Stage::Canceled, message.without_body())).await;
        Ok(Vec::new())
    }

    /// Why an endpoint that was asked for its version is no workflow: it said yes, and has not sent the payload again.
    async fn unanswered(&self, part: &Part, attempt: &Attempt) -> Result<Option<&'static str>, Failure> {
        if attempt.verdict != Verdict::Delivered {
            return Ok(None);
        }
        let found = self.desk.store.run(part.run.clone()).await?;
        let is_answered = found.is_none_or(|(run, steps)| {
            run.state != RunState::Live || steps.iter().any(|step| step.name == SDK_INIT)
        });
        Ok((!is_answered).then_some(NO_WORKFLOW))
    }

    /// The message as it is sent: with the steps so far, and what says which run it is of.
    fn dress(
        &self,
        mut message: Message,
        part: &Part,
        run: &Run,
        head: &RunHead,
        steps: &[RunStep],
    ) -> Message {
        if part.role == Role::Call {
            return message;
        }
        if part.role == Role::Step {
            let numbers = &self.desk.numbers;
            message.body = Bytes::from(slice(steps, Slice::UpTo(&part.step), |task| numbers.message(task)));
        }
        let headers = &mut message.head.spec.headers;
        let created = head.created.to_string();
        for (name, value) in [
            ("Upstash-Workflow-RunId", run.id.as_str()),
            ("Upstash-Workflow-Url", head.url.as_str()),
            ("Upstash-Workflow-CreatedAt", created.as_str()),
        ] {
            headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
            headers.push((name.to_owned(), value.to_owned()));
        }
        if !headers.iter().any(|(name, _)| name == "Content-Type") {
            headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
        }
        message
    }

    /// A call has ended, well or not: its answer goes to the workflow.
    async fn bring_back(
        &self,
        task: TaskId,
        message: &Message,
        part: &Part,
        (run, steps): (&Run, &[RunStep]),
        attempt: &Attempt,
    ) -> Result<Vec<u8>, Failure> {
        let Some(callback) = &message.head.spec.callback else { return Ok(Vec::new()) };
        let id = self.desk.numbers.message(task);
        let mut more = Map::new();
        // Until all retries are used up, the clients wait for another try of what went wrong; there is none.
        more.insert("maxRetries".into(), json!(attempt.retried));
        if let Ok(answer) = &attempt.answer {
            more.insert("header".into(), bytes_as_letters(&answer.headers));
        }
        let retried = attempt.retried;
        let told = Told { id: &id, message, retried, answer: &attempt.answer, dead: None, more };
        let head = RunHead::from_bytes(&run.head);
        let own =
            Callback { url: callback.url.clone(), spec: inherit(callback.spec.clone(), &head.spec, None) };
        let mut back = callback::message(&own, &told, clock::now(), self.desk.callbacks);
        back.head.spec.retries = own.spec.retries;
        // It is a step of its run like others.
        back.head.share = None;
        back.head = self.desk.traced(&attempt.above(message), back.head);
        let step = part.step.replacen("call/", "back/", 1);
        let why = match self.desk.bring_back(run, step, back).await {
            Ok(()) | Err(RunRefused::Over(_)) => return Ok(Vec::new()),
            // What cannot be stored now cannot be stored later: to call again would change nothing.
            Err(RunRefused::Store(StoreError::Option(error))) => error.to_string(),
            Err(RunRefused::Store(error)) => return Err(error.into()),
            Err(refused) => refused.to_string(),
        };
        let error = format!("the call was made, and its answer cannot be stored: {why}");
        let failing = cut_off(&self.desk, task, run, steps, error.clone());
        self.note_end(task, message, &error).await;
        let is_letter = self.desk.fail_run(&part.run, failing).await?;
        self.lay(task, message, is_letter, error).await
    }

    /// The letter of a run that no delivery ended: the workflow is told, and then it is dead.
    async fn lay_down(&self, task: TaskId, letter: &Message, part: &Part) -> Result<Vec<u8>, Failure> {
        let error = match self.desk.tell_end(task, letter, part).await? {
            Telling::Told { error, .. } | Telling::Nobody { error } => error,
            Telling::Gone => return Ok(Vec::new()),
        };
        self.note_end(task, letter, &error).await;
        Err(Failure::last(error))
    }

    /// Why a message is a dead letter, where no answer says it: that is there before the letter is.
    async fn note_end(&self, task: TaskId, message: &Message, error: &str) {
        for stage in [Stage::Error, Stage::Failed] {
            let mut entry = Entry::plain(stage, message.without_body());
            entry.error = Some(error.to_owned());
            self.desk.journal.add_now(task, &entry).await;
        }
    }

    /// Whether it was this message that ended the run.
    async fn fail_run(
        &self,
        task: TaskId,
        message: &Message,
        part: &Part,
        attempt: &Attempt,
        (head, steps): (&RunHead, &[RunStep]),
    ) -> Result<bool, Failure> {
        let (answer, retried) = (attempt.answer.as_ref().ok(), attempt.retried);
        let fallen = Fallen { task, message, part, head, steps, retried };
        let mut callback = failure_message(&self.desk, &fallen, &attempt.answer);
        if let Some(told) = &mut callback {
            told.head = self.desk.traced(&attempt.above(message), std::mem::take(&mut told.head));
        }
        let failing = Failing {
            task,
            error: words(&attempt.answer),
            answer: answer.map(|answer| Answered::new(answer.status.as_u16(), &answer.headers, &answer.body)),
            callback,
        };
        Ok(self.desk.fail_run(&part.run, failing).await?)
    }

    /// How the workflow took it that its run has failed.
    async fn note_failure_call(&self, part: &Part, task: TaskId, attempt: &Attempt) -> Result<(), Failure> {
        let state = match attempt.verdict {
            Verdict::Again(_) => CALLED,
            Verdict::Delivered => "CALLBACK_SUCCESS",
            Verdict::Failed => "CALLBACK_FAIL",
        };
        let answer = attempt.answer.as_ref().ok();
        let answer =
            answer.map(|answer| Answered::new(answer.status.as_u16(), &answer.headers, &answer.body));
        let noted = self.desk.change_head(&part.run, |head| {
            if let Some(call) = &mut head.failure_call {
                call.task = task.0;
                state.clone_into(&mut call.state);
                call.answer.clone_from(&answer);
            }
        });
        Ok(noted.await.map(drop)?)
    }
}

/// A message that ended its run.
pub(crate) struct Fallen<'a> {
    pub(crate) task: TaskId,
    pub(crate) message: &'a Message,
    pub(crate) part: &'a Part,
    pub(crate) head: &'a RunHead,
    pub(crate) steps: &'a [RunStep],
    pub(crate) retried: u32,
}

/// The end of a run by a call whose answer cannot be stored. Its failure function is told of it as of any other.
fn cut_off(desk: &Desk, task: TaskId, run: &Run, steps: &[RunStep], error: String) -> Failing {
    let head = RunHead::from_bytes(&run.head);
    let part = Part { run: run.name.clone(), id: run.id.clone(), role: Role::Step, step: String::new() };
    let (url, created, spec) = (head.url.clone(), head.created, head.spec.clone());
    let own = Head { url, created, spec, caller: head.caller.clone(), ..Head::default() };
    let mut message = Message { head: desk.traced(&head.above, own), body: Bytes::new() };
    message.head.part = Some(part.clone());
    let fallen = Fallen { task, message: &message, part: &part, head: &head, steps, retried: 0 };
    let mut callback = failure_message(desk, &fallen, &Err(NoAnswer::Broken(error.clone())));
    if let Some(told) = &mut callback {
        told.head = desk.traced(&head.above, std::mem::take(&mut told.head));
    }
    Failing { task, error, answer: None, callback }
}

/// The message that tells a workflow of the failure of its run, if it wants to know.
pub(crate) fn failure_message(
    desk: &Desk,
    fallen: &Fallen<'_>,
    answer: &Result<Answer, NoAnswer>,
) -> Option<Message> {
    let &Fallen { task, message, part, head, steps, retried } = fallen;
    let own = message.head.spec.failure_callback.as_ref();
    let callback = own.or(head.spec.failure_callback.as_ref())?;
    let (id, dead) = (desk.numbers.message(task), desk.numbers.dead(task));
    let mut source = message.clone();
    // The payload that the run began with, which is what its failure function gets.
    source.body = from_init(steps)
        .first()
        .map(|step| Kept::from_bytes(&step.body).body.to_vec())
        .unwrap_or_default()
        .into();
    let mut more = Map::new();
    more.insert("workflowRunId".into(), json!(part.id));
    more.insert("workflowCreatedAt".into(), json!(head.created));
    let told = Told { id: &id, message: &source, retried, answer, dead: Some(dead.as_str()), more };
    let mut message = callback::message(callback, &told, clock::now(), desk.callbacks);
    message.head.part = Some(Desk::failure_part(part));
    message.head.spec.dedupe = None;
    Some(message)
}

/// Whether this delivery asks an endpoint for its version.
fn is_question(part: &Part, head: &RunHead) -> bool {
    part.role == Role::Step && part.step == "init" && head.has(UNKNOWN_SDK)
}

/// Why the first answer of a run shows that there is no workflow at that URL.
fn wrong_endpoint(part: &Part, head: &RunHead, attempt: &Attempt) -> Option<&'static str> {
    let answer = attempt.answer.as_ref().ok()?;
    if attempt.verdict != Verdict::Delivered
        || part.role != Role::Step
        || !["init", SDK_INIT].contains(&&*part.step)
    {
        return None;
    }
    if head.has(BY_REST) && !answer.headers.contains_key("upstash-workflow-sdk") {
        return Some(OLD_CLIENT);
    }
    let is_told = answer.headers.contains_key("upstash-workflow-sdk-version");
    (head.has("WF_DetectTrigger") && !is_told).then_some(NO_WORKFLOW)
}
