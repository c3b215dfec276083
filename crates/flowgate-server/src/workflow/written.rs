//! A step that is kept until it has what it waits for.
//!
//! Owns that it goes back as its client wrote it, to the letter and to the half of one: clients hold its name against the one
//! they know, and a run whose step has another fails.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{
    Map, Value,
    value::{RawValue, to_raw_value},
};

use super::Step;
use crate::message::{Fault, from_json};

/// A step as its client wrote it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Written(Box<RawValue>);

impl PartialEq for Written {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Written {
    pub(crate) fn text(&self) -> &str {
        self.0.get()
    }

    pub(crate) fn step(&self) -> Result<Step, Fault> {
        Step::read(self.text().as_bytes())
    }

    /// Its fields as they are shown.
    pub(crate) fn fields(&self) -> Map<String, Value> {
        from_json(self.text().as_bytes()).unwrap_or_default()
    }

    /// Its body, with these fields more, or instead of its own.
    pub(crate) fn with<const COUNT: usize>(&self, more: [(&str, Value); COUNT]) -> Bytes {
        let fields = from_json::<BTreeMap<String, Box<RawValue>>>(self.text().as_bytes());
        let mut fields = fields.unwrap_or_default();
        let more =
            more.map(|(name, value)| (name.to_owned(), to_raw_value(&value).expect("a value is JSON")));
        fields.extend(more);
        serde_json::to_vec(&fields).expect("fields are JSON").into()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn f5_what_a_step_waited_for_changes_no_letter_of_it() {
        // Seen to fail: with the step kept as a value, which has no halves of letters.
        let json = r#"{"stepId":1,"stepName":"cut \ud83d","out":"old","more":[1e3, "\ude00"]}"#;
        let written: Written = serde_json::from_str(json).expect("JSON");
        assert_eq!(written.step().expect("a step").step_name, "cut \u{fffd}");
        assert_eq!(written.fields()["stepName"], json!("cut \u{fffd}"));
        let body = written.with([("out", json!("new")), ("timeout", json!("7d"))]);
        let told =
            r#"{"more":[1e3, "\ude00"],"out":"new","stepId":1,"stepName":"cut \ud83d","timeout":"7d"}"#;
        assert_eq!(body, told);
        // It is kept in the head of its run.
        let kept = serde_json::to_vec(&vec![&written]).expect("JSON");
        assert_eq!(serde_json::from_slice::<Vec<Written>>(&kept).expect("JSON"), [written]);
    }
}
