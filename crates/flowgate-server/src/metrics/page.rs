//! The page itself: every metric of the table, filled in.

use std::sync::atomic::{AtomicU64, Ordering};

use flowgate::gate::Look;
use flowgate_tasks::store::QueueLook;

use super::{
    exposition::Exposition,
    figures::Figures,
    meter::{Meter, Outcome},
    names::*,
};

/// More queues are told together.
const MOST_QUEUES: usize = 100;
const OTHER: &str = "_other";

/// The gateway at one moment.
#[derive(Debug)]
pub(crate) struct GatewayLook {
    pub(crate) connections: usize,
    pub(crate) resting: usize,
    /// Each limited route.
    pub(crate) routes: Vec<(String, Look)>,
}

/// All that is known, as Prometheus reads it.
pub(super) fn page(meter: &Meter, gateway: Option<&GatewayLook>, figures: Option<&Figures>) -> String {
    let mut page = Exposition::default();
    page.many(&BUILD, [(vec![env!("CARGO_PKG_VERSION")], 1.0)]);
    page.one(&STARTED, meter.started as f64 / 1e3);
    page.many(&MEMORY, resident().map(|bytes| (Vec::new(), bytes)));
    own(&mut page, meter);
    gates(&mut page, meter, gateway);
    page.one(&STORE_UP, if figures.is_some() { 1.0 } else { 0.0 });
    if let Some(figures) = figures {
        store(&mut page, figures);
    }
    page.one(&TRACES_SENT, number(&meter.spans_sent));
    page.one(&TRACES_DROPPED, number(&meter.spans_dropped));
    page.finish()
}

fn number(counter: &AtomicU64) -> f64 {
    counter.load(Ordering::Relaxed) as f64
}

/// What this process did.
fn own(page: &mut Exposition, meter: &Meter) {
    page.one(&ACCEPTED, number(&meter.accepted));
    page.one(&DUPLICATES, number(&meter.duplicates));
    let attempts =
        Outcome::ALL.iter().map(|(outcome, name)| (vec![*name], number(&meter.attempts[*outcome as usize])));
    page.many(&ATTEMPTS, attempts);
    page.one(&IN_FLIGHT, meter.in_flight.load(Ordering::Relaxed) as f64);
    page.histogram(&DURATION, &meter.durations);
    page.histogram(&WAIT, &meter.waits);
    let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"];
    page.many(
        &REQUESTS,
        classes.iter().zip(&meter.requests).map(|(class, count)| (vec![*class], number(count))),
    );
    page.one(&LINES_DROPPED, number(&meter.lines_dropped));
}

/// The gates of this process.
fn gates(page: &mut Exposition, meter: &Meter, gateway: Option<&GatewayLook>) {
    let mut gates: Vec<(String, Look)> = meter.gates().map(|(name, look)| (name.to_owned(), look)).collect();
    let routes = gateway.iter().flat_map(|gateway| &gateway.routes);
    gates.extend(routes.map(|(name, look)| (format!("gateway/{name}"), look.clone())));
    let each =
        |value: fn(&Look) -> f64| gates.iter().map(move |(name, look)| (vec![name.as_str()], value(look)));
    page.many(&GATE_IN_USE, each(|look| look.in_use as f64));
    page.many(&GATE_WAITING, each(|look| look.waiting as f64));
    let maxima =
        gates.iter().filter_map(|(name, look)| Some((vec![name.as_str()], f64::from(look.limits.max()?))));
    page.many(&GATE_MAX, maxima);
    let refusals = gates.iter().flat_map(|(name, look)| {
        look.refusals.iter().map(move |(reason, count)| (vec![name.as_str(), reason.as_str()], count as f64))
    });
    page.many(&GATE_REFUSALS, refusals);
    if let Some(GatewayLook { connections, resting, .. }) = gateway {
        let active = connections.saturating_sub(*resting);
        page.many(&CONNECTIONS, [(vec!["active"], active as f64), (vec!["resting"], *resting as f64)]);
    }
}

/// What the store says.
fn store(page: &mut Exposition, figures: &Figures) {
    page.one(&FIGURES_AGE, figures.seen.elapsed().as_secs_f64());
    let (in_use, cap) = figures.cluster;
    page.one(&CLUSTER_IN_USE, f64::from(in_use));
    page.many(&CLUSTER_CAP, cap.map(|cap| (Vec::new(), f64::from(cap))));
    let queues = bounded(&figures.queues);
    let each = |value: fn(&QueueLook) -> f64| {
        queues.iter().map(move |queue| (vec![queue.limits.name.as_str()], value(queue)))
    };
    page.many(&QUEUE_IN_USE, each(|queue| f64::from(queue.in_use)));
    page.many(&QUEUE_WAITING, each(|queue| queue.waiting as f64));
    page.many(&QUEUE_DELAYED, each(|queue| queue.delayed as f64));
    let maxima = queues
        .iter()
        .filter_map(|queue| Some((vec![queue.limits.name.as_str()], f64::from(queue.limits.max?))));
    page.many(&QUEUE_MAX, maxima);
    page.many(&QUEUE_PAUSED, each(|queue| if queue.is_paused { 1.0 } else { 0.0 }));
    page.many(&QUEUE_DEAD, dead(&queues, &figures.dead));
    page.many(&OLDEST, figures.oldest.map(|age| (Vec::new(), age.as_secs_f64())));
    page.one(&WORKERS, figures.workers.len() as f64);
    let sum = |value: fn(&flowgate_tasks::store::WorkerLook) -> u32| {
        figures.workers.iter().map(|worker| f64::from(value(worker))).sum::<f64>()
    };
    let (slots, in_use) = (sum(|worker| worker.slots), sum(|worker| worker.in_use));
    page.many(&WORKER_SLOTS, [(vec!["in_use"], in_use), (vec!["free"], (slots - in_use).max(0.0))]);
}

/// The first queues, and the rest as one.
fn bounded(queues: &[QueueLook]) -> Vec<QueueLook> {
    // One that is called so itself is told with the rest: the same series twice is a page that nobody can read.
    let (named_so, queues): (Vec<_>, Vec<_>) =
        queues.iter().cloned().partition(|queue| queue.limits.name == OTHER);
    let (shown, beyond) = queues.split_at(queues.len().min(MOST_QUEUES));
    let rest = [beyond, &named_so].concat();
    let mut shown = shown.to_vec();
    if let Some(first) = rest.first() {
        let mut other = first.clone();
        other.limits.name = OTHER.to_owned();
        other.limits.max = None;
        other.in_use = rest.iter().map(|queue| queue.in_use).sum();
        other.waiting = rest.iter().map(|queue| queue.waiting).sum();
        other.delayed = rest.iter().map(|queue| queue.delayed).sum();
        other.is_paused = rest.iter().all(|queue| queue.is_paused);
        shown.push(other);
    }
    shown
}

/// The dead of each queue that is told, and of the rest together.
fn dead<'a>(shown: &'a [QueueLook], dead: &[(String, u64)]) -> Vec<(Vec<&'a str>, f64)> {
    let name = |queue: &'a QueueLook| queue.limits.name.as_str();
    let of = |wanted: &str| dead.iter().find(|(queue, _)| queue == wanted).map_or(0, |(_, count)| *count);
    let named = shown.iter().map(name).filter(|name| *name != OTHER);
    let mut told: Vec<(Vec<&str>, f64)> = named.map(|name| (vec![name], of(name) as f64)).collect();
    let is_shown = |queue: &str| shown.iter().map(name).any(|name| name == queue && name != OTHER);
    let rest: u64 = dead.iter().filter(|(queue, _)| !is_shown(queue)).map(|(_, count)| count).sum();
    if rest > 0 || shown.iter().map(name).any(|name| name == OTHER) {
        told.push((vec![OTHER], rest as f64));
    }
    told
}

/// Memory in use, where the system says it.
fn resident() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024.0)
}

#[cfg(test)]
mod tests {
    use flowgate_tasks::store::QueueLimits;

    use super::*;

    #[test]
    fn queues_beyond_a_hundred_are_told_together() {
        // Seen to fail: with every queue shown, the page has a thousand of them; and with a queue of that name shown by
        // itself, two.
        let queue = |number: u32| QueueLook {
            limits: QueueLimits { name: format!("q{number}"), priority: 0, max: Some(1) },
            in_use: 1,
            waiting: 2,
            delayed: 3,
            is_paused: false,
        };
        let queues: Vec<QueueLook> = (0..1000).map(queue).collect();
        let bounded = bounded(&queues);
        assert_eq!(bounded.len(), MOST_QUEUES + 1);
        let other = &bounded[MOST_QUEUES];
        assert_eq!((other.limits.name.as_str(), other.in_use, other.waiting), (OTHER, 900, 1800));
        let mut odd = queue(0);
        odd.limits.name = OTHER.to_owned();
        let all = super::bounded(&[vec![odd], queues].concat());
        let others: Vec<u32> =
            all.iter().filter(|queue| queue.limits.name == OTHER).map(|queue| queue.in_use).collect();
        assert_eq!(others, [901], "each series once");
    }

    #[test]
    fn the_dead_of_queues_that_are_not_told_are_told_together() {
        // Seen to fail: with those of queues that are gone left out, three of ten are missing.
        let queue = |name: &str| QueueLook {
            limits: QueueLimits { name: name.to_owned(), priority: 0, max: None },
            in_use: 0,
            waiting: 0,
            delayed: 0,
            is_paused: false,
        };
        let told = |shown: &[&str], counted: &[(&str, u64)]| {
            let shown: Vec<QueueLook> = shown.iter().map(|name| queue(name)).collect();
            let counted: Vec<(String, u64)> =
                counted.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
            let told = dead(&shown, &counted).into_iter();
            told.map(|(labels, count)| (labels[0].to_owned(), count as u64)).collect::<Vec<_>>()
        };
        let pairs = |of: &[(&str, u64)]| {
            of.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect::<Vec<_>>()
        };
        assert_eq!(told(&["a", "b"], &[("a", 7)]), pairs(&[("a", 7), ("b", 0)]));
        assert_eq!(told(&["a"], &[("a", 7), ("gone", 3)]), pairs(&[("a", 7), (OTHER, 3)]));
        assert_eq!(told(&["a", OTHER], &[(OTHER, 2), ("c", 1)]), pairs(&[("a", 0), (OTHER, 3)]));
    }
}
