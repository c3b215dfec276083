//! What a worker runs for each message: an attempt, what it means, who is told, and what becomes of the message.

use std::{sync::Arc, time::SystemTime};

use bytes::Bytes;
use flowgate_tasks::{
    TaskId,
    worker::{Context, Failure, Handlers},
};
use tokio::sync::watch;

use super::{
    callback::{self, Told},
    egress::{Answer, Egress, NoAnswer},
    request::{self, Said},
    verdict::{Verdict, in_seconds, verdict},
};
use crate::{
    clock,
    message::{Callback, Dedupe, Message, Space, Spaces},
    office::{Answered, Desk, Entry, Stage, TICK, Tick, random_text},
};

/// The kind of the tasks that deliver messages.
pub(crate) const KIND: &str = "deliver";
/// The queue of the store that they wait in.
pub(crate) const QUEUE: &str = "messages";

/// Delivers messages.
#[derive(Clone)]
pub(crate) struct Courier {
    desk: Desk,
    egress: Egress,
    /// True when the server begins to stop.
    closing: watch::Receiver<bool>,
    /// Those of namespaces.
    others: Arc<Spaces<Arc<Courier>>>,
}

/// One attempt, and what came of it.
struct Attempt {
    retried: u32,
    answer: Result<Answer, NoAnswer>,
    verdict: Verdict,
}

impl Courier {
    pub(crate) fn new(desk: Desk, egress: Egress, closing: watch::Receiver<bool>) -> Self {
        Courier { desk, egress, closing, others: Arc::default() }
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
        let ticker = Arc::clone(&courier);
        Handlers::new().on_bytes(KIND, move |context, body| Arc::clone(&courier).deliver(context, body)).on(
            TICK,
            move |tick: Tick| {
                let courier = Arc::clone(&ticker).within(&tick.space);
                async move { tick.run(&courier.desk).await.map_err(Failure::from) }
            },
        )
    }

    async fn deliver(self: Arc<Self>, context: Context, body: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let message = Message::from_bytes(&Bytes::from(body)).map_err(Failure::last)?;
        let courier = self.within(&message.head.space);
        let mut retried = context.attempt - 1;
        loop {
            let attempt = Box::pin(courier.attempt(context.id, &message, retried)).await;
            Box::pin(courier.tell(context.id, &message, &attempt)).await?;
            let said = words(&attempt.answer);
            match attempt.verdict {
                Verdict::Delivered => return Ok(Vec::new()),
                Verdict::Failed => return Err(Failure::last(said)),
                // In a queue nobody overtakes: the message keeps its place while it waits.
                Verdict::Again(wait) if message.head.queue.is_some() => {
                    let mut closing = courier.closing.clone();
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        _ = closing.wait_for(|is_closing| *is_closing) => {
                            return Err(Failure::new("the server stopped").after(std::time::Duration::ZERO));
                        }
                    }
                    retried += 1;
                }
                Verdict::Again(wait) => return Err(Failure::new(said).after(wait)),
            }
        }
    }

    async fn attempt(&self, task: TaskId, message: &Message, retried: u32) -> Attempt {
        self.desk.journal.add(task, &Entry::plain(Stage::Active, message.without_body())).await;
        let id = self.desk.numbers.message(task);
        let body = request::body(message);
        let now = in_seconds(SystemTime::now());
        let jti = format!("jwt_{}", random_text(20));
        let signature = self.desk.signing_keys().sign(&message.head.url, &body, &jti, now);
        let said = Said { id: &id, retried, signature: &signature };
        let answer = match request::request(message, &said) {
            Ok(request) => self.egress.send(request, message.head.spec.timeout()).await,
            Err(error) => Err(NoAnswer::Broken(error.to_string())),
        };
        let verdict = verdict(&message.head.spec, &answer, retried, in_seconds(SystemTime::now()));
        Attempt { retried, answer, verdict }
    }

    /// Notes the attempt, and tells whoever wants to know. Callbacks are stored before the message is settled: a crash in
    /// between repeats the attempt and loses none.
    async fn tell(&self, task: TaskId, message: &Message, attempt: &Attempt) -> Result<(), Failure> {
        let entry = |stage: Stage| Entry {
            stage,
            answer: attempt
                .answer
                .as_ref()
                .ok()
                .map(|answer| Answered::new(answer.status.as_u16(), &answer.headers, &answer.body)),
            error: (attempt.verdict != Verdict::Delivered).then(|| words(&attempt.answer)),
            next: None,
            message: message.without_body(),
        };
        let spec = &message.head.spec;
        let journal = &self.desk.journal;
        if let Some(callback) = &spec.callback {
            self.call_back(task, message, attempt, callback, "callback").await?;
        }
        match attempt.verdict {
            Verdict::Delivered => {
                let plain = Entry { answer: None, ..entry(Stage::Delivered) };
                journal.add(task, &plain).await;
            }
            Verdict::Again(wait) => {
                journal.add(task, &entry(Stage::Error)).await;
                let next = Some(clock::now() + wait.as_millis() as u64);
                journal
                    .add(task, &Entry { next, ..Entry::plain(Stage::Retry, message.without_body()) })
                    .await;
            }
            Verdict::Failed => {
                journal.add(task, &entry(Stage::Error)).await;
                // A dead letter is told with the answer it got: that is there before the letter is.
                journal.add_now(task, &entry(Stage::Failed)).await;
                if let Some(callback) = &spec.failure_callback {
                    self.call_back(task, message, attempt, callback, "failure").await?;
                }
            }
        }
        Ok(())
    }

    async fn call_back(
        &self,
        task: TaskId,
        message: &Message,
        attempt: &Attempt,
        callback: &Callback,
        kind: &str,
    ) -> Result<(), Failure> {
        let id = self.desk.numbers.message(task);
        let dead = self.desk.numbers.dead(task);
        let told = Told {
            id: &id,
            message,
            retried: attempt.retried,
            answer: &attempt.answer,
            dead: (kind == "failure").then_some(dead.as_str()),
        };
        let mut callback = callback::message(callback, &told, clock::now());
        let name = format!("{kind}/{id}/{}", attempt.retried);
        callback.head.spec.dedupe = callback.head.spec.dedupe.or(Some(Dedupe::Id(name)));
        if message.head.queue.is_none() {
            return self.desk.accept(callback).await.map_err(Failure::from).map(drop);
        }
        let sent = self.desk.accept_awaited(callback).await?;
        self.wait_for(sent.id).await;
        Ok(())
    }

    /// In a queue the next message starts when those that tell of this one have ended, too.
    async fn wait_for(&self, callback: TaskId) {
        let mut closing = self.closing.clone();
        tokio::select! {
            // A store that cannot be asked is no reason to hold the queue.
            _ = self.desk.client.wait(callback) => {}
            _ = closing.wait_for(|is_closing| *is_closing) => {}
        }
    }
}

fn words(answer: &Result<Answer, NoAnswer>) -> String {
    match answer {
        Ok(answer) => format!("the endpoint answered {}", answer.status.as_u16()),
        Err(error) => format!("the endpoint did not answer: {error}"),
    }
}
