//! Events, and those who wait for them.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Written, ask::headers_of};
use crate::message::{Destination, Fault, Given, from_json_object, read, span};

const FORM: &str =
    r#"{"url": "https://…", "timeout": "1d", "timeoutHeaders": {"Name": ["value"]}, "step": {"stepId": 1}}"#;
const LONGEST_ID: usize = 256;
/// Longer than this nobody waits.
const LONGEST: u64 = 366 * 24 * 60 * 60 * 1000;
/// Where the client says nothing.
const DEFAULT: &str = "7d";

/// A run that waits for an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Wait {
    pub(crate) event: String,
    /// Where its step is delivered.
    pub(crate) url: String,
    /// What the step is sent with.
    pub(crate) headers: Vec<(String, String)>,
    /// The step, without what the event brings.
    pub(crate) step: Written,
    /// As the client wrote it.
    pub(crate) timeout: String,
    /// Milliseconds since the Unix epoch.
    pub(crate) deadline: u64,
    pub(crate) since: u64,
}

/// An event that came before anybody waited for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredEvent {
    pub(crate) event: String,
    /// Base64.
    pub(crate) data: String,
}

/// What a client asks for.
#[derive(Clone, Debug)]
pub(crate) struct WaitAsk {
    pub(crate) wait: Wait,
    /// Milliseconds.
    pub(crate) timeout: u64,
    /// The name of its step.
    pub(crate) name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    url: String,
    #[serde(default)]
    timeout: Option<Value>,
    #[serde(default)]
    timeout_headers: Map<String, Value>,
    step: Written,
}

impl WaitAsk {
    pub(crate) fn read(event: &str, body: &[u8], now: u64) -> Result<Self, Fault> {
        let event = event_id(event)?.to_owned();
        let wrong =
            |error: serde_json::Error| Fault::text(format!("the body is not a wait ({error}); send {FORM}"));
        let body: Body = from_json_object(body).map_err(wrong)?;
        let url = Destination::url("url", &body.url)?;
        let timeout = match &body.timeout {
            None | Some(Value::Null) => DEFAULT.to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        let millis = span("timeout", &timeout)?.as_millis() as u64;
        if !(1..=LONGEST).contains(&millis) {
            return Err(Fault::new("timeout", &timeout, "a span from 1ms to 366d, like 7d"));
        }
        let name = body.step.step()?.name();
        let given = headers_of(&body.timeout_headers)?;
        // Whoever ends the wait cannot tell anybody that they cannot be.
        read(&given).map_err(|fault| Fault::text(format!("timeoutHeaders: {fault}")))?;
        let deadline = now.saturating_add(millis);
        let wait = Wait {
            event,
            url,
            headers: given.pairs().collect(),
            step: body.step,
            timeout,
            deadline,
            since: now,
        };
        Ok(WaitAsk { wait, timeout: millis, name })
    }
}

impl Wait {
    pub(crate) fn given(&self) -> Given {
        self.headers.iter().map(|(name, value)| (name, value.as_str())).collect()
    }

    /// About how many bytes of it are text that the client chose.
    pub(crate) fn size(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.url.len() + headers + self.step.text().len()
    }

    /// The step that an event makes, or that time makes where none came.
    pub(crate) fn step_with(&self, data: Option<&str>) -> Bytes {
        let brought = match data {
            Some(data) => ("out", json!(data)),
            None => ("waitTimeout", json!(true)),
        };
        self.step.with([
            ("waitEventId", json!(self.event)),
            ("timeout", json!(self.timeout)),
            ("waitTimeoutDeadline", json!(self.deadline)),
            brought,
        ])
    }

    /// As the protocol tells it.
    pub(crate) fn view(&self) -> Value {
        let mut headers = Map::new();
        for (name, value) in &self.headers {
            headers.insert(crate::message::canonical(name), json!([value]));
        }
        json!({
            "url": self.url,
            "deadline": self.deadline / 1000,
            "headers": headers,
            "timeoutUrl": self.url,
            "timeoutHeaders": headers,
        })
    }
}

/// The id of an event, if it can be one.
pub(crate) fn event_id(text: &str) -> Result<&str, Fault> {
    if text.is_empty() || text.len() > LONGEST_ID || text.chars().any(char::is_control) {
        return Err(Fault::new("the event's id", text, "1 to 256 bytes of text"));
    }
    Ok(text)
}

/// What an event brings, as steps carry it.
pub(crate) fn event_data(body: &[u8]) -> String {
    STANDARD.encode(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_becomes_a_step_by_an_event_or_by_time() {
        let body = br#"{"url":"https://e.com/w","timeout":"10s","timeoutHeaders":{"Upstash-Label":["a"],"Authorization":["x"]},
            "step":{"stepId":2,"stepName":"w","stepType":"Wait","concurrent":1}}"#;
        let ask = WaitAsk::read("e", body, 1000).expect("a wait");
        assert_eq!((ask.timeout, ask.wait.deadline, ask.name.as_str()), (10_000, 11_000, "step/2"));
        assert_eq!(ask.wait.headers, [("upstash-label".to_owned(), "a".to_owned())]);
        let with = |data| serde_json::from_slice::<Value>(&ask.wait.step_with(data)).expect("JSON");
        let woken = with(Some("aGk="));
        assert_eq!((&woken["out"], &woken["waitEventId"]), (&json!("aGk="), &json!("e")));
        let late = with(None);
        assert_eq!((late.get("out"), &late["waitTimeout"]), (None, &json!(true)));
    }

    #[test]
    fn what_is_no_wait_is_named_with_what_is() {
        for (body, said) in [
            ("", "not a wait"),
            (r#"{"url":"ftp://x","step":{"stepId":1}}"#, "url"),
            (r#"{"url":"https://x","step":{}}"#, "stepId"),
            (r#"{"url":"https://x","step":[5,"n","Wait"]}"#, "stepId"),
            (
                r#"{"url":"https://x","timeoutHeaders":{"Upstash-Retries":["lots"]},"step":{"stepId":1}}"#,
                "Upstash-Retries",
            ),
            (
                r#"{"url":"https://x","timeoutHeaders":{"Upstash-Retries":3},"step":{"stepId":1}}"#,
                "Upstash-Retries",
            ),
            (r#"["https://x","1d",{},{"stepId":1}]"#, "not a wait"),
            (r#"{"url":"https://x","timeout":"soon","step":{"stepId":1}}"#, "timeout"),
            (r#"{"url":"https://x","timeout":"400d","step":{"stepId":1}}"#, "timeout"),
        ] {
            let fault = WaitAsk::read("e", body.as_bytes(), 0).expect_err(body).to_string();
            assert!(fault.contains(said), "{fault}");
        }
        assert!(event_id("").is_err() && event_id("a\n").is_err() && event_id("order/1").is_ok());
    }
}
