//! What part in a run a message asks for, by its headers.

use serde_json::{Map, Value};

use super::step::check_number;
use crate::message::{Fault, Given};

/// Where a message says which run it is of, in lower case.
pub(crate) const RUN_ID: &str = "upstash-workflow-runid";
/// Where a call says which step its answer becomes.
const STEP_ID: &str = "Upstash-Callback-Forward-Upstash-Workflow-StepId";
const LONGEST_ID: usize = 200;

/// A message that belongs to a run, or begins one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    /// What its user calls the run.
    pub(crate) id: String,
    pub(crate) kind: Kind,
    /// What the client counts on.
    pub(crate) features: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Begins a run.
    Start,
    /// Begins a run for a step of another, which gets its result.
    Invoke,
    /// A step of it.
    Step,
    /// A call to somebody else, whose answer becomes this step.
    Call(u64),
}

impl Ask {
    /// What these headers ask for. `None`: nothing about runs.
    pub(crate) fn read(given: &Given) -> Result<Option<Self>, Fault> {
        let is_init = flag(given, "upstash-workflow-init")?;
        let Some(id) = given.last(RUN_ID) else {
            return match is_init {
                Some(true) => Err(Fault::text("Upstash-Workflow-Init is set without Upstash-Workflow-RunId")),
                _ => Ok(None),
            };
        };
        let id = run_id(id)?;
        let is_invoke = flag(given, "upstash-workflow-invoke")?.unwrap_or(false);
        let call_type = given.last("upstash-workflow-calltype").unwrap_or("step");
        let kind = match (is_init.unwrap_or(false), is_invoke, call_type) {
            (true, true, _) => Kind::Invoke,
            (true, false, _) => Kind::Start,
            (false, _, "toCallback") => {
                let text = given.last(&STEP_ID.to_ascii_lowercase()).unwrap_or_default();
                let wrong = || Fault::new(STEP_ID, text, "a whole number");
                let number = check_number(STEP_ID, text.parse().map_err(|_| wrong())?)?;
                // Its answer has to go somewhere, or the run would wait for it for ever.
                if given.last("upstash-callback").is_none() {
                    return Err(Fault::text(
                        "a call of a run is sent without Upstash-Callback; send the URL of the workflow, which gets the answer",
                    ));
                }
                Kind::Call(number)
            }
            (false, _, "step" | "fromCallback") => Kind::Step,
            (false, _, other) => {
                return Err(Fault::new(
                    "Upstash-Workflow-CallType",
                    other,
                    "step, toCallback or fromCallback",
                ));
            }
        };
        let features = given.last("upstash-feature-set").unwrap_or_default().split(',').map(str::trim);
        let features = features.filter(|token| !token.is_empty()).take(32).map(str::to_owned).collect();
        Ok(Some(Ask { id, kind, features }))
    }
}

/// The id of a run, if it can be one: it stands in paths and in headers.
pub(crate) fn run_id(text: &str) -> Result<String, Fault> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#%\\\"".contains(&byte));
    if text.is_empty() || text.len() > LONGEST_ID || !is_plain {
        let accepted = "up to 200 letters, digits and signs like - _ . :";
        return Err(Fault::new("Upstash-Workflow-RunId", text, accepted));
    }
    Ok(text.to_owned())
}

fn flag(given: &Given, name: &str) -> Result<Option<bool>, Fault> {
    match given.last(name).map(str::to_ascii_lowercase).as_deref() {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(other) => Err(Fault::new(&crate::message::canonical(name), other, "true or false")),
    }
}

/// Headers in the form of a body: a name, and a list of values. Those of the client's own connection are left out, its token
/// first of all.
pub(crate) fn headers_of(map: &Map<String, Value>) -> Result<Given, Fault> {
    let mut given = Given::default();
    for (name, values) in map {
        let lower = name.to_ascii_lowercase();
        if !lower.starts_with("upstash-") && lower != "content-type" {
            continue;
        }
        let last = match values {
            Value::Array(values) if values.is_empty() => continue,
            Value::Array(values) => values.last().and_then(Value::as_str),
            other => other.as_str(),
        };
        let wrong = || Fault::new(name, &values.to_string(), "text, or a list of texts");
        given.add(&lower, last.ok_or_else(wrong)?);
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ask(headers: &[(&str, &str)]) -> Result<Option<Ask>, Fault> {
        Ask::read(&headers.iter().copied().collect())
    }

    #[test]
    fn a_message_says_which_part_it_has() {
        assert_eq!(ask(&[("Upstash-Retries", "3")]), Ok(None));
        let failing = [("Upstash-Failure-Callback-Workflow-Runid", "wfr_1")];
        assert_eq!(ask(&failing), Ok(None), "what is meant for its callback is not meant for it");
        let table = [
            (vec![("Upstash-Workflow-Init", "true")], Kind::Start),
            (vec![("upstash-workflow-init", "true"), ("Upstash-Workflow-Invoke", "true")], Kind::Invoke),
            (vec![("Upstash-Workflow-Init", "false")], Kind::Step),
            (vec![], Kind::Step),
            (vec![("Upstash-Workflow-CallType", "step")], Kind::Step),
            (
                vec![
                    ("Upstash-Workflow-CallType", "toCallback"),
                    ("Upstash-Callback-Forward-Upstash-Workflow-StepId", "4"),
                    ("Upstash-Callback", "https://e.com/workflow"),
                ],
                Kind::Call(4),
            ),
        ];
        for (mut headers, kind) in table {
            headers.push(("Upstash-Workflow-Runid", "wfr_1"));
            headers.push(("Upstash-Feature-Set", "LazyFetch, InitialBody"));
            let ask = ask(&headers).expect("it can be").expect("it is of a run");
            assert_eq!((ask.id.as_str(), ask.kind), ("wfr_1", kind), "{headers:?}");
            assert_eq!(ask.features, ["LazyFetch", "InitialBody"]);
        }
    }

    #[test]
    fn what_cannot_be_is_named_with_what_can() {
        let table: [(&[(&str, &str)], &str); 5] = [
            (&[("Upstash-Workflow-Init", "true")], "RunId"),
            (&[("Upstash-Workflow-Init", "yes"), ("Upstash-Workflow-RunId", "a")], "true or false"),
            (&[("Upstash-Workflow-RunId", "a/b")], "letters"),
            (&[("Upstash-Workflow-RunId", "a"), ("Upstash-Workflow-CallType", "x")], "fromCallback"),
            (&[("Upstash-Workflow-RunId", "a"), ("Upstash-Workflow-CallType", "toCallback")], "StepId"),
        ];
        for (headers, said) in table {
            let fault = ask(headers).expect_err("it cannot be").to_string();
            assert!(fault.contains(said), "{fault}");
        }
    }

    #[test]
    fn no_token_is_kept_from_the_headers_of_a_body() {
        let map = json!({ "Authorization": ["Bearer secret"], "Upstash-Label": ["a", "b"], "Cookie": "c" });
        let given = headers_of(map.as_object().expect("an object")).expect("texts");
        assert_eq!(given.last("authorization"), None);
        assert_eq!((given.last("upstash-label"), given.pairs().count()), (Some("b"), 1));
        let map = json!({ "Upstash-Retries": [3] });
        let fault = headers_of(map.as_object().expect("an object")).expect_err("a number").to_string();
        assert!(fault.contains("Upstash-Retries") && fault.contains("text"), "{fault}");
    }
}
