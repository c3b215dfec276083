//! Why something waits: the same answer as `flowgate explain`, from the same function.

use axum::{extract::State, http::StatusCode};
use flowgate_tasks::{
    TaskId,
    explain::{Explanation, Subject, explain_with},
};
use serde_json::{Value, json};

use super::{
    asked::Asked,
    messages::logged,
    path::Path,
    reply::{Answer, Problem, ok},
};
use crate::{
    delivery::KIND,
    office::{Desk, NOBODY, Recorded, Stage},
};

/// What nothing comes behind.
const ENDS: [Stage; 3] = [Stage::Delivered, Stage::Failed, Stage::Canceled];

pub(super) async fn key(State(desk): State<Desk>, Path(key): Path<String>) -> Answer {
    tell(&desk, Subject::Key(key)).await
}

pub(super) async fn message(State(desk): State<Desk>, Path(name): Path<String>) -> Answer {
    let id = desk.numbers.read_message(&name).ok_or_else(|| Problem::missing("message", &name))?;
    is_own(&desk, id, &name).await?;
    tell(&desk, Subject::Task(id)).await
}

/// Whatever the command line takes, and the names of messages and dead letters.
pub(super) async fn any(State(desk): State<Desk>, asked: Asked) -> Answer {
    asked.only(&["what"])?;
    let what = asked.one("what").unwrap_or_default();
    let named = desk.numbers.read_message(what).or_else(|| desk.numbers.read_dead(what));
    let subject = match named {
        Some(id) => {
            is_own(&desk, id, what).await?;
            Subject::Task(id)
        }
        None => what.parse().map_err(|_| {
            let form = "send a message id, the number of a task, key:<key> or queue:<queue>";
            Problem::bad(format!("what is {what:?}; {form}"))
        })?,
    };
    if named.is_none() && !desk.space.is_root() && !matches!(subject, Subject::Key(_)) {
        let text = "queues and task numbers belong to the whole server; use a token without a namespace, or a message id";
        return Err(Problem::new(StatusCode::FORBIDDEN, text));
    }
    tell(&desk, subject).await
}

/// A message of another namespace is not there.
async fn is_own(desk: &Desk, id: TaskId, name: &str) -> Result<(), Problem> {
    let is_own = match desk.store.look_at_task(id).await? {
        Some(look) if look.record.is_some() => desk.message_of(&look).is_some(),
        // Of what has ended no message is left to say whose it was: then its own namespace is told by the log alone.
        Some(_) if desk.space.is_root() => true,
        _ => !logged(desk, id).await?.is_empty(),
    };
    if is_own { Ok(()) } else { Err(Problem::missing("message", name)) }
}

async fn tell(desk: &Desk, subject: Subject) -> Answer {
    let times = Recorded::within(&*desk.store, desk.space.clone());
    let told = explain_with(&*desk.store, &subject, &times).await?;
    let missing = || Problem::missing("such thing as", &subject.to_string());
    match (told, &subject) {
        (Some(told), _) => ok(view(desk, &told)),
        (None, Subject::Task(id)) => ok(ended(desk, *id).await?.ok_or_else(missing)?),
        (None, _) => Err(missing()),
    }
}

/// What became of a message that the store knows nothing of any more, as far as the log tells.
async fn ended(desk: &Desk, id: TaskId) -> Result<Option<Value>, Problem> {
    let log = logged(desk, id).await?;
    let Some(last) = log.iter().find(|entry| ENDS.contains(&entry.stage)).or(log.first()) else {
        return Ok(None);
    };
    let answer = last
        .answer
        .as_ref()
        .map_or_else(String::new, |answer| format!("; its endpoint answered with {}", answer.status));
    let verdict = match last.stage {
        Stage::Delivered => format!("it was delivered{answer}"),
        Stage::Canceled => "it was cancelled".to_owned(),
        Stage::Failed => format!("it failed, and its dead letter is gone{answer}"),
        _ => "it has just started or ended: ask again".to_owned(),
    };
    let facts = [("kind", KIND), ("url", &last.message.head.url), ("last in the log", last.stage.as_str())];
    let facts = facts.map(|(name, value)| json!({ "name": name, "value": value }));
    Ok(Some(json!({
        "subject": Subject::Task(id).to_string(),
        "messageId": desk.numbers.message(id),
        "verdict": verdict,
        "held_by": [],
        "facts": facts,
        "place": null,
        "estimate": null,
        "holders": [],
        "workers": [],
        "help": [],
        "first": null,
    })))
}

/// The explanation, with the names of messages beside the numbers of their tasks.
fn view(desk: &Desk, told: &Explanation) -> Value {
    let mut view = json!(told);
    if let Some(holders) = view["holders"].as_array_mut() {
        let all = holders.len();
        holders.retain(|holder| holder["task"] != NOBODY.0);
        let others = all - holders.len();
        if others > 0 {
            view["holdersOfOthers"] = json!(others);
        }
    }
    for holder in view["holders"].as_array_mut().into_iter().flatten() {
        if holder["kind"] == KIND
            && let Some(id) = holder["task"].as_i64()
        {
            holder["messageId"] = json!(desk.numbers.message(TaskId(id)));
        }
    }
    let number = told.subject.strip_prefix("task ").and_then(|number| number.parse().ok());
    if let Some(number) =
        number.filter(|_| told.facts.iter().any(|fact| fact.name == "kind" && fact.value == KIND))
    {
        view["messageId"] = json!(desk.numbers.message(TaskId(number)));
    }
    if let Some(first) = &told.first {
        view["first"] = self::view(desk, first);
    }
    view
}
