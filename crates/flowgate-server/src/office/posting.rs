//! A message as a task: which line it waits in, under which limits, from when on, and how often it may start.

use std::time::Duration;

use flowgate_core::Limits;
use flowgate_tasks::{NewTask, Retry, TaskId, store::DEAD_KEPT};
use ring::digest::{Context, SHA256};

use super::{Entry, Stage};
use crate::{
    clock,
    delivery::{KIND, QUEUE},
    message::{Dedupe, Message, Role, Start},
};

/// How long an id keeps others of the same id out.
const DEDUPE: Duration = Duration::from_secs(10 * 60);
/// What the id of a message begins with that is a dead letter sent again.
const AGAIN: &str = "dlq/";
/// Starts beyond the retries, for those that ended with their server and not with an answer.
const SPARE: u32 = 20;
/// A run that loses one of its messages never ends: there the answers alone say when it is enough.
const MOST: u32 = 1000;

/// The key of a FIFO queue. A flow-control key has no slash, so the two never meet.
pub(crate) fn queue_key(name: &str) -> String {
    format!("queue/{name}")
}

/// The key of callbacks to one host. It stands among those of queues, and no queue has an empty name.
fn callback_key(url: &str) -> String {
    let uri: Option<http::Uri> = url.parse().ok();
    let host = uri.as_ref().and_then(http::Uri::authority).map_or("", |authority| authority.as_str());
    queue_key(&format!("/callbacks/{}", host.chars().take(200).collect::<String>()))
}

/// What keeps a dead letter from being sent again twice, for as long as it is there to be sent.
pub(crate) fn once(letter: TaskId) -> Dedupe {
    Dedupe::Own(format!("{AGAIN}{letter}"))
}

/// The task that delivers a message.
pub(crate) fn task(message: &Message) -> NewTask {
    let bytes = message.to_bytes();
    let spec = &message.head.spec;
    // The log begins with it, whoever is quick enough to deliver it at once.
    let (created, at) = (Entry::beginning(Stage::Created), clock::tick(message.head.created));
    let mut task = NewTask::new(KIND, bytes).queue(QUEUE).noted(at, created).retry(Retry {
        max_attempts: if message.head.part.is_some() { MOST } else { spec.retries() + 1 + SPARE },
        backoff: Duration::from_secs(1),
        factor: 2,
        max_backoff: Duration::from_secs(60),
    });
    if message.head.part.as_ref().is_some_and(|part| part.role == Role::Letter) {
        // It is delivered nowhere, and waits under nobody's limits.
    } else if let Some(queue) = &message.head.queue {
        // All of a queue stand in one lane, and so in one order; its parallelism is pinned.
        let one = Limits::builder().max(1).build().expect("one is a limit");
        task = task.key(queue_key(queue)).limits(one);
    } else if let Some(flow) = &spec.flow {
        task = task.key(&flow.key).limits(flow.limits());
    } else if let Some(share) = message.head.share {
        let share = Limits::builder().max(share.max(1)).build().expect("at least one is a limit");
        task = task.key(callback_key(&message.head.url)).limits(share);
    }
    task = match spec.start {
        None => task,
        Some(Start::After(millis)) => task.delay(Duration::from_millis(millis)),
        Some(Start::At(seconds)) => task.not_before(clock::tick(seconds.saturating_mul(1000))),
    };
    match &spec.dedupe {
        None => task,
        Some(Dedupe::Id(id)) => {
            let endpoint = message.head.endpoint.as_ref().or(message.head.topic.as_ref());
            let part = endpoint.map(|_| digest(&[message.head.url.as_bytes()])).unwrap_or_default();
            task.dedupe(format!("id/{id}/{part}"), DEDUPE)
        }
        Some(Dedupe::Own(id)) => {
            let lasting = if id.starts_with(AGAIN) { DEAD_KEPT } else { DEDUPE };
            task.dedupe(format!("own/{id}"), lasting)
        }
        Some(Dedupe::Content) => task.dedupe(format!("content/{}", content(message)), DEDUPE),
    }
}

/// What makes two messages the same by their contents.
fn content(message: &Message) -> String {
    let headers: Vec<u8> = message
        .head
        .spec
        .headers
        .iter()
        .flat_map(|(name, value)| format!("{name}:{value}\n").into_bytes())
        .collect();
    digest(&[message.head.url.as_bytes(), b"\n", &headers, b"\n", &message.body])
}

fn digest(parts: &[&[u8]]) -> String {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(part);
    }
    context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
