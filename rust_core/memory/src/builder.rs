//! The growing buffer: one builder, readers that see what it has committed (spec 2.3, 2.4).

use std::sync::Arc;

use crate::block::Block;
use crate::buffer::Buffer;
use crate::pooled_segment::PooledSegment;

/// The writing half. Bytes are invisible until committed; dropping it finishes the buffer.
#[derive(Debug)]
pub struct BufferBuilder {
    /// M4: no other builder of this block exists; this type is neither `Clone` nor made twice.
    block: Arc<Block>,
    written: usize,
    committed: usize,
    finished: bool,
    consumer_taken: bool,
}

impl BufferBuilder {
    /// Starts an empty buffer over the whole of `segment`.
    pub fn new(segment: PooledSegment) -> Self {
        Self {
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
        let target = unsafe { self.block.writable(self.written, self.block.capacity()) };
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
        let finished = self.block.published().finished;
        Some(BufferConsumer { block: Arc::clone(&self.block), read: 0, finished })
    }

    /// Bytes that still fit.
    pub fn writable(&self) -> usize {
        self.block.capacity() - self.written
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

/// The reading half; hands out what was committed since the last [`build`](Self::build).
#[derive(Debug)]
pub struct BufferConsumer {
    block: Arc<Block>,
    read: usize,
    /// What the last `build` saw: a finished buffer is never dropped before its tail was read.
    finished: bool,
}

impl BufferConsumer {
    /// Everything committed and not yet built, possibly nothing.
    pub fn build(&mut self) -> Buffer {
        let seen = self.block.published();
        let built = Buffer::of_block(Arc::clone(&self.block), self.read, seen.len);
        self.read = seen.len;
        self.finished = seen.finished;
        built
    }

    /// Whether the builder had finished at the last `build`.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether the builder has finished by now, built or not.
    pub fn is_complete(&self) -> bool {
        self.block.published().finished
    }

    /// Whether `build` would return bytes now.
    pub fn is_data_available(&self) -> bool {
        self.block.published().len > self.read
    }

    /// A second reader over the same bytes, starting where this one is.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self { block: Arc::clone(&self.block), read: self.read, finished: self.finished }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::GlobalPool;

    fn builder(segment_size: usize) -> (GlobalPool, BufferBuilder) {
        let global = GlobalPool::new(4, segment_size);
        let pool = global.create_local_pool(1, usize::MAX).expect("fits");
        let segment = pool.try_request().expect("open").expect("free");
        (global, BufferBuilder::new(segment))
    }

    #[test]
    fn spec_2_02_append_finish_and_full() {
        let (_global, mut builder) = builder(40);
        for value in 0_u32..10 {
            assert_eq!(builder.append(&value.to_be_bytes()), 4);
        }
        assert!(builder.is_full());
        assert_eq!(builder.append(&[0; 4]), 0);
        assert_eq!(builder.finish(), 40);
    }

    #[test]
    fn spec_2_04_finished_is_learnt_by_building() {
        let (_global, mut builder) = builder(40);
        let mut consumer = builder.consumer().expect("first");
        builder.append(&[0, 1]);
        assert!(consumer.build().is_empty(), "appended is not committed");
        builder.commit();
        assert_eq!(consumer.build().as_slice(), [0, 1]);
        builder.append(&[2]);
        builder.commit();
        assert_eq!(consumer.build().as_slice(), [2]);
        assert!(!consumer.is_finished());
        builder.finish();
        assert!(!consumer.is_finished());
        assert!(consumer.build().is_empty());
        assert!(consumer.is_finished());
    }

    #[test]
    fn spec_2_05_finish_twice_and_one_consumer() {
        let (_global, mut builder) = builder(8);
        builder.append(&[7]);
        assert_eq!((builder.finish(), builder.finish()), (1, 1));
        assert!(builder.consumer().is_some());
        assert!(builder.consumer().is_none());
    }

    #[test]
    #[should_panic(expected = "takes no more bytes")]
    fn spec_2_05_append_after_finish() {
        let (_global, mut builder) = builder(8);
        builder.finish();
        builder.append(&[1]);
    }

    #[test]
    fn spec_2_08_the_last_view_returns_the_segment() {
        let (global, mut builder) = builder(8);
        let mut consumer = builder.consumer().expect("first");
        builder.append(&[1, 2, 3]);
        builder.finish();
        let slice = consumer.build().slice(1, 3);
        drop(builder);
        drop(consumer);
        assert_eq!(global.stats().held, 1);
        assert_eq!(slice.as_slice(), [2, 3]);
        drop(slice);
        assert_eq!(global.stats().held, 0);
    }

    #[test]
    fn a_copied_consumer_reads_on_its_own() {
        let (_global, mut builder) = builder(8);
        let mut first = builder.consumer().expect("first");
        builder.append(&[1]);
        builder.commit();
        first.build();
        let mut second = first.copy();
        builder.append(&[2]);
        builder.commit();
        assert_eq!(second.build().as_slice(), [2]);
        assert_eq!(first.build().as_slice(), [2]);
    }
}
