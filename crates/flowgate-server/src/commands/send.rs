//! `flowgate send`: stores a task.

use std::{
    io::{self, BufRead, Read as _},
    time::Duration,
};

use flowgate::Limits;
use flowgate_tasks::{
    Client, DEFAULT_QUEUE, MAX_BODY, NewTask, Retry, TaskId, When,
    store::{State, Store, TaskLook},
};
use serde_json::json;

use super::{
    failure::Failure,
    store::{print, print_result, with_store},
};
use crate::{
    cli::SendOptions,
    config::{Config, QueueMode},
    progress::Progress,
    worker::known_queue,
};

/// How long the result of a task is kept whose sender waits for it.
const KEPT: Duration = Duration::from_secs(3600);
/// How often it is looked where a task stands that somebody waits for.
const LOOK: Duration = Duration::from_millis(200);
/// How many lines are stored together.
const BATCH: usize = 1_000;

/// Sends a task and prints its number; or its result, if it waits for that.
pub(crate) fn send(options: SendOptions) -> Result<(), Failure> {
    let store_options = options.store.clone();
    with_store(&store_options, async move |store, config| {
        let queue = queue(&options, config)?;
        known_queue(store.as_ref(), config, &queue).await?;
        if options.lines {
            return send_lines(store.as_ref(), &options, &queue).await;
        }
        let client = Client::new(store);
        let sent = client.send(task(&options, queue, body(options.body.as_deref())?)?).await?;
        if options.wait {
            let end = wait(&client, sent.id).await?;
            return told(&options, sent.id.0, end);
        }
        let id = sent.id;
        print(&match (options.json, sent.is_duplicate) {
            (true, is_duplicate) => format!("{}\n", json!({ "id": id.0, "duplicate": is_duplicate })),
            (false, false) => format!("{id}\n"),
            (false, true) => format!("{id} (sent before with the same dedupe id)\n"),
        })
    })
}

/// The queue that is meant: with custom queues there is no other than those.
fn queue(options: &SendOptions, config: &Config) -> Result<String, Failure> {
    match (&options.queue, config.tasks.queue_mode) {
        (Some(queue), _) => Ok(queue.clone()),
        (None, QueueMode::Default) => Ok(DEFAULT_QUEUE.to_owned()),
        (None, QueueMode::Custom) => match config.queues.as_slice() {
            [only] => Ok(only.name.clone()),
            queues if queues.iter().any(|queue| queue.name == DEFAULT_QUEUE) => Ok(DEFAULT_QUEUE.to_owned()),
            queues => {
                let known = queues.iter().map(|queue| queue.name.clone()).collect();
                Err(Failure::UnknownQueue { name: DEFAULT_QUEUE.to_owned(), known })
            }
        },
    }
}

/// Waits for the end of a task, and shows meanwhile where it stands.
async fn wait(client: &Client, id: TaskId) -> Result<Option<State>, Failure> {
    let mut progress = Progress::new();
    let mut end = std::pin::pin!(client.wait(id));
    loop {
        // Who shares a file is not told of what others end there.
        match client.look(id).await? {
            None => return Ok(None),
            Some(TaskLook { state: state @ (State::Done { .. } | State::Dead { .. }), .. }) => {
                return Ok(Some(state));
            }
            Some(look) => progress.say(&format!("task {id}: {}", state_of(&look))),
        }
        if let Ok(end) = tokio::time::timeout(LOOK, &mut end).await {
            return Ok(end?);
        }
    }
}

/// Sends a task for each line of standard input that has something in it.
async fn send_lines(store: &dyn Store, options: &SendOptions, queue: &str) -> Result<(), Failure> {
    let mut progress = Progress::new();
    let mut lines = io::stdin().lock();
    let mut sent = 0_u64;
    loop {
        let mut tasks = Vec::new();
        while tasks.len() < BATCH
            && let Some(body) = line(&mut lines)?
        {
            if !body.is_empty() {
                tasks.push(task(options, queue.to_owned(), body)?);
            }
        }
        if tasks.is_empty() {
            break;
        }
        let count = tasks.len() as u64;
        let refused = |error| Failure::NotDone(format!("{sent} tasks were stored, and then: {error}"));
        store.send(tasks).await.map_err(refused)?;
        sent += count;
        progress.say(&format!("{sent} sent"));
    }
    drop(progress);
    match options.json {
        true => print(&format!("{}\n", json!({ "sent": sent }))),
        false => print(&format!("{sent} sent\n")),
    }
}

/// The next line, without its end; `None` behind the last one. One that is too long is cut to a length that is refused.
fn line(from: &mut impl BufRead) -> Result<Option<Vec<u8>>, Failure> {
    let mut line = Vec::new();
    let read = from.take(MAX_BODY as u64 + 2).read_until(b'\n', &mut line).map_err(Failure::Read)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok((read > 0).then_some(line))
}

fn task(options: &SendOptions, queue: String, body: Vec<u8>) -> Result<NewTask, Failure> {
    let mut task = NewTask::new(options.kind.as_str(), body)
        .queue(queue)
        .priority(options.priority)
        .weight(options.weight)
        .retry(Retry {
            max_attempts: options.retries.saturating_add(1),
            backoff: options.backoff,
            ..Retry::default()
        });
    if let Some(key) = &options.key {
        task = task.key(key.as_str());
    }
    if let Some(limits) = limits(options.max, options.rate.zip(options.period), options.smooth)? {
        task = task.limits(limits);
    }
    if let Some(delay) = options.delay {
        task = task.delay(delay);
    }
    if let Some(span) = options.good_until {
        task = task.good_until(When::After(span));
    }
    if let Some(timeout) = options.timeout {
        task = task.timeout(timeout);
    }
    if let Some(id) = &options.dedupe {
        task = task.dedupe(id.as_str(), options.dedupe_window);
    }
    if let Some(keep) = options.keep.or(options.wait.then_some(KEPT)) {
        task = task.keep_result(keep);
    }
    Ok(task)
}

/// The limits that were asked for, if any.
pub(super) fn limits(
    max: Option<u32>,
    rate: Option<(u32, Duration)>,
    smooth: bool,
) -> Result<Option<Limits>, Failure> {
    let mut limits = Limits::builder();
    if let Some(max) = max {
        limits = limits.max(max);
    }
    if let Some((rate, period)) = rate {
        limits = limits.rate(rate, period);
        if smooth {
            limits = limits.smooth();
        }
    }
    if max.is_none() && rate.is_none() {
        return Ok(None);
    }
    Ok(Some(limits.build()?))
}

fn body(given: Option<&str>) -> Result<Vec<u8>, Failure> {
    match given {
        None => Ok(b"null".to_vec()),
        Some("-") => {
            let mut body = Vec::new();
            // One more than is allowed is enough to be refused.
            io::stdin().take(MAX_BODY as u64 + 1).read_to_end(&mut body).map_err(Failure::Read)?;
            Ok(body)
        }
        Some(text) => Ok(text.as_bytes().to_vec()),
    }
}

fn told(options: &SendOptions, id: i64, end: Option<State>) -> Result<(), Failure> {
    match end {
        Some(State::Done { result }) if options.json => {
            let result = String::from_utf8_lossy(&result);
            let result = serde_json::from_str(&result).unwrap_or_else(|_| json!(result));
            print(&format!("{}\n", json!({ "id": id, "result": result })))
        }
        Some(State::Done { result }) => print_result(&result),
        Some(State::Dead { reason, error }) if error.is_empty() => {
            Err(Failure::NotDone(format!("task {id} {reason}")))
        }
        Some(State::Dead { reason, error }) => Err(Failure::NotDone(format!("task {id} {reason}: {error}"))),
        // It was sent before by one who did not keep the result.
        _ => print(&format!("task {id} is done, and left no result\n")),
    }
}

/// Claimed ahead by a worker, and not started.
pub(super) const AT_HAND: &str = "at hand";

/// A task's state in a word or two.
pub(super) fn state_of(look: &TaskLook) -> String {
    match &look.state {
        State::Waiting { ahead } => format!("waiting, {ahead} ahead in its lane"),
        State::Delayed { .. } => "delayed".to_owned(),
        State::Held { is_at_hand: true, .. } => AT_HAND.to_owned(),
        State::Held { .. } => "running".to_owned(),
        State::Done { .. } => "done".to_owned(),
        State::Dead { reason, .. } => reason.clone(),
        _ => "unknown".to_owned(),
    }
}
