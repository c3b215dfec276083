//! The words of an explanation.

use flowgate_core::{Limits, Rate};

use super::{
    answer::{Limit, Running, Serving, Spot},
    estimate::Estimate,
    quoted::quoted,
    times::ServiceTimes,
};
use crate::{store::MOST_COUNTED, task::SERVER_QUEUE};

/// The answer in one sentence.
pub(super) fn verdict(
    held_by: &[Limit],
    place: Option<Spot>,
    estimate: Option<&Estimate>,
    expires: Option<u64>,
) -> String {
    let mut text = match held_by {
        [] => "nothing holds it".to_owned(),
        // When that is over, it stands before the next.
        [delay @ Limit::Delay { .. }, next, ..] => format!("{}, and then: {}", reason(delay), reason(next)),
        [limit, ..] => reason(limit),
    };
    // What its key holds stands in the line of the key, whoever else is in the queue.
    let is_of_key = matches!(
        held_by.first(),
        Some(
            Limit::KeyPaused { .. }
                | Limit::KeyUnread { .. }
                | Limit::KeyRate { .. }
                | Limit::KeyRests { .. }
                | Limit::KeyMax { .. }
                | Limit::KeyHead { .. }
        )
    );
    // The slots of its own queue are nobody else's; all others are shared.
    let is_shared =
        !is_of_key && !matches!(held_by.first(), Some(Limit::QueueMax { .. } | Limit::QueuePaused { .. }));
    let elsewhere = place.filter(|_| is_shared).map_or(0, |place| place.ahead_in_other_queues);
    let here = place.map_or(0, |place| match place.ahead_in_key.filter(|_| is_of_key) {
        Some(ahead) => ahead,
        None => place.ahead_in_key.unwrap_or(0).max(place.ahead_in_queue),
    });
    let ahead = here.saturating_add(elsewhere);
    if ahead > 0 {
        let is_of_queue = place.is_some_and(|place| here == place.ahead_in_queue);
        let stand = stand(ahead);
        let ahead = if is_of_queue { counted(ahead) } else { ahead.to_string() };
        text += &format!("; {ahead} {stand} ahead of it");
        if elsewhere > 0 {
            text += &format!(", {} in queues that are served first", counted(elsewhere));
        }
        if held_by.is_empty() {
            text += ", more urgent priorities first";
        }
    } else if held_by.is_empty() {
        text += ", and nothing is ahead of it: it should start at once";
    }
    if let Some(estimate) = estimate {
        let about = if estimate.is_exact { "" } else { "about " };
        text += &format!("; it should start in {about}{}", span(estimate.in_ms));
    }
    match (expires, estimate) {
        (Some(expires), Some(estimate)) if estimate.in_ms >= expires => {
            let likely = if estimate.is_exact { "it never will" } else { "it may never" };
            text += &format!("; but it expires in {}, before that: {likely}", span(expires));
        }
        (Some(expires), None) if !held_by.is_empty() => text += &format!("; it expires in {}", span(expires)),
        _ => {}
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
        Limit::Expired { for_ms: 0 } => {
            "it expired: its `good_until` passed before it could start, so it never will".to_owned()
        }
        Limit::Expired { for_ms } => {
            format!("it expires in {}, before its delay is over: it will never start", span(*for_ms))
        }
        Limit::Delay { for_ms } => format!("it is delayed for another {}", span(*for_ms)),
        Limit::QueuePaused { queue } => format!("queue `{queue}` is paused"),
        Limit::KeyPaused { key } => format!("key `{key}` is paused"),
        Limit::KeyUnread { key, text } => format!("the limits of key `{key}` cannot be read: {text:?}"),
        Limit::KeyRests { key, for_ms } => {
            format!("key `{key}` rests for another {}, until what came before has ended", span(*for_ms))
        }
        Limit::KeyRate { key, rate, for_ms } => {
            format!("the rate of key `{key}` ({rate}) is spent for another {}", span(*for_ms))
        }
        Limit::KeyMax { key, in_use, max, weight: 1 } => {
            format!("key `{key}` has no free slot: {in_use} of {max} in use")
        }
        Limit::KeyMax { key, max, weight, .. } if weight > max => {
            format!(
                "it needs {weight} slots of key `{key}`, which has {max}: neither it nor what waits behind it can start"
            )
        }
        Limit::KeyHead { key, task, max, weight, .. } if weight > max => {
            format!(
                "task {task} ahead of it needs {weight} slots of key `{key}`, which has {max}: neither can start"
            )
        }
        Limit::KeyHead { key, task, in_use, max, weight } => {
            format!(
                "task {task} ahead of it needs {weight} slots of key `{key}`, of which {in_use} of {max} are in use: \
                 nothing overtakes it"
            )
        }
        Limit::KeyMax { key, in_use, max, weight } => {
            format!("key `{key}` has too few free slots: {in_use} of {max} in use, and it needs {weight}")
        }
        Limit::QueueMax { queue, in_use, max } => {
            format!("queue `{queue}` has no free slot: {in_use} of max_concurrency {max} in use")
        }
        Limit::ClusterCap { in_use, cap } => {
            format!("the cluster has no free slot: {in_use} of cluster_wide_cap {cap} in use")
        }
        Limit::NoWorker { queue } => format!("no worker serves queue `{queue}`"),
        Limit::WorkersBusy { in_use, slots } => {
            format!(
                "every worker that serves its queue is full: {in_use} of {slots} in use, which is what their `processes` and \
                 `max_claim_per_worker` allow"
            )
        }
    }
}

/// What so many do.
pub(super) fn stand(ahead: u64) -> &'static str {
    if ahead == 1 { "is" } else { "are" }
}

/// What would free it. What the server delivers is limited by the server's own commands, where they can name its key.
pub(super) fn help(limit: &Limit, known: &dyn ServiceTimes, is_of_server: bool) -> Vec<String> {
    let one = |text: String| vec![text];
    let pin = |key: &str| Pin { key: known.key_named(key), is_of_server };
    let quoted_key = |key: &str| quoted(&known.key_named(key)).to_string();
    match limit {
        Limit::Delay { .. } | Limit::KeyRests { .. } => Vec::new(),
        Limit::Expired { .. } => one("send it again, with a later `good_until`".to_owned()),
        Limit::QueuePaused { queue } => {
            one(format!("`flowgate queues resume {}` ends the pause", quoted(queue)))
        }
        Limit::KeyUnread { key, .. } => vec![
            format!(
                "`flowgate key pin {} …` with a max and a rate replaces pinned limits, if those are unreadable",
                quoted_key(key)
            ),
            "otherwise a newer Flowgate may have sent them: cancel it and send it again, or let that version run it"
                .to_owned(),
        ],
        Limit::KeyPaused { key } => one(format!("`flowgate key resume {}` ends the pause", quoted_key(key))),
        Limit::KeyRate { key, .. } => {
            one(format!("`{} --rate … --period …` gives the key another rate, at once", pin(key).command()))
        }
        Limit::KeyMax { key, max, weight, .. } | Limit::KeyHead { key, max, weight, .. } if weight > max => {
            one(format!("`{}` gives the key as many slots as it needs, at once", pin(key).max(*weight)))
        }
        Limit::KeyMax { key, max, weight, .. } | Limit::KeyHead { key, max, weight, .. } => {
            one(format!("`{}` gives the key more slots, at once", pin(key).max(max + weight)))
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
        Limit::WorkersBusy { .. } => one(
            "start more workers, or give one of them more `--processes` (and a larger `--max-claim-per-worker`, if it has \
             one)".to_owned(),
        ),
    }
}

/// The command that pins limits of a key.
struct Pin {
    key: String,
    is_of_server: bool,
}

impl Pin {
    /// No key that the server's API can name has a `/`: those are of its queues, or of a namespace.
    fn is_asked_of_server(&self) -> bool {
        self.is_of_server && !self.key.contains('/')
    }

    fn command(&self) -> String {
        let command = if self.is_asked_of_server() { "keys" } else { "key" };
        format!("flowgate {command} pin {}", quoted(&self.key))
    }

    fn max(&self, max: u32) -> String {
        let option = if self.is_asked_of_server() { "--parallelism" } else { "--max" };
        format!("{} {option} {max}", self.command())
    }
}

/// Work waits, nothing holds it, and one worker is full while another has room.
pub(super) fn uneven(workers: &[Serving], held_by: &[Limit]) -> Option<String> {
    let is_full = |worker: &Serving| worker.in_use >= worker.slots;
    let is_uneven = workers.iter().any(is_full) && !workers.iter().all(is_full) && held_by.is_empty();
    let help = "some workers are full and others are not: a larger `--max-claim-batch` lets the others claim more in one \
        pass";
    is_uneven.then(|| help.to_owned())
}

/// Slots that nobody uses any more. Any worker takes them back, whatever it serves.
pub(super) fn orphans(holders: &[Running], is_anyone_there: bool) -> Option<String> {
    let count = holders.iter().filter(|holder| holder.lease_ms.is_none()).count();
    let next = "the next server or worker that starts takes";
    match (count, is_anyone_there) {
        (0, _) => None,
        (1, true) => {
            Some("a slot is held by a worker that is gone: it is taken back within a second".to_owned())
        }
        (1, false) => Some(format!("a slot is held by a worker that is gone: {next} it back")),
        (count, true) => Some(format!(
            "{count} slots are held by workers that are gone: they are taken back within a second"
        )),
        (count, false) => Some(format!("{count} slots are held by workers that are gone: {next} them back")),
    }
}

pub(super) fn held(worker: Option<&str>, for_ms: Option<u64>) -> String {
    let worker =
        worker.map_or("a worker that is gone, and will be taken back".to_owned(), |name| format!("`{name}`"));
    match for_ms {
        Some(for_ms) => format!("it runs on {worker}, started {} ago", span(for_ms)),
        None => format!("it runs on {worker}"),
    }
}

/// It was claimed ahead, and has not started.
pub(super) fn at_hand(worker: Option<&str>, key: Option<&str>) -> String {
    let of = key.map_or("queue", |_| "key");
    match worker {
        Some(name) => {
            format!(
                "it is at hand: claimed ahead by `{name}`, it starts there when another of its {of} ends, or goes back \
                    to its line"
            )
        }
        None => "it was claimed ahead by a worker that is gone, and will be taken back".to_owned(),
    }
}

/// The limits of a key: what is pinned, and what was sent of the rest.
pub(super) fn in_force(pinned: Option<&Limits>, sent: Option<&Limits>, rule: &str) -> String {
    let (max, rate) = (pinned.and_then(Limits::max), pinned.and_then(Limits::rate));
    let pins = said(max, rate);
    let sent =
        sent.map(|sent| said(sent.max().filter(|_| max.is_none()), sent.rate().filter(|_| rate.is_none())));
    match (pins.as_str(), sent.as_deref()) {
        ("", None | Some("")) => "none were sent".to_owned(),
        ("", Some(sent)) => format!("{rule}; last sent: {sent}"),
        (pins, None | Some("")) => format!("{pins} (pinned)"),
        (pins, Some(sent)) => format!("{pins} (pinned); for the rest {rule}; last sent: {sent}"),
    }
}

pub(super) fn dead(reason: &str, error: &str, attempt: u32) -> String {
    match reason {
        "expired" if attempt > 0 => {
            let times = if attempt == 1 { "once".to_owned() } else { format!("{attempt} times") };
            let said = if error.is_empty() { String::new() } else { format!(": {error}") };
            format!(
                "it was started {times} and failed, and its `good_until` passed before it could start again{said}"
            )
        }
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
    said(limits.max(), limits.rate())
}

fn said(max: Option<u32>, rate: Option<&Rate>) -> String {
    let max = max.map(|max| format!("max {max}"));
    let rate = rate.map(|rate| format!("rate {rate}"));
    max.into_iter().chain(rate).collect::<Vec<_>>().join(", ")
}

/// A time in milliseconds, as people say it: `2.5 s`.
pub fn span(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0 => format!("{millis} ms"),
        1..=9 => format!("{}.{} s", seconds, millis % 1000 / 100),
        10..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}
