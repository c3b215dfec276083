//! Buffers that nobody reads into right now.
//!
//! Owns how many are kept. A connection has one from the first byte of a request to the end of the answer, so there are as many
//! as there are requests under way, not connections.

use std::cell::RefCell;

use bytes::BytesMut;

use super::plain::Plain;

/// How much is read of a client at once.
pub(super) const READ_AT_ONCE: usize = 8 << 10;
/// More than these are not kept, and none to write in that became larger.
const MOST: usize = 64;
const LARGEST: usize = 16 << 10;

/// The spare buffers of a worker.
#[derive(Debug, Default)]
pub(super) struct Spare {
    to_read: RefCell<Vec<BytesMut>>,
    to_write: RefCell<Vec<Vec<u8>>>,
    #[expect(
        clippy::vec_box,
        reason = "they are lent as they are, and not copied: each takes half a kilobyte"
    )]
    plain: RefCell<Vec<Box<Plain>>>,
}

impl Spare {
    /// An empty buffer with room for what is read at once.
    pub(super) fn take(&self) -> BytesMut {
        let mut buffer = self.to_read.borrow_mut().pop().unwrap_or_default();
        buffer.reserve(READ_AT_ONCE);
        buffer
    }

    /// Keeps a buffer for the next one who has something to read. What is in it is forgotten.
    pub(super) fn give(&self, mut buffer: BytesMut) {
        let mut spare = self.to_read.borrow_mut();
        if spare.len() < MOST {
            buffer.clear();
            spare.push(buffer);
        }
    }

    /// Where to note what a plain request has in it.
    pub(super) fn take_plain(&self) -> Box<Plain> {
        self.plain.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps it for the next request. What is in it is forgotten.
    pub(super) fn give_plain(&self, plain: Box<Plain>) {
        let mut spare = self.plain.borrow_mut();
        if spare.len() < MOST {
            spare.push(plain);
        }
    }

    /// An empty buffer to write in.
    pub(super) fn take_to_write(&self) -> Vec<u8> {
        self.to_write.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps a buffer for the next one who has something to write. What is in it is forgotten.
    pub(super) fn give_to_write(&self, mut buffer: Vec<u8>) {
        let mut spare = self.to_write.borrow_mut();
        if spare.len() < MOST && buffer.capacity() <= LARGEST {
            buffer.clear();
            spare.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_and_a_crowd_of_them_is_not_kept() {
        // Seen to fail: with a buffer made for each; with all of them kept.
        let spare = Spare::default();
        let mut buffer = spare.take();
        buffer.extend_from_slice(b"what somebody else said");
        let place = buffer.as_ptr();
        spare.give(buffer);
        let buffer = spare.take();
        assert_eq!((buffer.as_ptr(), buffer.len()), (place, 0));
        assert!(buffer.capacity() >= READ_AT_ONCE);
        let crowd: Vec<_> = (0..2 * MOST).map(|_| spare.take()).collect();
        crowd.into_iter().for_each(|buffer| spare.give(buffer));
        assert_eq!(spare.to_read.borrow().len(), MOST);
    }

    #[test]
    fn a_buffer_to_write_in_is_kept_unless_it_has_grown() {
        // Seen to fail: with whatever comes kept.
        let spare = Spare::default();
        spare.give_to_write(Vec::with_capacity(LARGEST + 1));
        assert_eq!(spare.take_to_write().capacity(), 0);
        spare.give_to_write(b"what was written before".to_vec());
        let buffer = spare.take_to_write();
        assert!(buffer.is_empty() && buffer.capacity() > 0);
    }
}
