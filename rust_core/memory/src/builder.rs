//! The writing half of a growing buffer (spec 2.3).

use std::sync::Arc;

use crate::block::Block;
use crate::consumer::BufferConsumer;
use crate::pooled_segment::PooledSegment;

/// The writing half. Bytes are invisible until committed; dropping it finishes the buffer.
#[derive(Debug)]
pub struct BufferBuilder {
    /// M4: no other builder of this block exists; this type is neither `Clone` nor made twice.
    block: Arc<Block>,
    /// Invariant: `written <= capacity <= block.capacity()`.
    capacity: usize,
    written: usize,
    committed: usize,
    finished: bool,
    consumer_taken: bool,
}

impl BufferBuilder {
    /// Starts an empty buffer over the whole of `segment`.
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

    /// Copies as much of `source` as fits and returns how much that was; not visible yet.
    ///
    /// # Panics
    /// After [`finish`](Self::finish).
    pub fn append(&mut self, source: &[u8]) -> usize {
        self.append_with(|target| {
            let take = source.len().min(target.len());
            target[..take].copy_from_slice(&source[..take]);
            take
        })
    }

    /// Has `write` fill the rest of the buffer from its start; it returns how much it wrote.
    ///
    /// # Panics
    /// After [`finish`](Self::finish), or when more is claimed than there was room for.
    pub fn append_with(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> usize {
        assert!(!self.finished, "a finished buffer takes no more bytes");
        // SAFETY: M4, this is the one builder, and `written` is never below the committed position.
        let target = unsafe { self.block.writable(self.written, self.capacity) };
        let room = target.len();
        let count = write(target);
        assert!(count <= room, "no more is written than there is room for");
        self.written += count;
        count
    }

    /// Makes everything appended so far visible to the consumer.
    pub fn commit(&mut self) {
        if self.written != self.committed {
            self.committed = self.written;
            self.block.publish(self.written, self.finished);
        }
    }

    /// Commits, marks the buffer as complete and returns the bytes written; may be called twice.
    pub fn finish(&mut self) -> usize {
        if !self.finished {
            self.finished = true;
            self.committed = self.written;
            self.block.publish(self.written, true);
        }
        self.written
    }

    /// The reading half, from the start of the buffer; `None` when it was taken before.
    pub fn consumer(&mut self) -> Option<BufferConsumer> {
        if std::mem::replace(&mut self.consumer_taken, true) {
            return None;
        }
        Some(BufferConsumer::growing(Arc::clone(&self.block)))
    }

    /// Makes this buffer hold `capacity` bytes in all: not less than is written already, nor more
    /// than the segment has.
    pub fn trim(&mut self, capacity: usize) {
        self.capacity = capacity.max(self.written).min(self.block.capacity());
    }

    /// Bytes it holds when it is full.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes that still fit.
    pub fn writable(&self) -> usize {
        self.capacity - self.written
    }

    /// Whether nothing fits any more.
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
