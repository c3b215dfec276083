//! `/v2/schedules`: what is sent again and again.

use std::net::SocketAddr;

use axum::{
    body::Bytes,
    extract::{ConnectInfo, State},
    http::{HeaderMap, Method, StatusCode, Uri, header::ALLOW},
    response::IntoResponse,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use flowgate_tasks::{TaskId, store::NoteQuery};
use serde_json::{Map, Value, json};

use super::{
    publish::{given, target},
    reply::{Answer, Problem, done, ok},
    sent::Sent,
    slice::TOLD,
};
use crate::{
    clock,
    message::{Destination, Head, Message, Start, message_view, name, read as read_spec},
    office::{Cron, Desk, Entry, Schedule, Stage, random_text},
};

const PREFIX: &str = "/v2/schedules/";
/// A list tells the states of so many messages; the others are told of each schedule by itself.
const MOST_LOOKS: usize = 1000;

pub(super) async fn list(State(desk): State<Desk>) -> Answer {
    let schedules = Schedule::all(&*desk.store, TOLD).await?;
    let (mut told, mut looks) = (Vec::with_capacity(schedules.len()), MOST_LOOKS);
    for schedule in &schedules {
        let states = match looks.checked_sub(schedule.sent.len()) {
            Some(left) => {
                looks = left;
                states(&desk, schedule).await?
            }
            None => Map::new(),
        };
        told.push(view(schedule, states));
    }
    ok(told)
}

/// What became of the messages that it sent last: of each by what its log says last.
async fn states(desk: &Desk, schedule: &Schedule) -> Result<Map<String, Value>, Problem> {
    let mut states = Map::new();
    for id in schedule.sent.iter().copied().map(TaskId) {
        let query = NoteQuery { tasks: vec![id], before: None, most: 1 };
        let last = desk.store.notes(query).await?.pop().and_then(|note| Entry::from_bytes(note.body).ok());
        let state = match last.map(|entry| entry.stage) {
            // The log does not go back so far.
            None => continue,
            Some(Stage::Delivered) => "SUCCESS",
            Some(Stage::Failed | Stage::Canceled) => "FAIL",
            Some(_) => "IN_PROGRESS",
        };
        states.insert(desk.numbers.message(id), json!(state));
    }
    Ok(states)
}

/// Everything below the list: a destination after POST, else an id, perhaps with what to do with it.
pub(super) async fn rest(
    State(desk): State<Desk>,
    uri: Uri,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    method: Method,
    headers: HeaderMap,
    Sent(body): Sent,
) -> Answer {
    let path = uri.path().strip_prefix(PREFIX).unwrap_or_default().to_owned();
    let is_change = method == Method::POST || method == Method::PATCH;
    let change = path
        .strip_suffix("/pause")
        .map(|id| (id, true))
        .or(path.strip_suffix("/resume").map(|id| (id, false)));
    match (method, change) {
        (_, Some((id, is_paused))) if is_change && name("the schedule", id).is_ok() => {
            match Schedule::pause(&*desk.store, id, is_paused).await? {
                true => done(),
                false => Err(Problem::missing("schedule", id)),
            }
        }
        (Method::POST, _) => create(&desk, &uri, &headers, &body, peer).await,
        (Method::GET, _) => {
            let found = Schedule::find(&*desk.store, &path).await?;
            let found = found.ok_or_else(|| Problem::missing("schedule", &path))?;
            ok(view(&found, states(&desk, &found).await?))
        }
        (Method::DELETE, _) => match Schedule::remove(&*desk.store, &path).await? {
            true => done(),
            false => Err(Problem::missing("schedule", &path)),
        },
        (Method::PATCH, Some((id, _))) => {
            Err(name("the schedule", id).map_or_else(Problem::from, |id| Problem::missing("schedule", id)))
        }
        _ => {
            let problem =
                Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not support this method");
            Ok(([(ALLOW, "GET, POST, DELETE, PATCH")], problem).into_response())
        }
    }
}

async fn create(desk: &Desk, uri: &Uri, headers: &HeaderMap, body: &Bytes, peer: SocketAddr) -> Answer {
    let target = target(uri, PREFIX)?;
    let given = given(headers, target.settings)?;
    let cron = given.last("upstash-cron").map(str::to_owned);
    let cron = cron.ok_or_else(|| Problem::bad("Upstash-Cron is missing; send one like 0 9 * * 1-5"))?;
    Cron::read(&cron)?;
    let spec = read_spec(&given)?;
    let queue = given.last("upstash-queue-name").map(str::to_owned);
    if let Some(queue) = &queue {
        name("Upstash-Queue-Name", queue)?;
        if spec.flow.is_some() {
            return Err(Problem::bad(
                "a queue has limits of its own; send it without Upstash-Flow-Control-Key",
            ));
        }
    }
    let id = match given.last("upstash-schedule-id") {
        Some(id) => name("Upstash-Schedule-Id", id)?.to_owned(),
        None => format!("scd_{}", random_text(24)),
    };
    let known = Schedule::find(&*desk.store, &id).await?;
    let schedule = Schedule {
        id: id.clone(),
        cron,
        created: known.as_ref().map_or_else(clock::now, |known| known.created),
        destination: match target.destination {
            Destination::Url(url) => url,
            Destination::Group(name) => name,
        },
        headers: given.kept().collect(),
        body: STANDARD.encode(body),
        queue,
        caller: Some(peer.ip().to_canonical().to_string()),
        is_paused: known.as_ref().is_some_and(|known| known.is_paused),
        edition: random_text(8),
        last: known.as_ref().and_then(|known| known.last),
        sent: known.map(|known| known.sent).unwrap_or_default(),
        error: None,
    };
    schedule.put(desk).await?;
    ok(json!({ "scheduleId": id }))
}

/// A schedule as the protocol writes it: the message it sends, without what a message has and a schedule has not.
fn view(schedule: &Schedule, states: Map<String, Value>) -> Value {
    let spec = read_spec(&schedule.given()).unwrap_or_default();
    let delay = match spec.start {
        Some(Start::After(millis)) => Some(millis / 1000),
        _ => None,
    };
    let head = Head {
        url: schedule.destination.clone(),
        created: schedule.created,
        spec,
        caller: schedule.caller.clone(),
        queue: schedule.queue.clone(),
        ..Head::default()
    };
    let mut view = message_view("", &Message { head: head.into(), body: schedule.bytes() });
    for name in ["messageId", "url", "notBefore"] {
        view.remove(name);
    }
    let retries = view.remove("maxRetries").unwrap_or_default();
    let own = [
        ("scheduleId", json!(schedule.id)),
        ("cron", json!(schedule.cron)),
        ("destination", json!(schedule.destination)),
        ("retries", retries),
        ("isPaused", json!(schedule.is_paused)),
    ];
    view.extend(own.map(|(name, value)| (name.to_owned(), value)));
    let times = [
        ("delay", delay),
        ("lastScheduleTime", schedule.last),
        ("nextScheduleTime", schedule.next(clock::now())),
    ];
    for (name, time) in times {
        if let Some(time) = time {
            view.insert(name.to_owned(), json!(time));
        }
    }
    if !states.is_empty() {
        view.insert("lastScheduleStates".to_owned(), Value::Object(states));
    }
    if let Some(error) = &schedule.error {
        view.insert("error".to_owned(), json!(error));
    }
    Value::Object(view)
}
