//! `POST /v2/batch`: many messages, of which all are taken in or none.

use std::{collections::BTreeMap, net::SocketAddr};

use axum::{
    Json,
    extract::{ConnectInfo, State},
    response::IntoResponse,
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    publish::view,
    reply::{Answer, Problem},
    sent::Sent,
};
use crate::{
    message::{Destination, Given, Message, Target, name},
    office::{Desk, Sending},
};

const MOST: usize = 10_000;
const FORM: &str = r#"send a list of {"destination": "https://…", "headers": {"Name": "value"}, "body": "text", "queue": "name"}"#;

#[derive(Deserialize)]
#[serde(untagged)]
enum Batch {
    Many(Vec<One>),
    One(Box<One>),
}

#[derive(Deserialize)]
struct One {
    destination: String,
    #[serde(default)]
    headers: Option<BTreeMap<String, Value>>,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    queue: Option<String>,
}

pub(super) async fn batch(
    State(desk): State<Desk>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Sent(body): Sent,
) -> Answer {
    let batch: Batch = serde_json::from_slice(&body)
        .map_err(|error| Problem::bad(format!("the body is not a batch ({error}); {FORM}")))?;
    let batch = match batch {
        Batch::Many(batch) => batch,
        Batch::One(one) => vec![*one],
    };
    if batch.len() > MOST {
        return Err(Problem::bad(format!(
            "the batch has {} entries; send up to {MOST} at once",
            batch.len()
        )));
    }
    let caller = peer.ip().to_canonical().to_string();
    // How many messages each entry became, and whether it was for a group.
    let mut shapes = Vec::with_capacity(batch.len());
    let mut messages: Vec<Message> = Vec::with_capacity(batch.len());
    for (index, one) in batch.into_iter().enumerate() {
        let sending = one.sending(&caller).map_err(|problem| problem.at(index))?;
        let is_group = matches!(sending.destination, Destination::Group(_));
        let read = desk.read(sending).await.map_err(|refused| Problem::from(refused).at(index))?;
        shapes.push((read.len(), is_group));
        messages.extend(read);
    }
    let mut accepted = desk.accept_all(messages).await?.into_iter();
    let mut views = Vec::with_capacity(shapes.len());
    for (count, is_group) in shapes {
        let mut each = accepted.by_ref().take(count).map(|accepted| view(&desk, &accepted, is_group));
        let told = if is_group { Value::Array(each.collect()) } else { each.next().unwrap_or_default() };
        views.push(told);
    }
    Ok(Json(views).into_response())
}

impl One {
    fn sending(self, caller: &str) -> Result<Sending, Problem> {
        let target = Target::read(&self.destination)?;
        let mut given = Given::default();
        for (name, value) in self.headers.unwrap_or_default() {
            match value {
                Value::Null => {}
                Value::String(text) => given.add(&name, text),
                Value::Number(_) | Value::Bool(_) => given.add(&name, value.to_string()),
                _ => return Err(Problem::bad(format!("the header {name} is no text; send a string"))),
            }
        }
        let queue = self.queue.filter(|queue| !queue.is_empty());
        if let Some(queue) = &queue {
            name("the queue", queue)?;
        }
        Ok(Sending {
            destination: target.destination,
            given: given.over(&target.settings.into_iter().collect()),
            body: self.body.unwrap_or_default().into(),
            queue,
            schedule: None,
            caller: Some(caller.to_owned()),
        })
    }
}
