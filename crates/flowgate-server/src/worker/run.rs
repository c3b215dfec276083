//! The worker from its start to its end.

use std::{
    ffi::OsString,
    io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use flowgate_tasks::{
    store::Store,
    worker::{Ending, Handlers, Prefetch, Worker, WorkerOptions},
};

use tokio::sync::oneshot;

use super::{
    caps::{agree, number},
    command::Program,
    log::{self, say},
    pool::Pool,
};
use crate::{commands::Failure, config::Config, serve::StoreAt, signals::Signals};

/// How long the store has to hear what became of everything when a second signal came.
const HURRY: Duration = Duration::from_secs(2);

/// Runs tasks until a signal asks to stop, and then those that run until they have ended. A second signal ends
/// everything at once: what ran is tried again, what no process had read goes back as it was. If the store does not
/// hear of it in time, or a third signal comes, all of that is run again when the lease has run out.
pub(crate) async fn run(store: Arc<dyn Store>, config: &Config, words: &[OsString]) -> Result<(), Failure> {
    let ended = work(store, config, words).await;
    log::flush().await;
    ended
}

async fn work(store: Arc<dyn Store>, config: &Config, words: &[OsString]) -> Result<(), Failure> {
    let command = || words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let cannot = |error: io::Error| Failure::Command { command: command(), error };
    let program = Program::find(words, config.worker.start_timeout).map_err(cannot)?;
    let prefetch = config.tasks.prefetch;
    let prefetch = prefetch.map(|ahead| Prefetch { buffer: ahead.buffer.get(), lease: ahead.lease });
    let options = WorkerOptions { prefetch, ..config.worker.options.clone() };
    let agreed = agree(store.as_ref(), config).await?;
    if let (Some(prefetch), Some(cap)) = (prefetch, agreed.cluster_wide_cap) {
        let value = prefetch.buffer.to_string();
        return Err(Failure::Clash {
            option: "tasks.prefetch_buffer",
            value,
            why: format!(
                "the store has cluster_wide_cap={cap}, which counts what is claimed, so nothing can be claimed ahead; \
                    set it to 0 and \
             drop `claim_lease_ms`"
            ),
        });
    }
    are_known(store.as_ref(), config).await?;
    let pool = Arc::new(Pool::start(program, options.processes).map_err(cannot)?);
    let mut signals = Signals::listen().map_err(Failure::Start)?;
    for note in &agreed.notes {
        say(note);
    }
    say(&concurrency(&options, agreed.cluster_wide_cap));
    let at = StoreAt::from(&config.store).absolute();
    say(&format!("runs `{}` for {} of {at}; Ctrl-C stops it", command(), served(&options)));

    let handlers = {
        let pool = Arc::clone(&pool);
        // A task waits for a process that is ready, and until one has read it nothing has begun.
        let handlers = Handlers::new().say_when_begun();
        handlers.otherwise(move |context, body| {
            let pool = Arc::clone(&pool);
            async move { pool.run(&context, &body).await }
        })
    };
    let drain = options.drain;
    let (stop, stopped) = oneshot::channel::<()>();
    let (hurry, hurried) = oneshot::channel::<()>();
    let worker = Worker::new(store, handlers, options)?
        .listen(|news| say(&news.to_string()))
        .stop_at_once(async { drop(hurried.await) });
    let second = OnceLock::new();
    let asked = async {
        signals.next().await;
        say(&format!("stopping: running tasks have {drain:?} to finish (a second signal stops at once)"));
        let _ = stop.send(());
        let stop = signals.next().await;
        let _ = (second.set(stop), hurry.send(()));
        let _ = tokio::time::timeout(HURRY, signals.next()).await;
        stop
    };
    tokio::select! {
        ending = worker.run(async { drop(stopped.await) }) => {
            let is_hurried = second.get().copied();
            if is_hurried.is_none() {
                pool.close().await;
            }
            let ending = ending?;
            say(&farewell(&ending, if is_hurried.is_some() { "at once" } else { "by the deadline" }));
            is_hurried.map_or(Ok(()), |stop| Err(Failure::Interrupted(stop)))
        }
        stop = asked => {
            say("stopped at once: tasks that ran will run again when the lease ends");
            Err(Failure::Interrupted(stop))
        }
        () = pool.tend() => unreachable!("it never ends"),
    }
}

/// The line that a worker begins its log with.
fn concurrency(options: &WorkerOptions, cap: Option<u32>) -> String {
    let ahead = options.prefetch.map_or(0, |prefetch| prefetch.buffer);
    let all = options.processes.saturating_add(ahead);
    let most = match options.max_claim_per_worker {
        0 => all,
        most => most.min(all),
    };
    let mode = match options.prefetch {
        None => String::new(),
        Some(Prefetch { buffer, lease }) => {
            format!(
                ", prefetch_buffer={buffer} (soft caps: what runs counts), claim_lease_ms={}",
                lease.as_millis()
            )
        }
    };
    let batch = Some(options.max_claim_batch).filter(|batch| *batch > 0);
    format!(
        "Concurrency config: processes={}, cluster_wide_cap={}, max_claim_per_worker={most}, max_claim_batch={}{mode}",
        options.processes,
        number(cap),
        number(batch)
    )
}

fn served(options: &WorkerOptions) -> String {
    match options.queues.as_slice() {
        [] => "all queues".to_owned(),
        queues => format!("queues {}", queues.join(", ")),
    }
}

fn farewell(ending: &Ending, when: &str) -> String {
    let Ending { settled, failed, lost, stopped, stopped_dead } = ending;
    let tasks = if *settled == 1 { "task" } else { "tasks" };
    let mut text = format!("stopped: {settled} {tasks} settled");
    let failed = failed.saturating_sub(stopped.len() as u64);
    if failed > 0 {
        let attempts = if failed == 1 { "attempt" } else { "attempts" };
        text += &format!(", {failed} {attempts} failed and tried again");
    }
    if *lost > 0 {
        text += &format!(", {lost} lost to others");
    }
    for (ids, what) in [(stopped, "tried again"), (stopped_dead, "dead, without another attempt")] {
        if !ids.is_empty() {
            let named = ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            text += &format!(", {} ended {when} and {what}: {named}", ids.len());
        }
    }
    text
}

/// A queue that nobody knows is a slip: with custom queues the configuration has said so already.
async fn are_known(store: &dyn Store, config: &Config) -> Result<(), Failure> {
    for name in &config.worker.options.queues {
        super::known::queue(store, config, name).await?;
    }
    Ok(())
}
