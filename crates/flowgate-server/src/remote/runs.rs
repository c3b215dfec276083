//! `flowgate runs` and `flowgate run …`: runs of workflows.

use http::Method;
use serde_json::{Value, json};

use super::{
    client::{Server, moment, part, text},
    failure::Failure,
    options::{OneRun, RunAction, RunOptions, RunsOptions},
};
use crate::commands::Table;

/// How wide the line of time is, in letters.
const WIDTH: u64 = 24;

pub(crate) fn runs(options: &RunsOptions) -> Result<(), Failure> {
    let mut path = format!("/v2/workflows/events?count={}", options.count);
    if let Some(state) = &options.state {
        path += &format!("&state={}", state.word());
    }
    if options.workflow.is_some() {
        path += "&workflowUrlExactMatch=false";
    }
    for (name, value) in [("workflowUrl", &options.workflow), ("label", &options.label)] {
        if let Some(value) = value {
            path += &format!("&{name}={}", part(value));
        }
    }
    let server = Server::new(&options.server)?;
    let found = server.ask(Method::GET, &path)?;
    server.print(&found, |found| table(found["runs"].as_array().map_or(&[], Vec::as_slice)))
}

pub(crate) fn run(options: &RunOptions) -> Result<(), Failure> {
    match &options.action {
        RunAction::Show(one) => {
            let server = Server::new(&one.server)?;
            server.print(&find(&server, one)?, timeline)
        }
        RunAction::Cancel(one) => {
            let server = Server::new(&one.server)?;
            server.ask(Method::DELETE, &format!("/v2/workflows/runs/{}?cancel=true", part(&one.id)))?;
            let told = json!({ "workflowRunId": one.id, "done": "is cancelled" });
            server.print(&told, |_| format!("{} is cancelled\n", one.id))
        }
        RunAction::Resume(one) => again(one, "resume"),
        RunAction::Restart(one) => again(one, "restart"),
    }
}

/// A failed run once more, as a new one.
fn again(one: &OneRun, how: &str) -> Result<(), Failure> {
    let server = Server::new(&one.server)?;
    let found = find(&server, one)?;
    let Some(letter) = found["dlqId"].as_str() else {
        let state = text(&found["workflowState"]);
        return Err(Failure::Refused(format!("the run {:?} has not failed: it is {state}", one.id)));
    };
    let begun = server.ask(Method::POST, &format!("/v2/workflows/dlq/{how}?dlqIds={}", part(letter)))?;
    match begun["workflowRuns"][0]["workflowRunId"].as_str() {
        Some(id) => server.print(&begun, |_| format!("{id}\n")),
        None => Err(Failure::Refused(format!(
            "the run {:?} was resumed or restarted before, or its dead letter is gone",
            one.id
        ))),
    }
}

fn find(server: &Server<'_>, one: &OneRun) -> Result<Value, Failure> {
    let path = format!("/v2/workflows/events?count=1&workflowRunId={}", part(&one.id));
    let found = server.ask(Method::GET, &path)?;
    match found["runs"].get(0) {
        Some(run) => Ok(run.clone()),
        None => Err(Failure::Refused(format!("there is no run {:?}", one.id))),
    }
}

fn table(runs: &[Value]) -> String {
    let mut table = Table::new(&["run", "state", "started (UTC)", "steps", "took", "key", "workflow"]);
    for run in runs {
        let done = steps(run).filter(|(_, step)| step["state"] == "STEP_SUCCESS").count();
        table.row(vec![
            text(&run["workflowRunId"]),
            state(run),
            moment(&run["workflowRunCreatedAt"]),
            done.saturating_sub(1).to_string(),
            took(run).map_or_else(|| "-".to_owned(), span),
            text(&run["flowControlKey"]),
            text(&run["workflowUrl"]),
        ]);
    }
    table.text_or("no runs")
}

fn state(run: &Value) -> String {
    text(&run["workflowState"]).trim_start_matches("RUN_").to_ascii_lowercase()
}

fn took(run: &Value) -> Option<u64> {
    let (began, ended) = (run["workflowRunCreatedAt"].as_u64()?, run["workflowRunCompletedAt"].as_u64()?);
    Some(ended.saturating_sub(began))
}

/// All steps, with the kind of their group.
fn steps(run: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let groups = run["steps"].as_array().into_iter().flatten();
    groups.flat_map(|group| {
        let kind = group["type"].as_str().unwrap_or_default();
        group["steps"].as_array().into_iter().flatten().map(move |step| (kind, step))
    })
}

/// A run as lines: what was done when, from its beginning to its end.
fn timeline(run: &Value) -> String {
    let began = run["workflowRunCreatedAt"].as_u64().unwrap_or_default();
    let last = steps(run).filter_map(|(_, step)| done_at(step)).max().unwrap_or(began);
    let end = run["workflowRunCompletedAt"].as_u64().unwrap_or(last).max(began + 1);
    let mut told = format!("{}  {}", text(&run["workflowRunId"]), state(run));
    for (name, word) in [("flowControlKey", "key"), ("label", "label"), ("dlqId", "letter")] {
        if let Some(value) = run[name].as_str() {
            told += &format!("  {word} {value}");
        }
    }
    told += &format!("\n{}\n\n", text(&run["workflowUrl"]));
    let mut table = Table::new(&["after", "", "step", "name", "kind", "state", "says"]);
    let mut before = began;
    for group in run["steps"].as_array().into_iter().flatten() {
        let is_parallel = group["type"] == "parallel";
        let mut latest = before;
        for step in group["steps"].as_array().into_iter().flatten() {
            let at = done_at(step).map(|at| at.min(end));
            table.row(vec![
                at.map_or_else(|| "-".to_owned(), |at| span(at.saturating_sub(began))),
                bar(before - began, at.unwrap_or(end).saturating_sub(began), end - began),
                text(&step["stepId"]),
                format!("{}{}", if is_parallel { "| " } else { "" }, text(&step["stepName"])),
                text(&step["stepType"]),
                text(&step["state"]).trim_start_matches("STEP_").to_ascii_lowercase(),
                says(step),
            ]);
            latest = latest.max(at.unwrap_or(before));
        }
        before = latest;
    }
    told += &table.text();
    if let Some(took) = took(run) {
        // A result may be long; why it failed is told whole.
        let result = run["workflowRunResponse"].as_str().map(short);
        let brought = run["reason"].as_str().map(str::to_owned).or(result);
        let brought = brought.map(|brought| format!(": {brought}")).unwrap_or_default();
        told += &format!("\nended after {}{brought}\n", span(took));
    }
    if let Some(call) = run["failureFunction"].as_object() {
        let state = call.get("state").map(text).unwrap_or_default();
        let state = state.trim_start_matches("CALLBACK_").to_ascii_lowercase();
        told += &format!("its failure function was told: {state}\n");
    }
    told
}

/// When a step was done: a sleep is over later than it is recorded.
fn done_at(step: &Value) -> Option<u64> {
    let at = step["createdAt"].as_u64()?;
    let until = step["sleepUntil"].as_u64().map_or(at, |until| until.saturating_mul(1000));
    Some(until.max(at + step["sleepFor"].as_u64().unwrap_or_default().saturating_mul(1000)))
}

/// Where a step lies between the beginning and the end.
fn bar(from: u64, to: u64, whole: u64) -> String {
    let at = |moment: u64| (moment.min(whole) * WIDTH / whole.max(1)).min(WIDTH - 1);
    let (from, to) = (at(from), at(to.max(from)));
    (0..WIDTH).map(|place| if (from..=to).contains(&place) { '#' } else { '.' }).collect()
}

/// What a step brought, or why it did not.
fn says(step: &Value) -> String {
    if let Some(error) = step["errors"].as_array().and_then(|errors| errors.last()) {
        let body = text(&error["body"]);
        let message = serde_json::from_str::<Value>(&body).ok();
        let message = message.and_then(|body| body["message"].as_str().map(str::to_owned));
        return short(&message.unwrap_or_else(|| text(&error["error"])));
    }
    if let (Some(event), "STEP_PROGRESS") =
        (step["waitEventId"].as_str(), step["state"].as_str().unwrap_or_default())
    {
        return format!("waits for {}", short(event));
    }
    match &step["out"] {
        Value::Null => String::new(),
        out => short(&text(out)),
    }
}

fn short(text: &str) -> String {
    let plain: String = text.chars().map(|sign| if sign.is_control() { ' ' } else { sign }).collect();
    match plain.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &plain[..end]),
        None => plain,
    }
}

/// Milliseconds as people say them.
fn span(millis: u64) -> String {
    match millis {
        0..=999 => format!("{millis} ms"),
        1000..=59_999 => format!("{}.{} s", millis / 1000, millis % 1000 / 100),
        _ => format!("{}m {}s", millis / 60_000, millis / 1000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_told_as_lines_from_its_beginning_to_its_end() {
        let step = |id: u64, name: &str, at: u64, out: &str| {
            json!({ "stepId": id, "stepName": name,
            "stepType": "Run", "state": "STEP_SUCCESS", "createdAt": at, "out": out })
        };
        let run = json!({
            "workflowRunId": "wfr_1", "workflowUrl": "https://e.com/w", "workflowState": "RUN_SUCCESS",
            "workflowRunCreatedAt": 1000, "workflowRunCompletedAt": 3000, "workflowRunResponse": "\"bye\"",
            "flowControlKey": "k",
            "steps": [
                { "type": "sequential", "steps": [step(0, "init", 1000, "{}")] },
                { "type": "parallel", "steps": [step(1, "a", 2000, "1"), step(2, "b", 3000, "2")] },
            ],
        });
        let told = timeline(&run);
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines[0], "wfr_1  success  key k");
        assert_eq!(lines[5], "1.0 s  #############...........  1     | a   Run   success  1");
        assert_eq!(lines[6], "2.0 s  ########################  2     | b   Run   success  2");
        assert_eq!(lines[8], "ended after 2.0 s: \"bye\"");
    }
}
