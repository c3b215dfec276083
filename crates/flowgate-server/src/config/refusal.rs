//! `refusal`: what a refused request is told.
//!
//! Owns reading it; the words and the wire are `flowgate::http`'s, which also says which places a message may
//! have.

use std::time::Duration;

use flowgate::http::{Answer, Format, Wording};
use http::StatusCode;

use super::{
    options::REFUSAL,
    read::{Fields, Label, Read},
};

/// A day: whoever may not come again for longer should be told so otherwise.
const LONGEST_RETRY: u32 = 86_400;

/// What a route says of it.
pub(super) fn answer(route: &Fields<'_>) -> Read<Answer> {
    match route.entry("refusal") {
        Some(entry) => read(&entry.fields(&REFUSAL, "a table: { status = 429, format = \"envelope\" }")?),
        None => read(&route.none(&REFUSAL, Label::table("refusal"))),
    }
}

fn read(fields: &Fields<'_>) -> Read<Answer> {
    let status = fields.read("status", |entry| entry.small(400..=599));
    let format = fields.read("format", |entry| {
        entry.choice(&[("envelope", Format::Envelope), ("problem", Format::Problem)])
    });
    let retry_after = fields.read("retry_after", |entry| entry.small(0..=LONGEST_RETRY));
    let over_max = wording(fields, ["code", "title", "message"]);
    let over_rate = wording(fields, ["rate_code", "rate_title", "rate_message"]);
    let status = u16::try_from(status?).ok().and_then(|status| StatusCode::from_u16(status).ok());
    let answer = Answer::default().status(status.expect("each from 400 to 599 is a status"));
    let answer = answer.map_err(|wrong| fields.wrong("status", wrong.value(), wrong.accepted()))?;
    Ok(answer
        .format(format?)
        .retry_after(Duration::from_secs(u64::from(retry_after?)))
        .over_max(over_max?)
        .over_rate(over_rate?))
}

fn wording(fields: &Fields<'_>, [code, title, message]: [&str; 3]) -> Read<Wording> {
    let words = |name: &str| fields.read(name, |entry| entry.words().map(str::to_owned));
    let (code, title, text) = (words(code), words(title), words(message));
    Wording::new(code?, title?, text?).map_err(|wrong| fields.wrong(message, wrong.value(), wrong.accepted()))
}
