//! What a lane may do, as a route or an override asks for it.
//!
//! Owns the way from options to `Limits`, which `flowgate` builds: what is wrong with them is told in its words.

use std::time::Duration;

use flowgate::{Limits, OptionError, Period};

use super::{
    options::{CODEL, LINE, RATE},
    read::{Entry, Fields, Read, Told},
};

const MOST: u32 = 1_000_000_000;
const LINES: &str = "\"fifo\" or { codel = { target = \"5ms\", interval = \"100ms\" } }";
const RATES: &str = "a table: { limit = 1000, period = \"1m\" }";

/// What was asked of a lane, before it is limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    max: u32,
    max_queue: u32,
    queue_timeout: Option<Duration>,
    codel: Option<(Duration, Duration)>,
    rate: Option<AskedRate>,
}

#[derive(Clone, Copy, Debug)]
struct AskedRate {
    limit: u32,
    period: Period,
    burst: Option<u32>,
}

impl Asked {
    /// As good as any, where what was asked is not known.
    pub(super) const LEAST: Asked =
        Asked { max: 1, max_queue: 0, queue_timeout: None, codel: None, rate: None };

    /// What a route asks for.
    pub(super) fn read(fields: &Fields<'_>) -> Read<Self> {
        let max = fields.read("max", |entry| entry.small(1..=MOST));
        let max_queue = fields.read("max_queue", |entry| entry.small(0..=MOST));
        let queue_timeout = fields.optional("queue_timeout", |entry| entry.time());
        let codel = fields.read("line", codel);
        let rate = fields.optional("rate", AskedRate::read);
        let (max_queue, queue_timeout, codel) = (max_queue?, queue_timeout?, codel?);
        let mut all = Ok(());
        if max_queue == 0 && queue_timeout.is_some() {
            let why = "has no meaning where nobody waits: set `max_queue`, or drop it";
            all = Err(fields.misplaced("queue_timeout", why));
        }
        if max_queue == 0 && codel.is_some() {
            let why = "is codel where nobody waits: set `max_queue`, or drop it";
            all = Err(fields.misplaced("line", why));
        }
        all.and(Ok(Asked { max: max?, max_queue, queue_timeout, codel, rate: rate? }))
    }

    /// With what an override says instead.
    pub(super) fn overridden(self, fields: &Fields<'_>) -> Read<Self> {
        let max = fields.optional("max", |entry| entry.small(1..=MOST));
        let max_queue = fields.optional("max_queue", |entry| entry.small(0..=MOST));
        let rate = fields.optional("rate", AskedRate::read);
        let (max, max_queue, rate) = (max?, max_queue?, rate?);
        fields.known()?;
        if max.is_none() && max_queue.is_none() && rate.is_none() {
            return Err(fields.lacks("overrides nothing: set `max`, `max_queue` or `rate`"));
        }
        Ok(Asked {
            max: max.unwrap_or(self.max),
            max_queue: max_queue.unwrap_or(self.max_queue),
            rate: rate.or(self.rate),
            ..self
        })
    }

    /// The limits, by their own builder.
    pub(super) fn limits(self, fields: &Fields<'_>) -> Read<Limits> {
        let mut limits = Limits::builder().max(self.max);
        if let Some(AskedRate { limit, period, burst }) = self.rate {
            limits = limits.rate(limit, period);
            limits = burst.map_or(limits.clone(), |burst| limits.burst(burst));
        }
        if self.max_queue == 0 {
            limits = limits.reject();
        } else {
            limits = limits.queue(self.max_queue);
            limits = self.queue_timeout.map_or(limits.clone(), |timeout| limits.timeout(timeout));
            limits = self.codel.map_or(limits.clone(), |(target, interval)| limits.codel(target, interval));
        }
        limits.build().map_err(|wrong| refused(fields, &wrong))
    }
}

/// What the builder of limits does not accept, in the words of the file.
fn refused(fields: &Fields<'_>, wrong: &OptionError) -> Told {
    let field = match wrong.option() {
        "queue" => "max_queue",
        "timeout" => "queue_timeout",
        "codel" => "line",
        "period" | "burst" => "rate",
        option => option,
    };
    fields.wrong(field, wrong.value(), wrong.accepted())
}

impl AskedRate {
    fn read(entry: &Entry<'_>) -> Read<Self> {
        let fields = entry.fields(&RATE, RATES)?;
        let limit = fields.read("limit", |entry| entry.small(1..=MOST));
        let period = fields.read("period", |entry| entry.period());
        let burst = fields.optional("burst", |entry| entry.small(1..=MOST));
        let (limit, period, burst) = (limit?, period?, burst?);
        // Whether such a rate can be, here where it stands.
        let limits = Limits::builder().rate(limit, period);
        let limits = burst.map_or(limits.clone(), |burst| limits.burst(burst));
        limits.build().map_err(|wrong| {
            let field = if wrong.option() == "burst" { "burst" } else { "limit" };
            fields.wrong(field, wrong.value(), wrong.accepted())
        })?;
        Ok(AskedRate { limit, period, burst })
    }
}

/// Target and interval, where the line is not first in, first out.
fn codel(entry: &Entry<'_>) -> Read<Option<(Duration, Duration)>> {
    match entry.value.as_str() {
        Some("fifo") => return Ok(None),
        Some(_) => return Err(entry.wrong(LINES)),
        None => {}
    }
    entry.fields(&LINE, LINES)?.read("codel", |entry| {
        let fields = entry.fields(&CODEL, "a table: { target = \"5ms\", interval = \"100ms\" }")?;
        let target = fields.time("target");
        let interval = fields.time("interval");
        let (target, interval) = (target?, interval?);
        fields.known()?;
        if target >= interval {
            let value = format!("{target:?} with an interval of {interval:?}");
            return Err(fields.wrong("target", value, "less than `interval`"));
        }
        Ok(Some((target, interval)))
    })
}
