//! Read buffers that are borrowed while they hold bytes, so that thousands of idle flows hold none.
//!
//! Each thread keeps a few spare buffers. A flow takes one when its TCP side has something to read and gives it back when
//! the flow has taken the bytes; in the steady state nothing is allocated.

use std::cell::RefCell;

/// Bytes that one read of a TCP socket takes at most; a bulk sender fills it, so that reads are few.
const READ_BYTES: usize = 128 * 1024;
/// Spare buffers kept per thread; one is in use at a time unless flows are held back.
const SPARE_BUFFERS: usize = 8;

thread_local! {
    static SPARE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer from the pool with the bytes that were read and not yet handed on.
pub(super) struct ReadBuffer {
    /// Empty only once dropped.
    storage: Box<[u8]>,
    start: usize,
    end: usize,
}

impl ReadBuffer {
    /// Takes an empty buffer from the thread's pool, or makes one.
    pub(super) fn take() -> Self {
        let spare = SPARE.with_borrow_mut(Vec::pop);
        let storage = spare.unwrap_or_else(|| vec![0; READ_BYTES].into_boxed_slice());
        Self { storage, start: 0, end: 0 }
    }

    /// Where a read may put its bytes.
    pub(super) fn space(&mut self) -> &mut [u8] {
        &mut self.storage[self.end..]
    }

    /// Notes that a read put `length` bytes there.
    pub(super) fn fill(&mut self, length: usize) {
        self.end = (self.end + length).min(self.storage.len());
    }

    /// The bytes not handed on yet.
    pub(super) fn unread(&self) -> &[u8] {
        &self.storage[self.start..self.end]
    }

    /// Notes that `length` bytes were handed on.
    pub(super) fn advance(&mut self, length: usize) {
        self.start = (self.start + length).min(self.end);
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        let storage = std::mem::take(&mut self.storage);
        // A thread that is shutting down has no pool any more; the buffer is then freed.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_BUFFERS {
                spare.push(storage);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_given_back_is_used_again() {
        let first = ReadBuffer::take();
        let address = first.storage.as_ptr();
        drop(first);
        assert_eq!(ReadBuffer::take().storage.as_ptr(), address);
    }

    #[test]
    fn what_was_read_comes_out_in_pieces() {
        let mut buffer = ReadBuffer::take();
        buffer.space()[..4].copy_from_slice(b"abcd");
        buffer.fill(4);
        buffer.advance(1);
        assert_eq!(buffer.unread(), b"bcd");
        buffer.advance(3);
        assert!(buffer.unread().is_empty());
    }
}
