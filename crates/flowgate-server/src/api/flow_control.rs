//! `/v2/flowControl`: the keys, what holds them, and changing it.

use std::collections::HashSet;

use axum::extract::State;
use flowgate_core::{Limits, Period, Rate, Shape};
use flowgate_tasks::store::{Among, Half, KeyChange, KeyQuery, KeySort, KeySpent, KindOf};
use serde_json::{Value, json};

use super::{
    asked::Asked,
    path::Path,
    reply::{Answer, Problem, done, ok},
};
use crate::{
    delivery::{KIND, QUEUE},
    message::name,
    office::Desk,
};

const PAGE: u32 = 500;
/// More are not told at once.
pub(crate) const MOST_KEYS: usize = 10_000;
/// What stands in the list for messages without a key. No key can be called so.
const KEYLESS: &str = "$";
/// Keys of queues are told with the queues.
pub(crate) const OF_QUEUES: &str = "queue/";

pub(super) async fn list(State(desk): State<Desk>, asked: Asked) -> Answer {
    asked.only(&["search"])?;
    let wanted = asked.one("search").unwrap_or_default().to_owned();
    let mut found: Vec<Value> = Vec::new();
    let mut after = String::new();
    loop {
        let query = KeyQuery {
            search: wanted.clone(),
            without: OF_QUEUES.to_owned(),
            sort: KeySort::All,
            after,
            most: PAGE,
        };
        let page = desk.store.find_keys(query).await?;
        // The store does not tell large letters from small ones.
        let is_meant = |key: &str| !key.contains('/') && key.contains(&wanted);
        let keys = page.keys.iter().filter(|spent| is_meant(&spent.key.key));
        found.extend(keys.take(MOST_KEYS - found.len()).map(view));
        match page.next.filter(|_| found.len() < MOST_KEYS) {
            Some(next) => after = next,
            None => break,
        }
    }
    // One that was used a moment ago is told as well, though nothing of it is left to count.
    let known: HashSet<&str> = found.iter().filter_map(|key| key["flowControlKey"].as_str()).collect();
    let mut recent = desk.recent_keys();
    recent.retain(|spent| spent.key.key.contains(&wanted) && !known.contains(spent.key.key.as_str()));
    let keyless = keyless(&desk).await?.filter(|_| KEYLESS.contains(&wanted));
    if !recent.is_empty() || keyless.is_some() {
        found.extend(recent.iter().take(MOST_KEYS.saturating_sub(found.len())).map(view));
        found.extend(keyless);
        found.sort_by(|one, other| one["flowControlKey"].as_str().cmp(&other["flowControlKey"].as_str()));
    }
    ok(found)
}

/// What waits without a key for a slot of all that there are, if something does.
async fn keyless(desk: &Desk) -> Result<Option<Value>, Problem> {
    let (in_use, cap) = desk.store.cluster().await?;
    let Some(cap) = cap.filter(|cap| in_use >= *cap) else { return Ok(None) };
    let messages = KindOf { kind: KIND.to_owned(), ..KindOf::default() };
    let waiting = desk.store.count_of(messages, Among::Keyless { queue: QUEUE.to_owned() }).await?;
    let view = json!({
        "flowControlKey": KEYLESS,
        "waitListSize": waiting,
        "parallelismMax": cap,
        "parallelismCount": in_use,
        "isPaused": false,
        "isLatest": false,
        "isPinnedParallelism": false,
        "isPinnedRate": false,
    });
    Ok((waiting > 0).then_some(view))
}

pub(super) async fn read(State(desk): State<Desk>, Path(key): Path<String>) -> Answer {
    let found = match key.as_str() {
        KEYLESS => keyless(&desk).await?,
        _ => desk.key(key.clone()).await?.as_ref().map(view),
    };
    ok(found.ok_or_else(|| Problem::missing("flow-control key", &key))?)
}

/// A key as the protocol writes it. A max that is not there is no limit.
pub(crate) fn view(spent: &KeySpent) -> Value {
    let key = &spent.key;
    let limits = key.pinned.or(key.sent);
    let pinned = key.pinned.as_ref();
    let max = pinned.and_then(Limits::max).or(key.sent.and_then(|sent| sent.max()));
    let rate = limits.as_ref().and_then(Limits::rate).or(key.sent.as_ref().and_then(Limits::rate));
    let mut view = json!({
        "flowControlKey": key.key,
        "waitListSize": key.waiting,
        "parallelismCount": key.in_use,
        "isPaused": key.is_paused,
        "isLatest": key.is_latest,
        "isPinnedParallelism": pinned.is_some_and(|pinned| pinned.max().is_some()),
        "isPinnedRate": pinned.is_some_and(|pinned| pinned.rate().is_some()),
    });
    if let Some(text) = &key.unread {
        view["unread"] = json!(text);
    }
    if let Some(max) = max {
        view["parallelismMax"] = json!(max);
    }
    if let Some(rate) = rate {
        let period = rate.period().as_millis();
        view["rateMax"] = json!(rate.rate());
        // The protocol has whole seconds, and none is less than one: who shows it takes the milliseconds beside.
        view["ratePeriod"] = json!(period.div_ceil(1000));
        view["ratePeriodMillis"] = json!(period);
        view["isSmooth"] = json!(is_smooth(rate));
        let look = spent.rate.as_ref();
        let count = look.map_or(0, |look| look.limit - look.remaining);
        view["rateCount"] = json!(count);
        let end = look.map_or(0, |look| look.resets_at.as_nanos() / 1_000_000);
        // A smooth rate has no windows: what is told instead is its last start.
        let lasted = if is_smooth(rate) { period / u64::from(rate.rate()) } else { period };
        let start = if count == 0 { 0 } else { end.saturating_sub(lasted) / 1000 };
        view["ratePeriodStart"] = json!(start);
    }
    view
}

pub(super) async fn pause(State(desk): State<Desk>, Path(key): Path<String>) -> Answer {
    change(&desk, &key, KeyChange::Pause).await
}

pub(super) async fn resume(State(desk): State<Desk>, Path(key): Path<String>) -> Answer {
    change(&desk, &key, KeyChange::Resume).await
}

pub(super) async fn reset_rate(State(desk): State<Desk>, Path(key): Path<String>) -> Answer {
    change(&desk, &key, KeyChange::ResetRate).await
}

/// Whose limits govern what waits for the key.
pub(super) async fn mode(State(desk): State<Desk>, Path(key): Path<String>, asked: Asked) -> Answer {
    asked.only(&["mode"])?;
    let mode = match asked.one("mode") {
        Some("latest") => KeyChange::Latest(true),
        Some("own") => KeyChange::Latest(false),
        Some("default") => KeyChange::LatestAsOthers,
        said => {
            let said = said.map_or_else(|| "is missing".to_owned(), |said| format!("is {said:?}"));
            return Err(Problem::bad(format!("mode {said}; send latest, own or default")));
        }
    };
    change(&desk, &key, mode).await
}

async fn change(desk: &Desk, key: &str, change: KeyChange) -> Answer {
    let key = name("the flow-control key", key)?;
    desk.store.change_key(key.to_owned(), change).await?;
    done()
}

pub(super) async fn pin(State(desk): State<Desk>, Path(key): Path<String>, asked: Asked) -> Answer {
    asked.only(&["parallelism", "rate", "period", "smooth"])?;
    change(&desk, &key, pinned(&asked)?).await
}

/// What is to be pinned.
pub(crate) fn pinned(asked: &Asked) -> Result<KeyChange, Problem> {
    let (max, rate) = (count(asked, "parallelism")?, count(asked, "rate")?);
    let period = asked.number("period")?;
    if max.is_none() && rate.is_none() {
        return Err(Problem::bad("nothing to pin; send parallelism=<number>, rate=<number>, or both"));
    }
    if rate.is_none() && (period.is_some() || boolean(asked, "smooth")?.is_some()) {
        return Err(Problem::bad("period and smooth describe a rate; send rate=<number> with them"));
    }
    let rate = match rate {
        Some(rate) => {
            let period = seconds(period.unwrap_or(1))?;
            let is_smooth = boolean(asked, "smooth")?.unwrap_or(false);
            let rate = if is_smooth { Rate::smooth(rate, period) } else { Rate::window(rate, period) };
            Half::Pin(rate.map_err(|error| Problem::bad(error.to_string()))?)
        }
        None => Half::Keep,
    };
    let max = max.map_or(Half::Keep, Half::Pin);
    Ok(KeyChange::Halves { max, rate })
}

pub(super) async fn unpin(State(desk): State<Desk>, Path(key): Path<String>, asked: Asked) -> Answer {
    asked.only(&["parallelism", "rate"])?;
    let key = name("the flow-control key", &key)?.to_owned();
    let is_gone = |name: &str| boolean(&asked, name).map(|said| said == Some(true));
    let (max, rate) = (is_gone("parallelism")?, is_gone("rate")?);
    // A key is made by what changes it: one that is not there has nothing to unpin.
    let known = desk.store.look_at_key(key.clone()).await?;
    if known.is_none_or(|look| look.pinned.is_none() && look.unread.is_none()) {
        return done();
    }
    let max = if max { Half::Unpin } else { Half::Keep };
    let rate = if rate { Half::Unpin } else { Half::Keep };
    desk.store.change_key(key, KeyChange::Halves { max, rate }).await?;
    done()
}

fn count(asked: &Asked, name: &str) -> Result<Option<u32>, Problem> {
    let Some(told) = asked.number(name)? else { return Ok(None) };
    let number = u32::try_from(told).ok().filter(|number| (1..=1_000_000_000).contains(number));
    let wrong = || Problem::bad(format!("{name} is {told}; send a whole number from 1 to 1000000000"));
    number.map(Some).ok_or_else(wrong)
}

fn seconds(period: u64) -> Result<Period, Problem> {
    let wrong =
        || Problem::bad(format!("period is {period}; send a whole number of seconds from 1 to 604800"));
    let millis =
        Some(period.saturating_mul(1000)).filter(|_| (1..=604_800).contains(&period)).ok_or_else(wrong)?;
    Period::from_millis(millis).map_err(|_| wrong())
}

fn boolean(asked: &Asked, name: &str) -> Result<Option<bool>, Problem> {
    match asked.one(name).map(str::to_ascii_lowercase).as_deref() {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(text) => Err(Problem::bad(format!("{name} is {text:?}; send true or false"))),
    }
}

fn is_smooth(rate: &Rate) -> bool {
    matches!(rate.shape(), Shape::Bucket { .. })
}

pub(super) async fn global(State(desk): State<Desk>) -> Answer {
    let (in_use, cap) = desk.store.cluster().await?;
    let mut view = json!({ "parallelismCount": in_use });
    if let Some(cap) = cap {
        view["parallelismMax"] = json!(cap);
    }
    ok(view)
}
