//! `flowgate key`: pauses a key, or pins its limits.

use flowgate_tasks::store::KeyChange as Change;

use super::{
    failure::Failure,
    send::limits,
    store::{print, with_store},
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
                Some(limits) => {
                    // Where nobody is refused, the length of the line says nothing.
                    let words = limits.to_string().replace(", queue unbounded", "");
                    change(named, Change::Pin(limits), &format!("has {words}, whatever was sent"))
                }
                None => Ok(()),
            }
        }
    }
}

fn change(options: NamedKey, change: Change, told: &str) -> Result<(), Failure> {
    let NamedKey { store, key } = options;
    with_store(&store, async move |store, _| {
        store.change_key(key.clone(), change).await?;
        print(&format!("key `{key}` {told}\n"))
    })
}
