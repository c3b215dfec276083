//! What a worker runs for each message: an attempt, what it means, who is told, and what becomes of the message.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use flowgate_tasks::{
    SERVER_QUEUE, TaskId,
    store::{NoteQuery, StoreError},
    worker::{Context, Failure, Handlers},
};
use futures_util::future::{Either, ready};
use tokio::sync::watch;

use super::{
    callback::{self, Told},
    egress::{Answer, Egress, NoAnswer},
    request::{self, Said},
    sign,
    verdict::{Verdict, verdict},
};
use crate::{
    clock,
    message::{Callback, Dedupe, Message, Role, Space, Spaces},
    metrics::Outcome,
    office::{Answered, CHORE, Desk, Entry, Errand, RestOf, Stage, TICK, Tick},
    traces::{self, Above, Kind, Span},
};

/// The kind of the tasks that deliver messages.
pub(crate) const KIND: &str = "deliver";
/// The queue of the store that they wait in.
pub(crate) const QUEUE: &str = SERVER_QUEUE;

/// More of the answer to a call is not read. It is what the workflow wants; of other answers a part is enough.
pub(super) const MOST_OF_A_CALL: usize = 4 * 1024 * 1024;
/// So many lines of a message's log are read at once.
const NOTES: u32 = 8;

/// Delivers messages.
#[derive(Clone)]
pub(crate) struct Courier {
    pub(super) desk: Desk,
    egress: Egress,
    /// The same, for calls of runs.
    calls: Egress,
    /// True when the server begins to stop.
    closing: watch::Receiver<bool>,
    /// Those of namespaces.
    others: Arc<Spaces<Arc<Courier>>>,
}

/// A message to be delivered.
pub(super) struct Parcel {
    pub(super) task: TaskId,
    pub(super) message: Message,
    /// The message without its body, as the log has it.
    pub(super) bare: Bytes,
}

/// One attempt, and what came of it.
pub(super) struct Attempt {
    pub(super) retried: u32,
    pub(super) answer: Result<Answer, NoAnswer>,
    pub(super) verdict: Verdict,
    /// When: milliseconds since the Unix epoch.
    ended: u64,
    /// The `traceparent` that the endpoint got.
    trace: Option<String>,
}

impl Attempt {
    /// What is sent because of it hangs below it.
    pub(super) fn above(&self, message: &Message) -> Above {
        Above::new(self.trace.as_deref(), message.head.trace_state.as_deref())
    }
}

impl Courier {
    pub(crate) fn new(desk: Desk, egress: Egress, closing: watch::Receiver<bool>) -> Self {
        let calls = egress.clone().reading(MOST_OF_A_CALL);
        Courier { desk, egress, calls, closing, others: Arc::default() }
    }

    /// The courier of a namespace: what it sends in its turn stays there.
    fn within(self: Arc<Self>, space: &Space) -> Arc<Self> {
        if *space == self.desk.space {
            return self;
        }
        self.others.of(space, || {
            let (egress, closing) = (self.egress.clone(), self.closing.clone());
            Arc::new(Courier::new(self.desk.within(space.clone()), egress, closing))
        })
    }

    /// The handlers of the server's worker.
    pub(crate) fn handlers(self) -> Handlers {
        let courier = Arc::new(self);
        let (ticker, helper) = (Arc::clone(&courier), Arc::clone(&courier));
        Handlers::new()
            .on_bytes(KIND, move |context, body| Arc::clone(&courier).deliver(context, body))
            .on(TICK, move |tick: Tick| {
                let courier = Arc::clone(&ticker).within(&tick.space);
                async move { tick.run(&courier.desk).await.map_err(Failure::from) }
            })
            .on(CHORE, move |errand: Errand| {
                let (space, chore) = errand.apart();
                let courier = Arc::clone(&helper).within(&space);
                async move { chore.run(&courier.desk).await }
            })
    }

    async fn deliver(self: Arc<Self>, context: Context, bytes: Bytes) -> Result<Vec<u8>, Failure> {
        let message = Message::from_bytes(&bytes).map_err(Failure::last)?;
        let courier = self.within(&message.head.space);
        if let Some(part) = message.head.part.clone() {
            return Box::pin(courier.deliver_in_run(&context, message, part)).await;
        }
        let bare = Message::bare(&bytes).map_err(Failure::last)?;
        let parcel = Parcel { task: context.id, message, bare };
        match courier.deliver_parcel(&context, &parcel).await {
            Ok(()) => Ok(Vec::new()),
            Err(failure) => Err(Box::pin(courier.keep_its_place(&parcel.message, failure)).await),
        }
    }

    async fn deliver_parcel(&self, context: &Context, parcel: &Parcel) -> Result<(), Failure> {
        let retried = self.failed_before(context).await?;
        self.hold_on(&parcel.message).await?;
        let attempt = self.attempt(parcel, retried).await;
        self.tell(parcel, &attempt).await?;
        self.tell_queue(&parcel.message, &attempt.verdict).await?;
        match attempt.verdict {
            Verdict::Delivered => Ok(()),
            Verdict::Failed => Err(Failure::last(words(&attempt.answer))),
            Verdict::Again(wait) => {
                let wait = self.wait_in_order(parcel.task, &parcel.message, wait).await?;
                Err(Failure::new(words(&attempt.answer)).after(wait))
            }
        }
    }

    /// One attempt.
    pub(super) async fn attempt(&self, parcel: &Parcel, retried: u32) -> Attempt {
        let now = clock::now();
        if retried == 0 {
            let wait = now.saturating_sub(parcel.message.not_before());
            self.desk.meter.waited(Duration::from_millis(wait));
        }
        let dispatch = self.dispatch(parcel.task, &parcel.message, retried);
        let attempt = self.send(parcel, retried, dispatch.as_ref(), now).await;
        if let Some(span) = dispatch {
            self.desk.tracer.end(span);
        }
        attempt
    }

    /// How many attempts were answered and failed. Those that a crash cut off are not among them: a server that is killed often
    /// costs a message none of its retries.
    pub(super) async fn failed_before(&self, context: &Context) -> Result<u32, Failure> {
        let starts = context.attempt - 1;
        if starts == 0 { Ok(0) } else { Box::pin(self.failed_of(context.id, starts)).await }
    }

    /// Of so many attempts at a task, those that were answered and failed.
    async fn failed_of(&self, task: TaskId, starts: u32) -> Result<u32, Failure> {
        // The newest says how many it is; those of an older version are counted. A few at a time: each has an answer in it.
        let (mut before, mut counted) = (None, 0);
        loop {
            let query = NoteQuery { tasks: vec![task], before, most: NOTES };
            let notes = self.desk.store.notes(query).await?;
            let Some(last) = notes.last().map(|note| note.id) else { return Ok(counted.min(starts)) };
            before = Some(last);
            for entry in notes.into_iter().filter_map(|note| Entry::from_bytes(note.body).ok()) {
                match entry.failed {
                    Some(failed) => return Ok(failed.min(starts)),
                    None => counted += u32::from(entry.stage == Stage::Error),
                }
            }
        }
    }

    /// The span of taking a message up, below the one that stored it; `None` where no traces are sent.
    fn dispatch(&self, task: TaskId, message: &Message, retried: u32) -> Option<Span> {
        self.desk.tracer.is_on().then(|| {
            let parent = message.head.trace.as_deref().and_then(traces::Context::read);
            let context = traces::Context::below(parent);
            let mut span = Span::new("dispatch", Kind::Consumer, context, parent);
            span.text("messaging.message.id", &self.desk.numbers.message(task));
            span.number("flowgate.retried", retried.into());
            span.number("flowgate.waited_ms", clock::now().saturating_sub(message.not_before()));
            if let Some(flow) = &message.head.spec.flow {
                span.text("flowgate.key", &flow.key);
            }
            if let Some(part) = &message.head.part {
                span.text("flowgate.run", &part.id);
            }
            span
        })
    }

    /// It begins `now`, for all that is to know it; but it is signed when it goes out, for the log may have been full.
    async fn send(&self, parcel: &Parcel, retried: u32, dispatch: Option<&Span>, now: u64) -> Attempt {
        let Parcel { task, message, bare } = parcel;
        self.desk.journal.add_stored(*task, Stage::Active, bare, now).await;
        let id = self.desk.numbers.message(*task);
        let body = request::body(message);
        let signature =
            self.desk.signer().sign(&message.head.url, &body, &sign::token_id(), clock::now() / 1000);
        let parent = dispatch.map(Span::context);
        let mut span = parent.map(|parent| Span::new("attempt", Kind::Client, parent.child(), Some(parent)));
        let trace =
            span.as_ref().map(|span| span.context().to_string()).or_else(|| message.head.trace.clone());
        let said = Said {
            id: &id,
            retried,
            signature: &signature,
            trace: trace.as_deref(),
            trace_state: message.head.trace_state.as_deref(),
        };
        let under_way = self.desk.meter.begin();
        let is_call = message.head.part.as_ref().is_some_and(|part| part.role == Role::Call);
        let egress = if is_call { &self.calls } else { &self.egress };
        let asking = match request::request(message, &said) {
            Ok(request) => Either::Left(egress.send_written(request, message.head.spec.timeout())),
            Err(error) => Either::Right(ready(Err(NoAnswer::Broken(error.to_string())))),
        };
        let answer = asking.await;
        let ended = clock::now();
        let verdict = verdict(&message.head.spec, &answer, retried, ended / 1000);
        under_way.ended(outcome(&verdict));
        self.desk.used(message, ended);
        if let Some(mut span) = span.take() {
            describe(&mut span, message, &answer);
            self.desk.tracer.end(span);
        }
        Attempt { retried, answer, verdict, ended, trace }
    }

    /// Notes the attempt, and tells whoever wants to know. Callbacks are stored before the message is settled: a crash in
    /// between repeats the attempt and loses none.
    async fn tell(&self, parcel: &Parcel, attempt: &Attempt) -> Result<(), Failure> {
        let spec = &parcel.message.head.spec;
        let id = || self.desk.numbers.message(parcel.task);
        if let Some(callback) = &spec.callback {
            let rest = RestOf::Callback(id(), attempt.retried);
            Box::pin(self.call_back(parcel, attempt, callback, rest)).await?;
        }
        self.write_down(parcel, attempt).await;
        match &spec.failure_callback {
            Some(callback) if attempt.verdict == Verdict::Failed => {
                let rest = RestOf::Failure(id(), attempt.retried);
                Box::pin(self.call_back(parcel, attempt, callback, rest)).await
            }
            _ => Ok(()),
        }
    }

    /// The attempt in the log.
    pub(super) async fn write_down(&self, parcel: &Parcel, attempt: &Attempt) {
        match attempt.verdict {
            Verdict::Delivered => {
                let Parcel { task, bare, .. } = parcel;
                self.desk.journal.add_stored(*task, Stage::Delivered, bare, attempt.ended).await;
            }
            Verdict::Again(wait) => Box::pin(self.write_down_failure(parcel, attempt, Some(wait))).await,
            Verdict::Failed => Box::pin(self.write_down_failure(parcel, attempt, None)).await,
        }
    }

    /// One that failed, and how long the next waits, if there is one.
    async fn write_down_failure(&self, parcel: &Parcel, attempt: &Attempt, wait: Option<Duration>) {
        let &Parcel { task, ref message, .. } = parcel;
        let journal = &self.desk.journal;
        let entry = |stage: Stage| Entry {
            stage,
            answer: attempt
                .answer
                .as_ref()
                .ok()
                .map(|answer| Answered::new(answer.status.as_u16(), &answer.headers, &answer.body)),
            error: Some(words(&attempt.answer)),
            next: None,
            failed: (stage == Stage::Error).then_some(attempt.retried + 1),
            message: message.without_body(),
        };
        match wait {
            Some(wait) => {
                // How often it failed is counted by these: it is there before the next attempt is.
                journal.add_now(task, &entry(Stage::Error)).await;
                let next = Some(clock::now() + wait.as_millis() as u64);
                journal
                    .add(task, &Entry { next, ..Entry::plain(Stage::Retry, message.without_body()) })
                    .await;
            }
            None => {
                journal.add(task, &entry(Stage::Error)).await;
                // A dead letter is told with the answer it got: that is there before the letter is.
                journal.add_now(task, &entry(Stage::Failed)).await;
            }
        }
    }

    async fn call_back(
        &self,
        &Parcel { task, ref message, .. }: &Parcel,
        attempt: &Attempt,
        callback: &Callback,
        rest: RestOf,
    ) -> Result<(), Failure> {
        let id = self.desk.numbers.message(task);
        let dead = self.desk.numbers.dead(task);
        let told = Told {
            id: &id,
            message,
            retried: attempt.retried,
            answer: &attempt.answer,
            dead: matches!(rest, RestOf::Failure(..)).then_some(dead.as_str()),
            more: serde_json::Map::new(),
        };
        let mut callback = callback::message(callback, &told, clock::now(), self.desk.callbacks);
        callback.head = self.desk.traced(&attempt.above(message), callback.head);
        let accepted = match message.head.queue.clone() {
            Some(queue) => self.accept_in_order(queue, callback, rest).await?,
            None => {
                callback.head.spec.dedupe.get_or_insert_with(|| Dedupe::Own(rest.name()));
                self.desk.accept(callback).await
            }
        };
        match accepted {
            // What cannot be stored now cannot be stored later: the delivery itself is not to be made again for that.
            Err(StoreError::Option(error)) => {
                let said = format!("its callback cannot be stored: {error}");
                let entry = Entry { error: Some(said), ..Entry::plain(Stage::Error, message.without_body()) };
                self.desk.journal.add(task, &entry).await;
                Ok(())
            }
            accepted => accepted.map_err(Failure::from).map(drop),
        }
    }
}

/// What is worth knowing of an attempt. A query may hold what is nobody's business.
fn describe(span: &mut Span, message: &Message, answer: &Result<Answer, NoAnswer>) {
    span.text("http.request.method", message.head.spec.method());
    if let Ok(url) = message.head.url.parse::<http::Uri>() {
        let host = url.authority().map_or("", |authority| authority.as_str());
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        span.text("url.full", &format!("{}://{host}{}", url.scheme_str().unwrap_or("http"), url.path()));
    }
    match answer {
        Ok(answer) => {
            span.number("http.response.status_code", answer.status.as_u16().into());
            if !answer.status.is_success() {
                span.failed(&words(&Ok(answer.clone())));
            }
        }
        Err(_) => span.failed(&words(answer)),
    }
}

fn outcome(verdict: &Verdict) -> Outcome {
    match verdict {
        Verdict::Delivered => Outcome::Delivered,
        Verdict::Again(_) => Outcome::Retried,
        Verdict::Failed => Outcome::Failed,
    }
}

pub(super) fn words(answer: &Result<Answer, NoAnswer>) -> String {
    match answer {
        Ok(answer) => format!("the endpoint answered {}", answer.status.as_u16()),
        Err(NoAnswer::Unfit(why)) => (*why).to_owned(),
        Err(error) => format!("the endpoint did not answer: {error}"),
    }
}
