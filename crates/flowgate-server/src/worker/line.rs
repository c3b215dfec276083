//! A task as two lines of JSON: what a child process is asked, and what it answers.
//!
//! Owns their form, which is described in `docs/guide/workers.md`.

use std::time::Duration;

use flowgate_tasks::worker::{Context, Failure};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;

/// As much of a line as is worth repeating.
const MOST_SHOWN: usize = 120;

/// The question, with its line end. The body is JSON as it was sent; what is no JSON is `text`, and what is no text `base64`.
pub(super) fn question(context: &Context, body: &[u8]) -> Vec<u8> {
    let (id, attempt) = (context.id, context.attempt);
    let kind = quoted(&context.kind);
    let (field, value) = match std::str::from_utf8(body) {
        // A line end is no part of any JSON text but the space between its words.
        Ok(text) if serde_json::from_str::<IgnoredAny>(text).is_ok() => {
            ("body", text.trim().replace(['\n', '\r'], " "))
        }
        Ok(text) => ("text", quoted(text)),
        Err(_) => ("base64", format!("\"{}\"", base64(body))),
    };
    format!("{{\"id\":{id},\"kind\":{kind},\"attempt\":{attempt},\"{field}\":{value}}}\n").into_bytes()
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= group.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer<'a> {
    id: i64,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<String>,
    /// Whether another attempt may help.
    retry: Option<bool>,
    retry_after_ms: Option<u64>,
}

/// How a task ended by what its process wrote; or what is wrong with that line, and then nobody knows what the process does.
pub(super) fn answer(context: &Context, line: &[u8]) -> Result<Result<Vec<u8>, Failure>, String> {
    let wrong = |why: String| {
        let id = context.id;
        format!(
            "its process wrote {}, which is not an answer ({why}); accepted: {{\"id\": {id}, \"result\": …}} or {{\"id\": {id}, \
             \"error\": \"…\"}} on one line, and anything else on standard error",
            shown(line)
        )
    };
    let text = std::str::from_utf8(line).map_err(|error| wrong(error.to_string()))?;
    let answer: Answer<'_> = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    if answer.id != context.id.0 {
        return Err(wrong(format!("it is for task {}, and task {} was asked", answer.id, context.id)));
    }
    let Some(error) = answer.error else {
        if answer.retry.is_some() || answer.retry_after_ms.is_some() {
            return Err(wrong("`retry` and `retry_after_ms` go with an `error`".to_owned()));
        }
        return Ok(Ok(answer.result.map_or("null", RawValue::get).as_bytes().to_vec()));
    };
    if answer.result.is_some() {
        return Err(wrong("it has a `result` and an `error`".to_owned()));
    }
    let failure = if answer.retry == Some(false) { Failure::last(error) } else { Failure::new(error) };
    let wait = answer.retry_after_ms.map(Duration::from_millis);
    Ok(Err(match wait {
        Some(wait) => failure.after(wait),
        None => failure,
    }))
}

/// A line, or its first part, between quotation marks.
pub(super) fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let mut shown: String = text.chars().take(MOST_SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("`{shown}`")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flowgate_tasks::{TaskId, worker::Begun};

    use super::*;

    fn context() -> Context {
        Context { id: TaskId(17), kind: Arc::from("a \"kind\""), attempt: 2, begun: Begun::default() }
    }

    fn asked(body: &[u8]) -> String {
        String::from_utf8(question(&context(), body)).expect("it is text")
    }

    #[test]
    fn a_body_is_json_or_text_or_bytes_and_always_one_line() {
        // Seen to fail: with the body's own line ends left in.
        let head = r#"{"id":17,"kind":"a \"kind\"","attempt":2,"#;
        for (body, told) in [
            (
                &b"{\"n\":\r\n 123456789012345678901234567890 }\n"[..],
                r#""body":{"n":   123456789012345678901234567890 }}"#,
            ),
            (b"null", r#""body":null}"#),
            (b"two\nlines", r#""text":"two\nlines"}"#),
            (b"", r#""text":""}"#),
            (b"\xff\x00\x10", r#""base64":"/wAQ"}"#),
            (b"\xff", r#""base64":"/w=="}"#),
            (b"\xff\xfe", r#""base64":"//4="}"#),
        ] {
            assert_eq!(asked(body), format!("{head}{told}\n"));
        }
    }

    #[test]
    fn an_answer_is_a_result_or_an_error_and_nothing_else() {
        // Seen to fail: with unknown fields let through, `"err"` is a success.
        let ends = |line: &str| answer(&context(), line.as_bytes());
        assert_eq!(ends(r#"{"id":17,"result":{"a": 1.10}}"#), Ok(Ok(br#"{"a": 1.10}"#.to_vec())));
        assert_eq!(ends(r#"{"id":17}"#), Ok(Ok(b"null".to_vec())));
        assert_eq!(ends(r#"{"id":17,"error":"no"}"#), Ok(Err(Failure::new("no"))));
        assert_eq!(ends(r#"{"id":17,"error":"no","retry":false}"#), Ok(Err(Failure::last("no"))));
        let later = Failure::new("no").after(Duration::from_millis(250));
        assert_eq!(ends(r#"{"id":17,"error":"no","retry_after_ms":250}"#), Ok(Err(later)));
        let accepted = "; accepted: {\"id\": 17, \"result\": …} or {\"id\": 17, \"error\": \"…\"} on one line, and anything else \
                        on standard error";
        for (line, why) in [
            ("hello", "expected value at line 1 column 1"),
            (r#"{"id":16}"#, "it is for task 16, and task 17 was asked"),
            (
                r#"{"id":17,"err":"no"}"#,
                "unknown field `err`, expected one of `id`, `result`, `error`, `retry`, `retry_after_ms` at line 1 column 14",
            ),
            (r#"{"id":17,"result":1,"error":"no"}"#, "it has a `result` and an `error`"),
            (r#"{"id":17,"retry":true}"#, "`retry` and `retry_after_ms` go with an `error`"),
        ] {
            let told = format!("its process wrote `{line}`, which is not an answer ({why}){accepted}");
            assert_eq!(ends(line), Err(told));
        }
        let long = ends(&"x".repeat(1000)).expect_err("it is no answer");
        assert!(long.contains(&format!("`{}…`", "x".repeat(MOST_SHOWN))), "{long}");
    }
}
