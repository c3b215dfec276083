//! `flowgate key`: pauses a key, or pins its limits.

use flowgate_core::Limits;
use flowgate_tasks::store::{Half, KeyChange as Change};

use super::{
    failure::Failure,
    send::limits,
    store::{print, with_known},
};
use crate::cli::{KeyChange, KeyOptions, Latest, NamedKey, PinOptions};

/// Changes a key, for all that waits as well.
pub(crate) fn key(options: KeyOptions) -> Result<(), Failure> {
    match options.change {
        KeyChange::Pause(key) => change(key, Change::Pause, "is paused"),
        KeyChange::Resume(key) => change(key, Change::Resume, "is resumed"),
        KeyChange::Unpin(key) => change(key, Change::Unpin, "has the limits its tasks were sent with"),
        KeyChange::Latest { named, mode } => {
            let rule = match mode {
                Latest::On => Change::Latest(true),
                Latest::Off => Change::Latest(false),
                Latest::Default => Change::LatestAsOthers,
            };
            change(named, rule, mode.told())
        }
        KeyChange::Pin(PinOptions { named, max, rate, period, smooth }) => {
            match limits(max, rate.zip(period), smooth)? {
                Some(limits) => pin(named, &limits),
                None => Ok(()),
            }
        }
    }
}

/// Pins what is named: of the max and the rate, the other one stays as it is. Both replace whatever is there, also what cannot
/// be read.
fn pin(options: NamedKey, limits: &Limits) -> Result<(), Failure> {
    let NamedKey { store, key } = options;
    let (max, rate) = (limits.max(), limits.rate().copied());
    let change = match (max, rate) {
        (Some(_), Some(_)) => Change::Pin(*limits),
        _ => Change::Halves {
            max: max.map_or(Half::Keep, Half::Pin),
            rate: rate.map_or(Half::Keep, Half::Pin),
        },
    };
    with_known(&store, async move |store, _| {
        store.change_key(key.clone(), change).await?;
        let pinned = store.look_at_key(key.clone()).await?.and_then(|look| look.pinned);
        let kept = pinned.and_then(|pinned| match (max, rate) {
            (None, _) => pinned.max().map(|max| format!("max {max}")),
            (_, None) => pinned.rate().map(|rate| format!("rate {rate}")),
            _ => None,
        });
        let kept = kept.map(|kept| format!("; {kept} stays pinned")).unwrap_or_default();
        // Where nobody is refused, the length of the line says nothing.
        let words = limits.to_string().replace(", queue unbounded", "");
        print(&format!("key `{key}` has {words}, whatever was sent{kept}\n"))
    })
}

fn change(options: NamedKey, change: Change, told: &str) -> Result<(), Failure> {
    let NamedKey { store, key } = options;
    with_known(&store, async move |store, _| {
        store.change_key(key.clone(), change).await?;
        print(&format!("key `{key}` {told}\n"))
    })
}
