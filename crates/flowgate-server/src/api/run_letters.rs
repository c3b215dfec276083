//! `/v2/workflows/dlq`: runs that failed, once more, or the telling of it once more.

use axum::{extract::State, http::HeaderMap};
use serde_json::{Value, json};

use super::{
    asked::Asked,
    dlq::{self, Letter},
    path::Path,
    publish::given,
    reply::{Answer, Problem, ok},
    sent::Sent,
};
use crate::{
    message::{Part, read},
    office::{Desk, InRun, Overrides, Telling},
};

/// What of a run is begun again.
#[derive(Clone, Copy)]
enum From {
    TheStepThatFailed,
    TheBeginning,
}

pub(super) async fn resume(State(desk): State<Desk>, asked: Asked, headers: HeaderMap, sent: Sent) -> Answer {
    again(&desk, &asked, &headers, dlq::names(&sent)?, From::TheStepThatFailed).await
}

pub(super) async fn restart(
    State(desk): State<Desk>,
    asked: Asked,
    headers: HeaderMap,
    sent: Sent,
) -> Answer {
    again(&desk, &asked, &headers, dlq::names(&sent)?, From::TheBeginning).await
}

async fn again(
    desk: &Desk,
    asked: &Asked,
    headers: &HeaderMap,
    names: Option<Vec<String>>,
    from: From,
) -> Answer {
    asked.means_what_it_names()?;
    let spec = read(&given(headers, Vec::new())?)?;
    let overrides = Overrides { retries: spec.retries, flow: spec.flow };
    let is_named = dlq::is_named(asked, names.as_ref());
    let mut page = dlq::page(desk, &asked.with("source", "workflow"), names).await?;
    // Named, such a letter is told so; otherwise it is not meant.
    if !is_named {
        page.letters.retain(Letter::ended_its_run);
    }
    // All of them or none: before the first is begun.
    page.letters.iter().try_for_each(|letter| part(desk, letter).map(drop))?;
    let mut runs = Vec::new();
    for letter in page.letters {
        runs.push(view(&one(desk, &letter, &overrides, from).await?));
    }
    ok(json!({ "workflowRuns": runs, "cursor": page.cursor.unwrap_or_default() }))
}

/// The new run is stored under the letter's number: a crash before the letter is gone begins no second one.
async fn one(desk: &Desk, letter: &Letter, overrides: &Overrides, from: From) -> Result<InRun, Problem> {
    let part = part(desk, letter)?;
    let begun = match from {
        From::TheBeginning => desk.restart_run(letter.id, part, overrides).await?,
        From::TheStepThatFailed => desk.resume_run(letter.id, &letter.message, overrides).await?,
    };
    desk.store.remove_dead(letter.id).await?;
    Ok(begun)
}

/// Which part of a run's end a letter is. One that did not end its run is none: by it, the run would go on a second time.
fn part<'a>(desk: &Desk, letter: &'a Letter) -> Result<&'a Part, Problem> {
    let name = desk.numbers.dead(letter.id);
    let part = letter.message.head.part.as_ref();
    let part = part.ok_or_else(|| Problem::missing("dead letter of a run", &name))?;
    match letter.ended_its_run() {
        true => Ok(part),
        false => Err(Problem::bad(format!(
            "the dead letter {name:?} did not end the run {:?}, which was cancelled or failed by another message; resume \
             or restart the run by the dlqId that GET /v2/workflows/events tells, and delete this letter",
            part.id
        ))),
    }
}

fn view(begun: &InRun) -> Value {
    json!({ "workflowRunId": begun.id, "workflowCreatedAt": begun.created })
}

/// Tells the failure function of a run once more.
pub(super) async fn callback(State(desk): State<Desk>, Path(name): Path<String>) -> Answer {
    let letter = dlq::find(&desk, &name).await?;
    let part = part(&desk, &letter)?;
    match desk.tell_again(letter.id, &letter.message, part).await? {
        Telling::Told { created, .. } => {
            ok(json!({ "workflowRunId": part.id, "workflowCreatedAt": created }))
        }
        Telling::Nobody { .. } => Err(Problem::bad(format!("the run {:?} has no failure function", part.id))),
        Telling::Gone => Err(Problem::missing("dead letter of a run", &name)),
    }
}

pub(super) async fn remove(State(desk): State<Desk>, asked: Asked, sent: Sent) -> Answer {
    dlq::remove_all(&desk, &asked.with("source", "workflow"), dlq::names(&sent)?).await
}
