//! Texts of which many are nearly the same, one after the other.
//!
//! Owns their form: a text says which one before it begins and ends as it does, and has only the bytes in between.

use crate::record::{Reader, Unreadable, put};

/// A text is compared with the last one that has the same first bytes, so many: texts of one kind take turns with those
/// of another.
const KIND: usize = 8;
/// So many kinds are told apart.
const KINDS: usize = 4;

/// Texts that are being written.
#[derive(Default)]
pub(super) struct Alike<'a> {
    count: usize,
    /// The last of each kind, the latest first, and which it was.
    kinds: [Option<(usize, &'a [u8])>; KINDS],
}

impl<'a> Alike<'a> {
    /// How many were written.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Writes one more to these bytes.
    pub(super) fn put(&mut self, bytes: &mut Vec<u8>, text: &'a [u8]) {
        let is_kin = |kind: &Option<(usize, &[u8])>| kind.is_some_and(|(_, known)| begins_alike(known, text));
        let place = self.kinds.iter().position(is_kin);
        let model = place.and_then(|place| self.kinds[place]);
        let (back, known) = model.map_or((0, &[][..]), |(which, known)| (self.count - which, known));
        let (first, last) = common(known, text);
        put(bytes, back as u64);
        put(bytes, first as u64);
        put(bytes, last as u64);
        let own = &text[first..text.len() - last];
        put(bytes, own.len() as u64);
        bytes.extend_from_slice(own);
        self.kinds[..=place.unwrap_or(KINDS - 1)].rotate_right(1);
        self.kinds[0] = Some((self.count, text));
        self.count += 1;
    }
}

/// Reads one. `before(1)` is the text before it, `before(2)` the one before that.
pub(super) fn take<'a>(
    reader: &mut Reader<'_>,
    before: impl FnOnce(usize) -> Option<&'a [u8]>,
) -> Result<Vec<u8>, Unreadable> {
    let [back, first, last, own] =
        [reader.small()?, reader.small()?, reader.small()?, reader.small()?].map(|size| size as usize);
    let own = reader.take(own)?;
    let wrong = reader.unreadable();
    let known = if back == 0 { &[] } else { before(back).ok_or(wrong)? };
    let begins = known.get(..first).ok_or(wrong)?;
    let ends = known.len().checked_sub(last).and_then(|from| known.get(from..)).ok_or(wrong)?;
    Ok([begins, own, ends].concat())
}

fn begins_alike(known: &[u8], text: &[u8]) -> bool {
    known.get(..KIND).is_some_and(|beginning| text.starts_with(beginning))
}

/// How many bytes both begin with, and how many of the others both end with.
fn common(known: &[u8], text: &[u8]) -> (usize, usize) {
    const WORD: usize = 16;
    let alike = |(one, other): &(&[u8], &[u8])| one == other;
    let words = known.chunks_exact(WORD).zip(text.chunks_exact(WORD)).take_while(alike).count() * WORD;
    let bytes = known[words..].iter().zip(&text[words..]);
    let first = words + bytes.take_while(|(one, other)| one == other).count();
    let (known, text) = (&known[first..], &text[first..]);
    let words = known.rchunks_exact(WORD).zip(text.rchunks_exact(WORD)).take_while(alike).count() * WORD;
    let bytes = known.iter().rev().skip(words).zip(text.iter().rev().skip(words));
    (first, words + bytes.take_while(|(one, other)| one == other).count())
}
