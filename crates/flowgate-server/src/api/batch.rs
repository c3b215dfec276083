//! `POST /v2/batch`: many messages, of which all are taken in or none, but for what the store refuses of runs.

use std::{collections::BTreeMap, net::SocketAddr};

use axum::{
    Json,
    body::Bytes,
    extract::{ConnectInfo, State},
    http::{HeaderMap, StatusCode},
    response::IntoResponse,
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    publish::{Told, View},
    reply::{Answer, Problem},
    runs,
    sent::Sent,
};
use crate::{
    message::{Destination, Given, Message, Target, from_json, name},
    office::{Desk, MOST_OF_A_REQUEST, Planned, Sending},
    workflow::RUN_ID,
};

const MOST: usize = 10_000;
/// With those of URL groups.
const MOST_MESSAGES: usize = 100_000;
const FORM: &str = r#"send a list of {"destination": "https://…", "headers": {"Name": "value"}, "body": "text", "queue": "name"}"#;

#[derive(Deserialize)]
#[serde(expecting = "an entry")]
pub(super) struct One {
    destination: String,
    #[serde(default)]
    headers: Option<BTreeMap<String, Value>>,
    /// Text as it is; what is not text is JSON, as the clients leave it for calls.
    #[serde(default)]
    body: Option<Value>,
    #[serde(default)]
    queue: Option<String>,
}

pub(super) async fn batch(
    State(desk): State<Desk>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Sent(body): Sent,
) -> Answer {
    let batch = read(&body)?;
    let above = trace_of(&headers);
    let caller = peer.ip().to_canonical().to_string();
    let mut shapes = Vec::with_capacity(batch.len());
    let mut messages: Vec<Message> = Vec::with_capacity(batch.len());
    let mut planned: Vec<Planned> = Vec::new();
    let (mut bytes, mut known) = (0, None);
    for (index, one) in batch.into_iter().enumerate() {
        let is_of_run = one.is_of_run();
        let sending = one.sending(&caller, &mut known);
        let mut sending = sending.map_err(|problem| problem.at(index).in_run(is_of_run))?;
        if sending.given.last("traceparent").is_none() {
            sending.given = sending.given.over(&above);
        }
        if let Some(ask) = runs::asked_for(&sending.given)? {
            planned.push(runs::planned(&desk, ask, sending).await?);
            shapes.push(Shape::Run);
            continue;
        }
        let is_group = matches!(sending.destination, Destination::Group(_));
        let read = desk.read(sending).await.map_err(|refused| Problem::from(refused).at(index))?;
        shapes.push(Shape::Plain { count: read.len(), is_group });
        bytes += read.iter().map(Message::size).sum::<usize>();
        messages.extend(read);
        is_bounded(messages.len(), bytes).map_err(|problem| problem.at(index))?;
    }
    // What belongs to runs first: it can be refused, and sent again it is known. The others are stored in one transaction; if the
    // store fails just there, the whole batch sent again makes up for them, and for nothing twice.
    let mut stored = desk.commit(planned).await?.into_iter();
    let mut accepted = desk.accept_all(messages).await?.into_iter();
    let mut views = Vec::with_capacity(shapes.len());
    for shape in shapes {
        let told = match shape {
            Shape::Run => {
                Told::Run(stored.next().map(|stored| runs::sent(&desk, &stored)).unwrap_or_default())
            }
            Shape::Plain { count, is_group } => {
                let mut each =
                    accepted.by_ref().take(count).map(|accepted| View::of(&desk, accepted, is_group));
                match is_group {
                    true => Told::Many(each.collect()),
                    false => each.next().map_or(Told::Run(Value::Null), Told::One),
                }
            }
        };
        views.push(told);
    }
    Ok(Json(views).into_response())
}

/// URL groups make many messages of one entry: what they come to has a bound.
fn is_bounded(messages: usize, bytes: usize) -> Result<(), Problem> {
    if messages > MOST_MESSAGES || bytes > MOST_OF_A_REQUEST {
        return Err(Problem::bad(format!(
            "up to this entry the batch has {messages} messages of {bytes} bytes; send up to {MOST_MESSAGES} and {} MiB \
             at once",
            MOST_OF_A_REQUEST / 1024 / 1024
        )));
    }
    Ok(())
}

/// Where the request stands in a trace: so do its entries, unless they say it themselves.
fn trace_of(headers: &HeaderMap) -> Given {
    let told = ["traceparent", "tracestate"].into_iter();
    told.filter_map(|name| Some((name, headers.get(name)?.to_str().ok()?))).collect()
}

/// What an entry became.
enum Shape {
    /// A message of a run.
    Run,
    /// So many messages, and whether they are for a group.
    Plain { count: usize, is_group: bool },
}

/// The entries of a batch.
pub(super) fn read(body: &Bytes) -> Result<Vec<One>, Problem> {
    // Looked at by its first byte: to try one form after the other would read everything twice.
    let is_one = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let batch: serde_json::Result<Vec<One>> = match is_one {
        true => from_json(body).map(|one| vec![one]),
        false => from_json(body),
    };
    let batch = batch.map_err(|error| Problem::bad(format!("the body is not a batch ({error}); {FORM}")))?;
    if batch.len() > MOST {
        let text = format!("the batch has {} entries; send up to {MOST} at once", batch.len());
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, text));
    }
    Ok(batch)
}

impl One {
    fn is_of_run(&self) -> bool {
        self.headers.iter().flatten().any(|(name, _)| name.eq_ignore_ascii_case(RUN_ID))
    }

    /// `known` is the destination that was read last, and what it is: mostly the next is the same.
    pub(super) fn sending(
        self,
        caller: &str,
        known: &mut Option<(String, Target)>,
    ) -> Result<Sending, Problem> {
        let target = match known {
            Some((text, target)) if *text == self.destination => target.clone(),
            _ => {
                let target = Target::read(&self.destination)?;
                known.insert((self.destination, target)).1.clone()
            }
        };
        let mut given = Given::default();
        for (name, value) in self.headers.unwrap_or_default() {
            match value {
                Value::Null => {}
                Value::String(text) => given.add(&name, text),
                Value::Number(_) | Value::Bool(_) => given.add(&name, value.to_string()),
                _ => return Err(Problem::bad(format!("the header {name} is not text; send a string"))),
            }
        }
        let queue = self.queue.filter(|queue| !queue.is_empty());
        if let Some(queue) = &queue {
            name("the queue", queue)?;
        }
        Ok(Sending {
            destination: target.destination,
            given: given.over(&target.settings.into_iter().collect()),
            body: match self.body {
                None | Some(Value::Null) => Bytes::new(),
                Some(Value::String(text)) => text.into(),
                Some(other) => other.to_string().into(),
            },
            queue,
            schedule: None,
            caller: Some(caller.to_owned()),
        })
    }
}
