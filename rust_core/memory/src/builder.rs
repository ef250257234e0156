//! The writing side of a growing buffer (spec 2.3).

use std::sync::Arc;

use crate::block::Block;
use crate::consumer::BufferConsumer;
use crate::pooled_segment::PooledSegment;

/// Writes a buffer. The consumer sees bytes once they are committed; dropping the builder finishes
/// the buffer.
#[derive(Debug)]
pub struct BufferBuilder {
    /// M4: this is the only builder of the block; the type is not `Clone`.
    block: Arc<Block>,
    /// Invariant: `written <= capacity <= block.capacity()`.
    capacity: usize,
    written: usize,
    committed: usize,
    finished: bool,
    consumer_taken: bool,
}

impl BufferBuilder {
    /// Starts an empty buffer over all of `segment`.
    pub fn new(segment: PooledSegment) -> Self {
        Self {
            capacity: segment.len(),
            block: Arc::new(Block::new(segment)),
            written: 0,
            committed: 0,
            finished: false,
            consumer_taken: false,
        }
    }

    /// Copies as many bytes of `source` as fit and returns their number. They are visible after a
    /// commit.
    ///
    /// # Panics
    /// If the buffer is [finished](Self::finish).
    pub fn append(&mut self, source: &[u8]) -> usize {
        self.append_with(|target| {
            let take = source.len().min(target.len());
            target[..take].copy_from_slice(&source[..take]);
            take
        })
    }

    /// Calls `write` with the unwritten rest of the buffer; `write` returns the number of bytes it
    /// wrote.
    ///
    /// # Panics
    /// If the buffer is [finished](Self::finish), or if `write` returns more than the length of its
    /// slice.
    pub fn append_with(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> usize {
        assert!(!self.finished, "append to a finished buffer");
        // SAFETY: M4, this is the only builder, and `written` is never below the committed
        // position.
        let target = unsafe { self.block.writable(self.written, self.capacity) };
        let room = target.len();
        let count = write(target);
        assert!(count <= room, "{count} bytes written to a slice of {room}");
        self.written += count;
        count
    }

    /// Makes all appended bytes visible to the consumer.
    pub fn commit(&mut self) {
        if self.written != self.committed {
            self.committed = self.written;
            self.block.publish(self.written, self.finished);
        }
    }

    /// Commits, marks the buffer as finished and returns the number of bytes written. Further calls
    /// do nothing.
    pub fn finish(&mut self) -> usize {
        if !self.finished {
            self.finished = true;
            self.committed = self.written;
            self.block.publish(self.written, true);
        }
        self.written
    }

    /// Returns the consumer, from the start of the buffer; `None` if it was taken before.
    pub fn consumer(&mut self) -> Option<BufferConsumer> {
        if std::mem::replace(&mut self.consumer_taken, true) {
            return None;
        }
        Some(BufferConsumer::growing(Arc::clone(&self.block)))
    }

    /// Sets the capacity in bytes, at least the bytes written so far and at most the size of the
    /// segment.
    pub fn trim(&mut self, capacity: usize) {
        self.capacity = capacity.max(self.written).min(self.block.capacity());
    }

    /// Capacity in bytes.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes that still fit.
    pub fn writable(&self) -> usize {
        self.capacity - self.written
    }

    /// True if no more bytes fit.
    pub fn is_full(&self) -> bool {
        self.writable() == 0
    }

    /// Bytes appended so far.
    pub fn written(&self) -> usize {
        self.written
    }
}

impl Drop for BufferBuilder {
    fn drop(&mut self) {
        self.finish();
    }
}
