//! Keys by search and page by page, and one key with the holders of its slots and its waiters.

use std::collections::BTreeMap;

use axum::extract::State;
use flowgate_tasks::store::{
    KeyChange, KeyLook, KeyPage, KeyQuery, KeySort, KeySpent, Of, State as TaskState, StoreError, TaskLook,
};
use serde_json::{Value, json};

use super::{router::Console, sample};
use crate::{
    api::{Answer, Asked, OF_QUEUES, Problem, done, ok, pinned},
    clock,
    office::Desk,
};

const PAGE: usize = 50;
const MOST: usize = 100;
/// So many holders and so many of the line are shown.
const SHOWN: u32 = 50;

/// Behind this stand all names that a key may have.
const FROM_THE_FIRST: &str = " ";

pub(super) async fn list(State(console): State<Console>, asked: Asked) -> Answer {
    asked.only(&["search", "show", "after", "count"])?;
    let is_first = asked.one("search").is_none() && asked.one("after").is_none();
    let sort = match asked.one("show").unwrap_or("all") {
        "busiest" if is_first => return busiest_first(&console, asked.count(PAGE, MOST)?).await,
        // What is searched, and what follows the first page, has the order of the names.
        "all" | "busiest" => KeySort::All,
        "busy" => KeySort::Busy,
        "paused" => KeySort::Paused,
        "pinned" => KeySort::Pinned,
        other => {
            return Err(Problem::bad(format!(
                "show is {other:?}; send busiest, all, busy, paused or pinned"
            )));
        }
    };
    let query = KeyQuery {
        search: asked.one("search").unwrap_or_default().to_owned(),
        without: OF_QUEUES.to_owned(),
        sort,
        after: asked.one("after").unwrap_or_default().to_owned(),
        most: asked.count(PAGE, MOST)? as u32,
    };
    let page = found(&console.desk, query).await?;
    let keys: Vec<Value> = page.keys.iter().map(sample::key).collect();
    ok(json!({ "keys": keys, "next": page.next, "at": clock::now() }))
}

/// The busiest first, and then, as far as there is room, others by their names. What follows is all of them by their names.
async fn busiest_first(console: &Console, count: usize) -> Answer {
    let store = &console.desk.store;
    let mut keys = console.busiest.keys(&**store).await?;
    keys.retain(|spent| !spent.key.key.starts_with(OF_QUEUES));
    let query = KeyQuery { without: OF_QUEUES.to_owned(), most: count as u32, ..KeyQuery::default() };
    let page = found(&console.desk, query).await?;
    for spent in page.keys {
        if !keys.iter().any(|known| known.key.key == spent.key.key) {
            keys.push(spent);
        }
    }
    let is_all = page.next.is_none() && keys.len() <= count;
    keys.truncate(count);
    let keys: Vec<Value> = keys.iter().map(sample::key).collect();
    ok(json!({ "keys": keys, "next": (!is_all).then_some(FROM_THE_FIRST), "at": clock::now() }))
}

/// A page of keys: those of the store and, where all are asked for, those that were used lately and are idle.
async fn found(desk: &Desk, query: KeyQuery) -> Result<KeyPage, StoreError> {
    let page = desk.store.find_keys(query.clone()).await?;
    if query.sort != KeySort::All {
        return Ok(page);
    }
    let search = query.search.to_ascii_lowercase();
    let mut recent = desk.recent_keys();
    recent.retain(|KeySpent { key: KeyLook { key, .. }, .. }| {
        *key > query.after
            && page.next.as_ref().is_none_or(|next| key <= next)
            && key.to_ascii_lowercase().contains(&search)
    });
    Ok(merged(page.keys, recent, page.next, query.most as usize))
}

/// Both in the order of their names, and no more than may be; what the store says of a key comes before what is remembered of it.
fn merged(stored: Vec<KeySpent>, recent: Vec<KeySpent>, next: Option<String>, most: usize) -> KeyPage {
    let mut all: BTreeMap<String, KeySpent> =
        recent.into_iter().map(|spent| (spent.key.key.clone(), spent)).collect();
    all.extend(stored.into_iter().map(|spent| (spent.key.key.clone(), spent)));
    let is_more = all.len() > most;
    let keys: Vec<KeySpent> = all.into_values().take(most).collect();
    let next = if is_more { keys.last().map(|spent| spent.key.key.clone()) } else { next };
    KeyPage { keys, next }
}

/// The key that is asked for. It may be any text: a task's key has no form, and a path cannot name `..`.
fn named(asked: &Asked) -> Result<String, Problem> {
    let missing = || Problem::bad("key is missing; send key=<key>");
    asked.one("key").map(str::to_owned).ok_or_else(missing)
}

pub(super) async fn read(State(console): State<Console>, asked: Asked) -> Answer {
    asked.only(&["key"])?;
    let (desk, key) = (&console.desk, named(&asked)?);
    let spent = desk.key(key.clone()).await?;
    let spent = spent.ok_or_else(|| Problem::missing("key", &key))?;
    let holders = desk.store.holders(Of::Key(key.clone()), SHOWN).await?;
    let mut held = Vec::with_capacity(holders.len());
    for holder in holders.into_iter().filter(|holder| !holder.is_at_hand) {
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

/// `POST /console/data/key`: pauses, resumes, pins, unpins, or begins a new window, as the API does for the keys of messages.
pub(super) async fn change(State(console): State<Console>, asked: Asked) -> Answer {
    asked.only(&["key", "do", "parallelism", "rate", "period", "smooth"])?;
    let key = named(&asked)?;
    let change = match asked.one("do").unwrap_or_default() {
        "pause" => KeyChange::Pause,
        "resume" => KeyChange::Resume,
        "resetRate" => KeyChange::ResetRate,
        "pin" => pinned(&asked)?,
        "unpin" => KeyChange::Unpin,
        other => {
            return Err(Problem::bad(format!(
                "do is {other:?}; send pause, resume, resetRate, pin or unpin"
            )));
        }
    };
    console.desk.store.change_key(key, change).await?;
    done()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(key: &str, in_use: u32) -> KeySpent {
        let key = KeyLook {
            key: key.to_owned(),
            in_use,
            waiting: 0,
            delayed: 0,
            is_paused: false,
            pinned: None,
            is_latest: false,
            sent: None,
            unread: None,
        };
        KeySpent { key, rate: None }
    }

    #[test]
    fn f6_a_page_has_stored_and_recent_keys_in_one_order_and_loses_none_at_its_end() {
        // Seen to fail: with `next` of the store kept, what did not fit the first page is on none.
        let page = |stored: &[&str], recent: &[&str], next: Option<&str>| {
            let stored = stored.iter().map(|key| spent(key, 1)).collect();
            let recent = recent.iter().map(|key| spent(key, 0)).collect();
            let page = merged(stored, recent, next.map(str::to_owned), 3);
            let keys = page.keys.iter().map(|spent| (spent.key.key.clone(), spent.key.in_use));
            (keys.collect::<Vec<_>>(), page.next)
        };
        let told = |keys: &[(&str, u32)], next: Option<&str>| {
            (keys.iter().map(|(key, in_use)| ((*key).to_owned(), *in_use)).collect(), next.map(str::to_owned))
        };
        assert_eq!(page(&["b"], &["a", "b"], None), told(&[("a", 0), ("b", 1)], None));
        assert_eq!(page(&["b", "d"], &["a", "c"], None), told(&[("a", 0), ("b", 1), ("c", 0)], Some("c")));
        assert_eq!(page(&["b", "d", "f"], &[], Some("f")), told(&[("b", 1), ("d", 1), ("f", 1)], Some("f")));
    }
}
