//! The bytes of a sheet of notes.
//!
//! Owns their form, the one that is written and the one before it. What is noted of the tasks of a block is
//! nearly the same for all of them, so a note has only what differs from one before it ([`alike`]).

use crate::{
    record::{Reader, Unreadable, put},
    store::alike::{self, Alike},
};

/// The first byte. Sheets of the form before begin with a seat in four bytes, of which the first is 0.
const FORM: u8 = 1;
/// What stands before a body in the form before: seat and length in 4 bytes each, task and moment in 8.
const OLD_HEAD: usize = 24;

/// A note on a sheet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) seat: u32,
    pub(super) task: i64,
    pub(super) at: i64,
    pub(super) body: Vec<u8>,
}

/// A sheet that is being written.
#[derive(Default)]
pub(super) struct Sheet<'a> {
    bytes: Vec<u8>,
    /// Of the note before.
    before: (u32, i64, i64),
    bodies: Alike<'a>,
}

impl<'a> Sheet<'a> {
    /// One more note; seats come in their order.
    pub(super) fn put(&mut self, seat: u32, task: i64, at: i64, body: &'a [u8]) {
        if self.bodies.count() == 0 {
            self.bytes.push(FORM);
        }
        let (last_seat, last_task, last_at) = self.before;
        put(&mut self.bytes, u64::from(seat.wrapping_sub(last_seat)));
        put(&mut self.bytes, folded(task.wrapping_sub(last_task)));
        put(&mut self.bytes, folded(at.wrapping_sub(last_at)));
        self.before = (seat, task, at);
        self.bodies.put(&mut self.bytes, body);
    }

    /// What is written; nothing, if it has no notes.
    pub(super) fn lines(&self) -> &[u8] {
        &self.bytes
    }
}

/// The notes of a sheet.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Line>, Unreadable> {
    let mut reader = Reader::new(bytes);
    match bytes.first() {
        None => return Ok(Vec::new()),
        Some(&FORM) => drop(reader.take(1)?),
        Some(_) => return read_old(reader),
    }
    let mut lines: Vec<Line> = Vec::new();
    let (mut seat, mut task, mut at) = (0_u32, 0_i64, 0_i64);
    while !reader.is_at_end() {
        seat = seat.wrapping_add(reader.small()?);
        task = task.wrapping_add(unfolded(reader.number()?));
        at = at.wrapping_add(unfolded(reader.number()?));
        let before = |back| Some(lines.get(lines.len().checked_sub(back)?)?.body.as_slice());
        let body = alike::take(&mut reader, before)?;
        lines.push(Line { seat, task, at, body });
    }
    Ok(lines)
}

fn read_old(mut reader: Reader<'_>) -> Result<Vec<Line>, Unreadable> {
    let mut lines = Vec::new();
    while !reader.is_at_end() {
        let head: &[u8; OLD_HEAD] = reader.take(OLD_HEAD)?.try_into().expect("as many as were asked for");
        let small = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let large = |at: usize| i64::from_be_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let body = reader.take(small(4) as usize)?.to_vec();
        lines.push(Line { seat: small(0), task: large(8), at: large(16), body });
    }
    Ok(lines)
}

/// Small numbers of either sign as small ones.
fn folded(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn unfolded(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(lines: &[Line]) -> Vec<u8> {
        let mut sheet = Sheet::default();
        lines.iter().for_each(|line| sheet.put(line.seat, line.task, line.at, &line.body));
        sheet.lines().to_vec()
    }

    fn line(number: u32, body: String) -> Line {
        Line { seat: number, task: i64::from(number / 3), at: 7, body: body.into_bytes() }
    }

    fn alike() -> impl Strategy<Value = Line> {
        let body = ("(active:|ended:)", "[ab]{0,40}", "[a-c]{0,3}", "[ab]{0,40}");
        let body = body.prop_map(|(kind, first, own, last)| format!("{kind}{first}{own}{last}").into_bytes());
        let any_body = prop_oneof![4 => body, 1 => prop::collection::vec(any::<u8>(), 0..60)];
        let numbers = (any::<u32>(), any::<i64>(), any::<i64>());
        (numbers, any_body).prop_map(|((seat, task, at), body)| Line { seat, task, at, body })
    }

    proptest! {
        // Seen to fail: with ends compared from the first byte on, those that overlap were more than there is.
        #[test]
        fn notes_of_a_sheet_come_back_as_they_were(lines in prop::collection::vec(alike(), 0..40)) {
            prop_assert_eq!(read(&written(&lines)), Ok(lines));
        }

        #[test]
        fn any_bytes_are_a_sheet_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 1..64), is_new in any::<bool>()) {
            if is_new {
                bytes[0] = FORM;
            }
            let _ = read(&bytes);
        }
    }

    #[test]
    fn what_notes_have_in_common_is_written_once() {
        // Seen to fail: with each compared to the one before it, whatever its kind.
        let text = |number: u32| {
            format!(
                "{{\"url\":\"https://example.com/{}\",\"key\":{number},\"parallelism\":7}}",
                "x".repeat(99)
            )
        };
        let kinds = ["{\"stage\":\"ACTIVE\"}", "{\"is\":\"DELIVERED\"}"];
        let lines: Vec<Line> = (0..64)
            .map(|number| line(number, kinds[number as usize % 2].to_owned() + &text(number)))
            .collect();
        let bytes = written(&lines);
        assert!(bytes.len() < 64 * 12 + 2 * 200, "{} bytes", bytes.len());
        assert_eq!(read(&bytes), Ok(lines));
    }

    #[test]
    fn a_sheet_of_the_form_before_is_read() {
        // Seen to fail: without `read_old`.
        let lines = [line(0, "one".to_owned()), line(5, String::new()), line(9, "three".to_owned())];
        let mut bytes = Vec::new();
        for Line { seat, task, at, body } in &lines {
            bytes.extend_from_slice(&seat.to_be_bytes());
            bytes.extend_from_slice(&(body.len() as u32).to_be_bytes());
            bytes.extend_from_slice(&task.to_be_bytes());
            bytes.extend_from_slice(&at.to_be_bytes());
            bytes.extend_from_slice(body);
        }
        assert_eq!(read(&bytes), Ok(lines.to_vec()));
        bytes.pop();
        assert!(read(&bytes).is_err(), "one that is cut short is no sheet");
    }
}
