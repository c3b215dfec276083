//! Flow control as a sender asks for it: a key, and the limits that this message waits under.

use flowgate::{Limits, Period};
use serde::{Deserialize, Serialize};

use super::{Fault, name, seconds};

const KEY: &str = "Upstash-Flow-Control-Key";
const VALUE: &str = "Upstash-Flow-Control-Value";
/// In the words of the service whose clients read it.
const NEITHER: &str =
    "Upstash-Flow-Control-Value should be either rate=X or parallelism=Y, or both as comma-separated values";
const WEEK: u64 = 7 * 24 * 60 * 60 * 1000;

/// A key and its limits, checked: [`Flow::limits`] cannot fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Flow {
    pub(crate) key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parallelism: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<u32>,
    /// Milliseconds.
    pub(crate) period: u64,
    /// Whether starts are spread evenly instead of counted in windows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) smooth: bool,
}

impl Flow {
    /// From the pair of headers.
    pub(crate) fn read(key: &str, value: Option<&str>) -> Result<Self, Fault> {
        let key = name(KEY, key)?.to_owned();
        let mut flow = Flow { key, parallelism: None, rate: None, period: 1000, smooth: false };
        let mut said_before = Vec::new();
        for part in value.unwrap_or_default().split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (field, said) = part.split_once('=').unwrap_or((part, ""));
            let (field, said) = (field.trim(), said.trim());
            let field_in_small = field.to_ascii_lowercase();
            if said_before.contains(&field_in_small) {
                return Err(Fault::text(format!(
                    "{VALUE} has {field_in_small} more than once; send it once"
                )));
            }
            match field_in_small.as_str() {
                "parallelism" => flow.parallelism = Some(count(field, said)?),
                "rate" => flow.rate = Some(count(field, said)?),
                "period" => flow.period = period(said)?,
                "smooth" => flow.smooth = yes_or_no(said)?,
                _ => {
                    let accepted = "parallelism=<number>, rate=<number>, period=<span> and smooth=true, with commas between them";
                    return Err(Fault::new(VALUE, part, accepted));
                }
            }
            said_before.push(field_in_small);
        }
        if flow.parallelism.is_none() && flow.rate.is_none() {
            return Err(Fault::text(NEITHER));
        }
        if flow.smooth && flow.rate.is_none() {
            return Err(Fault::new(
                &format!("{VALUE}: smooth"),
                "true",
                "smooth=true together with rate=<number>",
            ));
        }
        flow.checked().map_err(|error| Fault::text(format!("{VALUE}: {error}")))?;
        Ok(flow)
    }

    /// The limits as gates know them.
    pub(crate) fn limits(&self) -> Limits {
        self.checked().expect("they were built once when the flow was read")
    }

    fn checked(&self) -> Result<Limits, flowgate::OptionError> {
        let mut limits = Limits::builder();
        if let Some(max) = self.parallelism {
            limits = limits.max(max);
        }
        if let Some(rate) = self.rate {
            limits = limits.rate(rate, Period::from_millis(self.period)?);
        }
        if self.smooth {
            limits = limits.smooth();
        }
        limits.build()
    }
}

fn count(field: &str, text: &str) -> Result<u32, Fault> {
    let number = text.parse().ok().filter(|number| (1..=1_000_000_000).contains(number));
    number
        .ok_or_else(|| Fault::new(&format!("{VALUE}: {field}"), text, "a whole number from 1 to 1000000000"))
}

fn yes_or_no(text: &str) -> Result<bool, Fault> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Fault::new(&format!("{VALUE}: smooth"), text, "true or false")),
    }
}

fn period(text: &str) -> Result<u64, Fault> {
    let field = format!("{VALUE}: period");
    let millis = seconds(text).and_then(|span| u64::try_from(span.as_millis()).ok());
    let millis = millis.filter(|millis| (1..=WEEK).contains(millis));
    millis.ok_or_else(|| Fault::new(&field, text, "a span of time from 1ms to 7d, like 10s or 1m"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn limits_are_read_as_the_clients_write_them() {
        let table = [
            ("parallelism=5", (Some(5), None, 1000)),
            ("rate=20, period=1m", (None, Some(20), 60_000)),
            ("parallelism=5, rate=20, period=60s", (Some(5), Some(20), 60_000)),
            ("rate=10,parallelism=4,period=60000s", (Some(4), Some(10), 60_000_000)),
            (" Rate = 3 ", (None, Some(3), 1000)),
            ("rate=2,period=10", (None, Some(2), 10_000)),
        ];
        for (value, (parallelism, rate, period)) in table {
            let flow = Flow::read("key", Some(value)).unwrap_or_else(|fault| panic!("{value}: {fault}"));
            assert_eq!((flow.parallelism, flow.rate, flow.period), (parallelism, rate, period), "{value}");
            assert_eq!(flow.limits().max(), parallelism);
        }
        let table =
            [("rate=10,smooth=true", 1), ("rate=2,period=1m,smooth=TRUE", 1), ("rate=5000,smooth=true", 50)];
        for (value, burst) in table {
            let limits = Flow::read("key", Some(value)).expect("a flow").limits();
            let burst = std::num::NonZeroU32::new(burst).expect("one or more");
            assert_eq!(
                limits.rate().map(|rate| rate.shape()),
                Some(flowgate::Shape::Bucket { burst }),
                "{value}"
            );
        }
    }

    #[test]
    fn what_is_no_limit_is_named_with_what_is() {
        let table = [
            (None, NEITHER),
            (Some(""), NEITHER),
            (Some("period=1m"), NEITHER),
            (Some("parallelism=0"), "from 1 to"),
            (Some("parallelism=-1"), "from 1 to"),
            (Some("rate=1.5"), "from 1 to"),
            (Some("rate=1,period=8d"), "from 1ms to 7d"),
            (Some("rate=1,period=0s"), "from 1ms to 7d"),
            (Some("rate=1,period=soon"), "a span of time from 1ms to 7d, like"),
            (Some("speed=1"), "parallelism=<number>"),
            (Some("rate=1,smooth=very"), "true or false"),
            (Some("parallelism=1,smooth=true"), "together with rate"),
            (Some("rate=1000000000,period=1ms"), "rate"),
        ];
        for (value, accepted) in table {
            let fault = Flow::read("key", value).expect_err("no limits").to_string();
            assert!(fault.contains(accepted), "{value:?}: {fault}");
        }
        assert!(Flow::read("a/b", Some("rate=1")).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_a_flow_or_a_fault(text in "[a-z0-9=,. ]{0,40}") {
            if let Ok(flow) = Flow::read("key", Some(&text)) {
                let _ = flow.limits();
            }
        }
    }
}
