//! `/v2/queues`: FIFO queues.

use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    path::Path,
    reply::{Answer, Problem, done, ok},
    sent::Sent,
};
use crate::{
    message::name,
    office::{Desk, Queue, queue_key},
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Body {
    queue_name: String,
    #[serde(default)]
    parallelism: Option<u32>,
    #[serde(default)]
    paused: Option<bool>,
}

pub(super) async fn put(State(desk): State<Desk>, sent: Sent) -> Answer {
    let body: Body = sent.object(r#"send {"queueName": "name", "parallelism": 1, "paused": false}"#)?;
    let queue = name("queueName", &body.queue_name)?;
    if let Some(count) = body.parallelism.filter(|count| !(1..=1_000_000_000).contains(count)) {
        return Err(Problem::bad(format!(
            "parallelism is {count}; send a whole number from 1 to 1000000000"
        )));
    }
    Queue::set(&*desk.store, queue, body.parallelism, body.paused).await?;
    done()
}

pub(super) async fn list(State(desk): State<Desk>) -> Answer {
    let mut views = Vec::new();
    for queue in Queue::all(&*desk.store).await? {
        views.push(view(&desk, &queue).await?);
    }
    ok(views)
}

pub(super) async fn read(State(desk): State<Desk>, Path(name): Path<String>) -> Answer {
    let queue = Queue::find(&*desk.store, &name).await?.ok_or_else(|| Problem::missing("queue", &name))?;
    ok(view(&desk, &queue).await?)
}

async fn view(desk: &Desk, queue: &Queue) -> Result<Value, Problem> {
    let look = desk.store.look_at_key(queue_key(&queue.name)).await?;
    if !queue.agrees(look.as_ref()) {
        Queue::settle(&*desk.store, &queue.name).await?;
    }
    let lag = look.map_or(0, |look| look.waiting + look.delayed + u64::from(look.in_use));
    Ok(json!({
        "name": queue.name,
        "parallelism": queue.parallelism,
        "paused": queue.paused,
        "createdAt": queue.created,
        "updatedAt": queue.updated,
        "lag": lag,
    }))
}

pub(super) async fn remove(State(desk): State<Desk>, Path(name): Path<String>) -> Answer {
    if Queue::find(&*desk.store, &name).await?.is_some() {
        Queue::remove(&*desk.store, &name).await?;
    }
    done()
}

pub(super) async fn pause(State(desk): State<Desk>, Path(name): Path<String>) -> Answer {
    set_paused(&desk, &name, true).await
}

pub(super) async fn resume(State(desk): State<Desk>, Path(name): Path<String>) -> Answer {
    set_paused(&desk, &name, false).await
}

async fn set_paused(desk: &Desk, queue: &str, is_paused: bool) -> Answer {
    let queue = name("the queue", queue)?;
    // One that is not there is not paused: it is not made for that.
    if is_paused || Queue::find(&*desk.store, queue).await?.is_some() {
        Queue::set(&*desk.store, queue, None, Some(is_paused)).await?;
    }
    done()
}
