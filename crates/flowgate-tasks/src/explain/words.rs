//! The words of an explanation.

use flowgate_core::Limits;

use super::{
    answer::{Limit, Running, Serving, Spot},
    estimate::Estimate,
    quoted::quoted,
};
use crate::{store::MOST_COUNTED, task::SERVER_QUEUE};

/// The answer in one sentence.
pub(super) fn verdict(held_by: &[Limit], place: Option<Spot>, estimate: Option<&Estimate>) -> String {
    let mut text = match held_by.first() {
        None => "nothing holds it".to_owned(),
        Some(limit) => reason(limit),
    };
    // What its key holds stands in the line of the key, whoever else is in the queue.
    let is_of_key = matches!(
        held_by.first(),
        Some(
            Limit::KeyPaused { .. }
                | Limit::KeyRate { .. }
                | Limit::KeyRests { .. }
                | Limit::KeyMax { .. }
                | Limit::KeyHead { .. }
        )
    );
    let ahead = place.map_or(0, |place| match place.ahead_in_key.filter(|_| is_of_key) {
        Some(ahead) => ahead,
        None => place.ahead_in_key.unwrap_or(0).max(place.ahead_in_queue),
    });
    if ahead > 0 {
        let is_of_queue = place.is_some_and(|place| ahead == place.ahead_in_queue);
        let stand = stand(ahead);
        let ahead = if is_of_queue { counted(ahead) } else { ahead.to_string() };
        text += &format!("; {ahead} {stand} before it");
        if held_by.is_empty() {
            text += ", those of a better priority first";
        }
    } else if held_by.is_empty() {
        text += ", and nobody stands before it: it should start at once";
    }
    if let Some(estimate) = estimate {
        let about = if estimate.is_exact { "" } else { "about " };
        text += &format!("; it should start in {about}{}", span(estimate.in_ms));
    }
    text
}

/// A count that ends somewhere.
pub(super) fn counted(count: u64) -> String {
    if count >= u64::from(MOST_COUNTED) { format!("{MOST_COUNTED} or more") } else { count.to_string() }
}

/// Why a limit holds it.
pub(super) fn reason(limit: &Limit) -> String {
    match limit {
        Limit::Delay { for_ms } => format!("it is delayed for another {}", span(*for_ms)),
        Limit::QueuePaused { queue } => format!("queue `{queue}` is paused"),
        Limit::KeyPaused { key } => format!("key `{key}` is paused"),
        Limit::KeyRests { key, for_ms } => {
            format!("key `{key}` rests for another {}, until what came before has ended", span(*for_ms))
        }
        Limit::KeyRate { key, rate, for_ms } => {
            format!("key `{key}` starts {rate}, and that is spent for another {}", span(*for_ms))
        }
        Limit::KeyMax { key, in_use, max, weight: 1 } => {
            format!("key `{key}` has no free slot: {in_use} of {max} in use")
        }
        Limit::KeyMax { key, max, weight, .. } if weight > max => {
            format!(
                "it wants {weight} slots of key `{key}`, which has {max}: it cannot start, nor can what stands behind it"
            )
        }
        Limit::KeyHead { key, task, max, weight, .. } if weight > max => {
            format!(
                "task {task} before it wants {weight} slots of key `{key}`, which has {max}: neither can start"
            )
        }
        Limit::KeyHead { key, task, in_use, max, weight } => {
            format!(
                "task {task} before it wants {weight} slots of key `{key}`, of which {in_use} of {max} are in use: nobody overtakes it"
            )
        }
        Limit::KeyMax { key, in_use, max, weight } => {
            format!("key `{key}` has too few free slots: {in_use} of {max} in use, and it wants {weight}")
        }
        Limit::QueueMax { queue, in_use, max } => {
            format!("queue `{queue}` has no free slot: {in_use} of max_concurrency {max} in use")
        }
        Limit::ClusterCap { in_use, cap } => {
            format!("the cluster has no free slot: {in_use} of cluster_wide_cap {cap} in use")
        }
        Limit::NoWorker { queue } => format!("no worker serves queue `{queue}`"),
        Limit::WorkersBusy { in_use, slots } => {
            format!("every worker that serves its queue is full: {in_use} of {slots} processes in use")
        }
    }
}

/// What so many do.
pub(super) fn stand(ahead: u64) -> &'static str {
    if ahead == 1 { "stands" } else { "stand" }
}

/// What would free it.
pub(super) fn help(limit: &Limit) -> Vec<String> {
    let one = |text: String| vec![text];
    match limit {
        Limit::Delay { .. } | Limit::KeyRests { .. } => Vec::new(),
        Limit::QueuePaused { queue } => {
            one(format!("`flowgate queues resume {}` ends the pause", quoted(queue)))
        }
        Limit::KeyPaused { key } => one(format!("`flowgate key resume {}` ends the pause", quoted(key))),
        Limit::KeyRate { key, .. } => {
            let key = quoted(key);
            one(format!("`flowgate key pin {key} --rate … --period …` gives the key another rate, at once"))
        }
        Limit::KeyMax { key, max, weight, .. } if weight > max => too_heavy(key, *weight),
        Limit::KeyHead { key, max, weight, .. } if weight > max => too_heavy(key, *weight),
        Limit::KeyMax { key, max, weight, .. } | Limit::KeyHead { key, max, weight, .. } => {
            let (key, max) = (quoted(key), max + weight);
            one(format!("`flowgate key pin {key} --max {max}` gives the key more slots, at once"))
        }
        Limit::QueueMax { queue, max, .. } => one(format!(
            "`flowgate queues set {} --max-concurrency {}` gives the queue more slots, at once",
            quoted(queue),
            max + 1
        )),
        Limit::ClusterCap { cap, .. } => one(format!(
            "`flowgate queues set --cluster-wide-cap {}` gives the cluster more slots, at once",
            cap + 1
        )),
        Limit::NoWorker { queue } if queue == SERVER_QUEUE => {
            one("`flowgate serve` with this store delivers it".to_owned())
        }
        Limit::NoWorker { queue } => {
            let queue = quoted(queue);
            one(format!("`flowgate worker --queue {queue} -- <command>` starts a worker for it"))
        }
        Limit::WorkersBusy { .. } => one("more workers, or more `--processes` for one of them".to_owned()),
    }
}

fn too_heavy(key: &str, weight: u32) -> Vec<String> {
    vec![format!(
        "`flowgate key pin {} --max {weight}` gives the key as many slots as it wants, at once",
        quoted(key)
    )]
}

/// Work waits, nothing holds it, and one worker is full while another has room.
pub(super) fn uneven(workers: &[Serving], held_by: &[Limit]) -> Option<String> {
    let is_full = |worker: &Serving| worker.in_use >= worker.slots;
    let is_uneven = workers.iter().any(is_full) && !workers.iter().all(is_full) && held_by.is_empty();
    let help = "some workers are full and others are not: a larger `--max-claim-batch` lets those take more in one pass";
    is_uneven.then(|| help.to_owned())
}

/// Slots that nobody uses any more.
pub(super) fn orphans(holders: &[Running]) -> Option<String> {
    let count = holders.iter().filter(|holder| holder.lease_ms.is_none()).count();
    match count {
        0 => None,
        1 => Some("a slot is held by a worker that is gone: it is taken back within a second".to_owned()),
        count => Some(format!(
            "{count} slots are held by workers that are gone: they are taken back within a second"
        )),
    }
}

pub(super) fn held(worker: Option<&str>, for_ms: Option<u64>) -> String {
    let worker =
        worker.map_or("a worker that is gone, and is taken back".to_owned(), |name| format!("`{name}`"));
    match for_ms {
        Some(for_ms) => format!("it runs on {worker}, since {}", span(for_ms)),
        None => format!("it runs on {worker}"),
    }
}

pub(super) fn dead(reason: &str, error: &str, attempt: u32) -> String {
    match reason {
        "expired" => "it expired: its `good_until` passed before it could start, so it never will".to_owned(),
        "cancelled" => "it was cancelled".to_owned(),
        _ => format!("it failed for the last time, at start {attempt}: {error}"),
    }
}

pub(super) fn of(count: u32, most: Option<u32>) -> String {
    most.map_or_else(|| format!("{count}, no cap"), |most| format!("{count} of {most}"))
}

pub(super) fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

/// Limits of a key: here nobody is refused, so the length of the line says nothing.
pub(super) fn limits(limits: &Limits) -> String {
    let max = limits.max().map(|max| format!("max {max}"));
    let rate = limits.rate().map(|rate| format!("rate {rate}"));
    max.into_iter().chain(rate).collect::<Vec<_>>().join(", ")
}

/// A time as people say it.
pub(super) fn span(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0 => format!("{millis} ms"),
        1..=9 => format!("{}.{} s", seconds, millis % 1000 / 100),
        10..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}
