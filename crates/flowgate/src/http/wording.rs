//! The words of a refusal.
//!
//! Owns a message with places for numbers: taken apart once, where it is made, for under overload one is told with each request.

use std::borrow::Cow;

use flowgate_core::OptionError;

use super::{answer::escaped, figures::push_number};

/// The words of a refusal. A message may have `{max}`, `{in_flight}`, `{waiting}` and `{retry_after}` in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wording {
    /// As it stands in JSON, and so does the title.
    pub(super) code: String,
    pub(super) title: String,
    message: Message,
    /// The same as it stands in JSON.
    json: Message,
}

/// A text in pieces, with a number behind each.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Message {
    pieces: Vec<(String, Place)>,
    /// What stands behind the last number.
    end: String,
}

/// A number that is known when a message is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Max,
    InFlight,
    Waiting,
    RetryAfter,
}

/// What the places of a message are filled with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    pub(super) max: Option<u32>,
    pub(super) in_use: u32,
    pub(super) waiting: u32,
    pub(super) retry_after: u64,
}

const PLACES: [(&str, Place); 4] = [
    ("{max}", Place::Max),
    ("{in_flight}", Place::InFlight),
    ("{waiting}", Place::Waiting),
    ("{retry_after}", Place::RetryAfter),
];
/// What numbers take in a message.
const ROOM: usize = 32;

impl Wording {
    /// These words; an error if the message has a place in braces that nothing is known to fill.
    pub fn new(
        code: impl Into<Cow<'static, str>>,
        title: impl Into<Cow<'static, str>>,
        message: impl Into<Cow<'static, str>>,
    ) -> Result<Self, OptionError> {
        let (code, title) = (escaped(&code.into()).into_owned(), escaped(&title.into()).into_owned());
        let message = Message::parse(&message.into())?;
        let json = message.escaped();
        Ok(Wording { code, title, message, json })
    }

    pub(super) fn fixed(code: &'static str, title: &'static str, message: &'static str) -> Self {
        Wording::new(code, title, message).expect("its places are all known")
    }

    pub(super) fn with_message(&self, message: impl Into<Cow<'static, str>>) -> Result<Self, OptionError> {
        let message = Message::parse(&message.into())?;
        let json = message.escaped();
        Ok(Wording { message, json, ..self.clone() })
    }

    /// The message with its places filled.
    pub(super) fn message(&self, numbers: &Numbers) -> Vec<u8> {
        let mut text = Vec::new();
        self.message.fill(numbers, &mut text);
        text
    }

    /// The same, to stand between the quotes of a JSON string.
    pub(super) fn put_message(&self, numbers: &Numbers, json: &mut Vec<u8>) {
        self.json.fill(numbers, json);
    }

    /// How much all of it takes, or a little less.
    pub(super) fn len(&self) -> usize {
        let pieces = self.json.pieces.iter().map(|(text, _)| text.len()).sum::<usize>();
        self.code.len() + self.title.len() + pieces + self.json.end.len() + ROOM
    }
}

impl Message {
    fn parse(text: &str) -> Result<Self, OptionError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(start) = rest.find(['{', '}']) {
            let (before, place) = rest.split_at(start);
            let known = PLACES.iter().find_map(|(name, known)| Some((*known, place.strip_prefix(name)?)));
            let accepted = "text without braces other than {max}, {in_flight}, {waiting} and {retry_after}";
            let (place, behind) =
                known.ok_or_else(|| OptionError::new("message", format!("{text:?}"), accepted))?;
            pieces.push((before.to_owned(), place));
            rest = behind;
        }
        Ok(Message { pieces, end: rest.to_owned() })
    }

    fn escaped(&self) -> Self {
        let pieces = self.pieces.iter().map(|(text, place)| (escaped(text).into_owned(), *place));
        Message { pieces: pieces.collect(), end: escaped(&self.end).into_owned() }
    }

    fn fill(&self, numbers: &Numbers, text: &mut Vec<u8>) {
        for (before, place) in &self.pieces {
            text.extend_from_slice(before.as_bytes());
            match (place, numbers.max) {
                (Place::Max, Some(max)) => push_number(text, max.into()),
                (Place::Max, None) => text.extend_from_slice(b"unlimited"),
                (Place::InFlight, _) => push_number(text, numbers.in_use.into()),
                (Place::Waiting, _) => push_number(text, numbers.waiting.into()),
                (Place::RetryAfter, _) => push_number(text, numbers.retry_after),
            }
        }
        text.extend_from_slice(self.end.as_bytes());
    }
}
