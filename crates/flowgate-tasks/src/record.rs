//! What a task carries to its handler, as bytes in a store.
//!
//! Owns the form of those bytes. Everything a claim has to look at is a column of its own; the rest is one record, so that a
//! claim moves it without reading it.

use std::time::Duration;

use crate::task::Retry;

/// The form's number. Another form gets another number, and both are read.
const FORM: u8 = 1;
/// So many numbers stand between the kind and the body.
#[cfg(feature = "postgres")]
pub(crate) const NUMBERS: usize = 6;

/// Everything about a task that only its handler needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which handler runs it.
    pub kind: String,
    /// What the handler gets.
    pub body: Vec<u8>,
    /// How often it is tried.
    pub retry: Retry,
    /// How long a run may take.
    pub timeout: Option<Duration>,
    /// How long its result is kept.
    pub keep: Option<Duration>,
}

/// A record that cannot be read: written by a newer version, or damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stored task cannot be read at byte {at}: it was written by a newer version, or is damaged")]
pub struct Unreadable {
    /// Where reading stopped.
    pub at: usize,
}

impl Record {
    /// The record as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.kind.len() + self.body.len() + 24);
        begin(&mut bytes, &self.kind);
        put(&mut bytes, u64::from(self.retry.max_attempts));
        put(&mut bytes, millis(self.retry.backoff));
        put(&mut bytes, u64::from(self.retry.factor));
        put(&mut bytes, millis(self.retry.max_backoff));
        put(&mut bytes, self.timeout.map_or(0, |span| millis(span).max(1)));
        put(&mut bytes, self.keep.map_or(0, |span| millis(span).max(1)));
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// The record that [`Record::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Unreadable> {
        let Parts { kind, retry, timeout, keep, body } = Parts::of(bytes)?;
        Ok(Record { kind: kind.to_owned(), body: body.to_vec(), retry, timeout, keep })
    }
}

/// A record, read where it is.
pub(crate) struct Parts<'a> {
    pub(crate) kind: &'a str,
    pub(crate) retry: Retry,
    pub(crate) timeout: Option<Duration>,
    pub(crate) keep: Option<Duration>,
    pub(crate) body: &'a [u8],
}

impl<'a> Parts<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Result<Self, Unreadable> {
        let mut reader = Reader::new(bytes);
        if reader.byte()? != FORM {
            return Err(Unreadable { at: 0 });
        }
        let length = reader.small()? as usize;
        let kind = std::str::from_utf8(reader.take(length)?).map_err(|_| Unreadable { at: 1 })?;
        let retry = Retry {
            max_attempts: reader.small()?,
            backoff: reader.span()?,
            factor: reader.small()?,
            max_backoff: reader.span()?,
        };
        let timeout = Some(reader.span()?).filter(|span| !span.is_zero());
        let keep = Some(reader.span()?).filter(|span| !span.is_zero());
        Ok(Parts { kind, body: &bytes[reader.at..], retry, timeout, keep })
    }
}

/// What settling a task has to know of its record. One that cannot be read keeps no result, and nobody here knows of
/// its last attempt: whoever runs it finds out, and then it is dead.
pub(crate) struct Rest {
    pub(crate) keep: Option<Duration>,
    pub(crate) max_attempts: u32,
}

impl Rest {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let (keep, max_attempts) =
            Parts::of(bytes).map_or((None, u32::MAX), |parts| (parts.keep, parts.retry.max_attempts));
        Rest { keep, max_attempts }
    }
}

/// What all records of this kind begin with.
#[cfg(feature = "postgres")]
pub(crate) fn beginning_of(kind: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    begin(&mut bytes, kind);
    bytes
}

fn begin(bytes: &mut Vec<u8>, kind: &str) {
    bytes.push(FORM);
    put(bytes, kind.len() as u64);
    bytes.extend_from_slice(kind.as_bytes());
}

/// The kind of a task, for people.
pub(crate) fn kind_of(bytes: &[u8]) -> String {
    Parts::of(bytes).map_or("(unreadable)", |parts| parts.kind).to_owned()
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Seven bits to a byte, the lowest first; the topmost bit says that more follow.
pub(crate) fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads what [`put`] wrote.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// That what was read up to here makes no sense.
    pub(crate) fn unreadable(&self) -> Unreadable {
        Unreadable { at: self.at }
    }

    fn byte(&mut self) -> Result<u8, Unreadable> {
        let byte = *self.bytes.get(self.at).ok_or(self.unreadable())?;
        self.at += 1;
        Ok(byte)
    }

    pub(crate) fn number(&mut self) -> Result<u64, Unreadable> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(self.unreadable())
    }

    pub(crate) fn small(&mut self) -> Result<u32, Unreadable> {
        let at = self.at;
        u32::try_from(self.number()?).map_err(|_| Unreadable { at })
    }

    fn span(&mut self) -> Result<Duration, Unreadable> {
        self.number().map(Duration::from_millis)
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Unreadable> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or(self.unreadable())?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_record_comes_back_as_it_was(
            kind in ".{0,40}",
            body in prop::collection::vec(any::<u8>(), 0..200),
            numbers in any::<(u32, u32)>(),
            spans in any::<(u32, u32, Option<u32>, Option<u32>)>(),
        ) {
            let span = |millis: u32| Duration::from_millis(u64::from(millis));
            let record = Record {
                kind,
                body,
                retry: Retry {
                    max_attempts: numbers.0,
                    backoff: span(spans.0),
                    factor: numbers.1,
                    max_backoff: span(spans.1),
                },
                timeout: spans.2.map(|millis| span(millis.max(1))),
                keep: spans.3.map(|millis| span(millis.max(1))),
            };
            prop_assert_eq!(Record::from_bytes(&record.to_bytes()), Ok(record));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Record::from_bytes(&bytes);
        }
    }
}
