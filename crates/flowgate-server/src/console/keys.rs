//! Keys by search and page by page, and one of them with who holds its slots and who waits for them.

use axum::extract::{Path, State};
use flowgate_tasks::store::{KeyQuery, KeySort, Of, State as TaskState, TaskLook};
use serde_json::{Value, json};

use super::{router::Console, sample};
use crate::{
    api::{Answer, Asked, Problem, ok},
    clock,
    office::Desk,
};

const PAGE: usize = 50;
const MOST: usize = 100;
/// So many holders and so many of the line are shown.
const SHOWN: u32 = 50;
/// The keys of FIFO queues are told with the queues.
const OF_QUEUES: &str = "queue/";

pub(super) async fn list(State(console): State<Console>, asked: Asked) -> Answer {
    asked.only(&["search", "show", "after", "count"])?;
    let sort = match asked.one("show").unwrap_or("all") {
        "all" => KeySort::All,
        "busy" => KeySort::Busy,
        "paused" => KeySort::Paused,
        "pinned" => KeySort::Pinned,
        other => {
            return Err(Problem::bad(format!("show is {other:?}; send all, busy, paused or pinned")));
        }
    };
    let query = KeyQuery {
        search: asked.one("search").unwrap_or_default().to_owned(),
        without: OF_QUEUES.to_owned(),
        sort,
        after: asked.one("after").unwrap_or_default().to_owned(),
        most: asked.count(PAGE, MOST)? as u32,
    };
    let page = console.desk.store.find_keys(query).await?;
    let keys: Vec<Value> = page.keys.iter().map(sample::key).collect();
    ok(json!({ "keys": keys, "next": page.next, "at": clock::now() }))
}

pub(super) async fn read(State(console): State<Console>, Path(key): Path<String>) -> Answer {
    let desk = &console.desk;
    let spent = desk.store.key_spent(key.clone()).await?;
    let spent = spent.ok_or_else(|| Problem::missing("key", &key))?;
    let holders = desk.store.holders(Of::Key(key.clone()), SHOWN).await?;
    let mut held = Vec::with_capacity(holders.len());
    for holder in holders {
        let mut view = json!({
            "task": holder.id.0,
            "kind": holder.kind,
            "weight": holder.weight,
            "attempt": holder.attempt,
            "heldForMs": holder.held_for.as_millis() as u64,
        });
        name(desk, &mut view, desk.store.look_at_task(holder.id).await?.as_ref());
        held.push(view);
    }
    let line = desk.store.line(Of::Key(key), SHOWN).await?;
    let line: Vec<Value> = line.iter().map(|look| waiting(desk, look)).collect();
    ok(
        json!({ "key": sample::key(&spent), "holders": held, "line": line, "shown": SHOWN, "at": clock::now() }),
    )
}

fn waiting(desk: &Desk, look: &TaskLook) -> Value {
    let kind = look.record.as_ref().map(|record| record.kind.as_str());
    let mut view =
        json!({ "task": look.id.0, "kind": kind, "priority": look.priority, "starts": look.attempt });
    if let TaskState::Delayed { until } = look.state {
        view["delayedUntil"] = json!(until.as_nanos() / 1_000_000);
    }
    name(desk, &mut view, Some(look));
    view
}

/// Puts the name and the address of a message beside its number.
fn name(desk: &Desk, view: &mut Value, look: Option<&TaskLook>) {
    let Some((look, message)) = look.and_then(|look| Some((look, desk.message_of(look)?))) else { return };
    view["messageId"] = json!(desk.numbers.message(look.id));
    view["url"] = json!(message.head.url);
    view["createdAt"] = json!(message.head.created);
}
