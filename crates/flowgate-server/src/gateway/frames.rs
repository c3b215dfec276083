//! Where the frames of an HTTP/2 connection begin and end.
//!
//! Owns no more of the protocol than it takes to know whether something is only half said: then it has as long as the head of a
//! request has, and not as long as an idle connection. What the frames mean is hyper's to judge.

/// Said once, before the first frame.
const PREFACE: usize = 24;
/// Of a frame: its length, kind, flags and stream.
const HEAD: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// How far the frames of a connection have been read.
#[derive(Debug)]
pub(super) struct Frames {
    head: [u8; HEAD],
    /// How much of that is there.
    read: usize,
    /// How much is to come of what a frame carries.
    left: usize,
    /// Whether the head of a request goes on in the next frame.
    goes_on: bool,
}

impl Frames {
    /// Before the first byte.
    pub(super) fn new() -> Self {
        Frames { head: [0; HEAD], read: 0, left: PREFACE, goes_on: false }
    }

    /// Reads on. Whether a frame, or the head of a request, is only half there behind these bytes.
    pub(super) fn is_half_behind(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let wanted = if self.left > 0 { self.left } else { HEAD - self.read };
            let (taken, rest) = bytes.split_at(wanted.min(bytes.len()));
            bytes = rest;
            if self.left > 0 {
                self.left -= taken.len();
                continue;
            }
            self.head[self.read..self.read + taken.len()].copy_from_slice(taken);
            self.read += taken.len();
            if self.read == HEAD {
                self.begin();
            }
        }
        self.left > 0 || self.read > 0 || self.goes_on
    }

    fn begin(&mut self) {
        let [first, second, third, kind, flags, ..] = self.head;
        self.read = 0;
        self.left = u32::from_be_bytes([0, first, second, third]) as usize;
        if matches!(kind, HEADERS | CONTINUATION) {
            self.goes_on = flags & END_HEADERS == 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

    #[test]
    fn w3_what_is_half_said_is_known_however_it_is_cut() {
        // Seen to fail: with `goes_on` set by every kind of frame, a PING behind a head that goes on ended it; and with the
        // preface not left out, its bytes were a frame of five megabytes.
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let head = |flags: u8, kind: u8| [0, 0, 2, kind, flags, 0, 0, 0, 1, 0x82, 0x86];
        let whole = [&preface[..], &PING, &head(4, HEADERS), &PING].concat();
        for size in 1..=whole.len() {
            let mut frames = Frames::new();
            let last = whole.chunks(size).map(|bytes| frames.is_half_behind(bytes)).last();
            assert_eq!(last, Some(false), "in pieces of {size}");
        }
        let ends: Vec<usize> = [preface.len(), PING.len(), 11, PING.len()]
            .iter()
            .scan(0, |end, length| {
                *end += length;
                Some(*end)
            })
            .collect();
        for end in 1..=whole.len() {
            let is_half = Frames::new().is_half_behind(&whole[..end]);
            assert_eq!(is_half, !ends.contains(&end), "{end} bytes");
        }
        let mut frames = Frames::new();
        assert!(!frames.is_half_behind(preface));
        assert!(frames.is_half_behind(&head(0, HEADERS)), "it goes on");
        assert!(frames.is_half_behind(&PING), "which only a broken client says here");
        assert!(frames.is_half_behind(&head(0, CONTINUATION)));
        assert!(!frames.is_half_behind(&head(4, CONTINUATION)));
    }
}
