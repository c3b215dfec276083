//! How a document is written down.
//!
//! Owns the bytes, which all stores keep alike. Bytes that cannot be read, because a later version or
//! somebody else wrote them, are an error, never a guess.

use std::time::Duration;

use flowgate_core::{Limits, Overflow, Period, RateState, Shape, Tick};

use super::document::{Declared, Document, Member, Run};

/// The first byte of all that is written.
const FORM: u8 = 1;

impl Declared {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![FORM];
        self.write(&mut bytes);
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes)?;
        Declared::read(&mut reader)
    }

    /// Whether a later version wrote it: then it is not for this one to replace.
    pub(crate) fn is_of_a_later_version(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|form| *form > FORM)
    }

    /// Whether limits are read as what was written.
    pub(crate) fn keeps(limits: Limits) -> bool {
        let declared = Declared { at: Tick::ZERO, limits, opens: Tick::ZERO };
        Declared::from_bytes(&declared.to_bytes()) == Some(declared)
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        let (rate, period, burst) = self.limits.rate().map_or((0, 0, 0), |rate| match rate.shape() {
            Shape::Window => (rate.rate(), rate.period().as_millis(), 0),
            Shape::Bucket { burst } => (rate.rate(), rate.period().as_millis(), burst.get()),
        });
        let (overflow, queue, timeout) = match self.limits.overflow() {
            Overflow::Reject => (0, 0, 0),
            Overflow::Queue { max, timeout } => {
                let nanos =
                    timeout.map_or(0, |timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
                (1, max.map_or(0, |max| max.get()), nanos)
            }
        };
        put(bytes, self.at.as_nanos());
        put(bytes, self.opens.as_nanos());
        put(bytes, self.limits.max().unwrap_or(0).into());
        put(bytes, rate.into());
        put(bytes, period);
        put(bytes, burst.into());
        put(bytes, overflow);
        put(bytes, queue.into());
        put(bytes, timeout);
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (at, opens) = (Tick::from_nanos(reader.word()?), Tick::from_nanos(reader.word()?));
        let mut limits = Limits::builder();
        let (max, rate) = (reader.number()?, reader.number()?);
        let (period, burst) = (reader.word()?, reader.number()?);
        let (overflow, queue, timeout) = (reader.word()?, reader.number()?, reader.word()?);
        if max > 0 {
            limits = limits.max(max);
        }
        if rate > 0 {
            limits = limits.rate(rate, Period::from_millis(period).ok()?);
        }
        if burst > 0 {
            limits = limits.burst(burst);
        }
        if overflow == 0 {
            limits = limits.reject();
        }
        if queue > 0 {
            limits = limits.queue(queue);
        }
        if timeout > 0 {
            limits = limits.timeout(Duration::from_nanos(timeout));
        }
        Some(Declared { at, limits: limits.build().ok()?, opens })
    }
}

impl Document {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.declared.to_bytes();
        put(&mut bytes, self.rate.to_word());
        put(&mut bytes, self.holders.len() as u64);
        for (member, in_use) in &self.holders {
            put(&mut bytes, member.0);
            put(&mut bytes, (*in_use).into());
        }
        for run in &self.line {
            put(&mut bytes, run.member.0);
            put(&mut bytes, run.first);
            put(&mut bytes, run.count.into());
            put(&mut bytes, run.weight.into());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes)?;
        let mut document = Document::new(Declared::read(&mut reader)?);
        document.rate = RateState::from_word(reader.word()?);
        for _ in 0..reader.word()? {
            document.holders.push((Member(reader.word()?), reader.number()?));
        }
        while !reader.is_empty() {
            let (member, first) = (Member(reader.word()?), reader.word()?);
            let (count, weight) = (reader.number()?, reader.number()?);
            if count == 0 || weight == 0 || first.checked_add(count.into()).is_none() {
                return None;
            }
            document.line.push_back(Run { member, first, count, weight });
        }
        Some(document)
    }
}

/// Small numbers take one byte: most are.
fn put(bytes: &mut Vec<u8>, mut word: u64) {
    while word >= 0x80 {
        bytes.push(word as u8 | 0x80);
        word >>= 7;
    }
    bytes.push(word as u8);
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let (form, rest) = bytes.split_first()?;
        (*form == FORM).then_some(Reader(rest))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn word(&mut self) -> Option<u64> {
        let mut word = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            word |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(word);
            }
        }
        None
    }

    fn number(&mut self) -> Option<u32> {
        u32::try_from(self.word()?).ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use flowgate_core::{Adaptive, Limits};

    use super::Declared;

    #[test]
    fn s2_limits_are_kept_if_they_are_read_as_they_were_written() {
        // Seen to fail: with the timeout written in milliseconds, one of a nanosecond was none; with `keeps` saying yes to all
        // that can be read at all, CoDel was lost.
        let of = Limits::builder;
        let (nano, days) = (Duration::from_nanos(1), Duration::from_secs(366 * 24 * 60 * 60));
        for limits in [
            of().max(1_000_000_000).queue(1_000_000_000).timeout(days),
            of().max(1).queue(1).timeout(nano),
            of().rate(u32::MAX, "366d").reject(),
            of().rate(15_625, "1ms").burst(u32::MAX),
            of().max(3).rate(1, "366d").smooth(),
        ] {
            let limits = limits.build().expect("they are fine");
            assert!(Declared::keeps(limits), "{limits}");
        }
        for limits in [of().max(5).codel(nano, days), of().max(5).adaptive(Adaptive::aimd())] {
            assert!(!Declared::keeps(limits.build().expect("they are fine")));
        }
    }
}
