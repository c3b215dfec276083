//! Limits as text in a store.
//!
//! Owns that text: `max=5;rate=20/60000` and `;burst=3`, rates in starts per milliseconds. It distinguishes two
//! lanes of a key, so the same limits always give the same text.

use flowgate_core::{Discipline, Limits, OptionError, Overflow, Rate, Shape};

/// Whether these can hold for tasks. All that cannot start waits in its line, for as long as it takes and in its order;
/// what else can be said of a gate would be forgotten here without a word.
pub(crate) fn check(limits: &Limits) -> Result<(), OptionError> {
    if let Some(rule) = limits.adaptive() {
        return Err(OptionError::new(
            "adaptive",
            rule,
            "none for tasks, because the store has one max for all workers",
        ));
    }
    match limits.overflow() {
        Overflow::Queue { max: None, timeout: None } => {}
        Overflow::Queue { max: Some(max), .. } => {
            return Err(OptionError::new(
                "queue",
                max,
                "none for tasks, because every task that is sent waits in line",
            ));
        }
        Overflow::Queue { timeout: Some(timeout), .. } => {
            let accepted = "none for tasks (use `good_until`)";
            return Err(OptionError::new("timeout", format_args!("{timeout:?}"), accepted));
        }
        Overflow::Reject => {
            return Err(OptionError::new(
                "reject",
                "set",
                "not set for tasks, because every task that is sent waits in line",
            ));
        }
    }
    match limits.discipline() {
        Discipline::Fifo => Ok(()),
        codel => Err(OptionError::new("codel", codel, "none for tasks, whose line is first in, first out")),
    }
}

/// The text of these limits; of none, the empty text.
pub(crate) fn to_text(limits: Option<&Limits>) -> String {
    let Some(limits) = limits else { return String::new() };
    let max = limits.max().map(|max| format!("max={max}"));
    let rate = limits.rate().map(rate_text);
    [max, rate].into_iter().flatten().collect::<Vec<_>>().join(";")
}

pub(crate) fn rate_text(rate: &Rate) -> String {
    let base = format!("rate={}/{}", rate.rate(), rate.period().as_millis());
    match rate.shape() {
        Shape::Window => base,
        Shape::Bucket { burst } => format!("{base};burst={burst}"),
    }
}

/// The limits that [`to_text`] wrote.
pub(crate) fn from_text(text: &str) -> Result<Option<Limits>, OptionError> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong =
        || OptionError::new("limits", format_args!("{text:?}"), "text like `max=5;rate=20/60000;burst=3`");
    let mut limits = Limits::builder();
    for part in text.split(';') {
        let (name, value) = part.split_once('=').ok_or_else(wrong)?;
        let number = |value: &str| value.parse::<u32>().map_err(|_| wrong());
        limits = match name {
            "max" => limits.max(number(value)?),
            "burst" => limits.burst(number(value)?),
            "rate" => {
                let (rate, period) = value.split_once('/').ok_or_else(wrong)?;
                limits.rate(number(rate)?, period.parse::<u64>().map_err(|_| wrong())?)
            }
            _ => return Err(wrong()),
        };
    }
    limits.build().map(Some)
}

/// The limits of a text, or as much of a text as is worth telling that nobody here can read: a newer version wrote it, or a hand.
pub(crate) fn read(text: &str) -> (Option<Limits>, Option<String>) {
    const TOLD: usize = 200;
    match from_text(text) {
        Ok(limits) => (limits, None),
        Err(_) => (None, Some(text.chars().take(TOLD).collect())),
    }
}

/// The limits of a key as a store has them.
#[derive(Debug)]
pub(crate) struct KeyTerms {
    pub(crate) pinned: Option<Limits>,
    /// The newest sent.
    pub(crate) sent: Option<Limits>,
    /// What cannot be read, of those that govern: nothing of the key may start.
    pub(crate) unread: Option<String>,
}

impl KeyTerms {
    pub(crate) fn read(pinned: Option<&str>, sent: &str, is_latest: bool) -> Self {
        let (pinned, bad_pin) = read(pinned.unwrap_or_default());
        let (sent, bad) = read(sent);
        let governs = is_latest && !is_whole(pinned);
        KeyTerms { pinned, sent, unread: bad_pin.or(bad.filter(|_| governs)) }
    }
}

/// Whether nothing of what is sent holds beside these that are pinned.
pub(crate) fn is_whole(pinned: Option<Limits>) -> bool {
    pinned.is_some_and(|pinned| pinned.max().is_some() && pinned.rate().is_some())
}

/// The limits that hold where these are pinned and those were sent.
pub(crate) fn in_force(pinned: Option<Limits>, sent: Option<Limits>) -> Option<Limits> {
    match (pinned, sent) {
        (Some(pinned), Some(sent)) => Some(over(&pinned, &sent)),
        (pinned, sent) => pinned.or(sent),
    }
}

/// What is pinned, and of what was sent the half that is not.
fn over(pinned: &Limits, sent: &Limits) -> Limits {
    let (max, rate) = (pinned.max().or(sent.max()), pinned.rate().or(sent.rate()));
    if max == pinned.max() && rate == pinned.rate() {
        return *pinned;
    }
    // Both halves were built before: together they are no less sound.
    of_halves(max, rate.copied()).unwrap_or(*pinned)
}

/// Limits of this max and this rate.
pub(crate) fn of_halves(max: Option<u32>, rate: Option<Rate>) -> Result<Limits, OptionError> {
    let mut limits = Limits::builder();
    if let Some(max) = max {
        limits = limits.max(max);
    }
    if let Some(rate) = rate {
        limits = limits.rate(rate.rate(), rate.period());
        if let Shape::Bucket { burst } = rate.shape() {
            limits = limits.burst(burst.get());
        }
    }
    limits.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_come_back_as_they_were() -> Result<(), OptionError> {
        let built = [
            Limits::builder().max(5).build()?,
            Limits::builder().rate(20, "1m").build()?,
            Limits::builder().max(7).rate(20, "1h30m").burst(3).build()?,
        ];
        let texts = ["max=5", "rate=20/60000", "max=7;rate=20/5400000;burst=3"];
        for (limits, text) in built.iter().zip(texts) {
            assert_eq!(to_text(Some(limits)), text);
            assert_eq!(from_text(text)?.as_ref(), Some(limits));
        }
        assert_eq!(from_text(&to_text(None))?, None);
        assert!(from_text("max=0").is_err() && from_text("min=1").is_err() && from_text("rate=5").is_err());
        Ok(())
    }

    #[test]
    fn f3_a_pinned_half_overrules_what_was_sent() -> Result<(), OptionError> {
        // Seen to fail: with what was sent before what is pinned in `over`.
        let sent = Limits::builder().max(2).rate(20, "1m").build()?;
        let max = Limits::builder().max(1).build()?;
        let rate = Limits::builder().rate(5, "1s").burst(3).build()?;
        let text = |pinned, sent| to_text(in_force(pinned, sent).as_ref());
        assert_eq!(text(None, None), "");
        assert_eq!(text(None, Some(sent)), "max=2;rate=20/60000");
        assert_eq!(text(Some(max), None), "max=1");
        assert_eq!(text(Some(max), Some(sent)), "max=1;rate=20/60000");
        assert_eq!(text(Some(rate), Some(sent)), "max=2;rate=5/1000;burst=3");
        assert_eq!(text(Some(sent), Some(max)), "max=2;rate=20/60000");
        Ok(())
    }
}
