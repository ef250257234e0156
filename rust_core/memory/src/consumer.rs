//! The reading side of a buffer that may still grow (spec 2.4).

use std::sync::Arc;

use crate::block::Block;
use crate::buffer::Buffer;
use crate::pooled_segment::PooledSegment;
use crate::position::Published;

/// Reads the bytes committed since the last [`build`](Self::build).
///
/// ```text
///   0            read               committed             capacity
///   |-- built -----|-- the next build --|-- being written ----|
/// ```
#[derive(Debug)]
pub struct BufferConsumer {
    source: Source,
    /// Offset of the next byte to build. Invariant: at most the published length.
    read: usize,
    /// True once a `build` saw the buffer finished, so that its last bytes are built before it is
    /// dropped.
    finished: bool,
}

#[derive(Debug, Clone)]
enum Source {
    /// The builder may still append.
    Growing(Arc<Block>),
    /// Complete from the start.
    Static(Buffer),
}

impl BufferConsumer {
    pub(crate) fn growing(block: Arc<Block>) -> Self {
        let finished = block.published().finished;
        Self { source: Source::Growing(block), read: 0, finished }
    }

    /// Creates a consumer of a complete buffer.
    pub fn of_static(buffer: Buffer) -> Self {
        Self { source: Source::Static(buffer), read: 0, finished: true }
    }

    fn published(&self) -> Published {
        match &self.source {
            Source::Growing(block) => block.published(),
            Source::Static(buffer) => Published { len: buffer.len(), finished: true },
        }
    }

    /// Returns the bytes committed since the last call, possibly none.
    pub fn build(&mut self) -> Buffer {
        let seen = self.published();
        let built = match &self.source {
            Source::Growing(block) => Buffer::of_block(Arc::clone(block), self.read, seen.len),
            Source::Static(buffer) => buffer.slice(self.read, seen.len),
        };
        self.read = seen.len;
        self.finished = seen.finished;
        built
    }

    /// True if the buffer was finished at the last `build`.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// True once the builder has finished, even if bytes remain to be built.
    pub fn is_complete(&self) -> bool {
        self.published().finished
    }

    /// True if `build` would return bytes.
    pub fn is_data_available(&self) -> bool {
        self.written_bytes() > self.read
    }

    /// Bytes committed so far, including those already built or skipped.
    pub fn written_bytes(&self) -> usize {
        self.published().len
    }

    /// True until a byte is built or skipped.
    pub fn is_unread(&self) -> bool {
        self.read == 0
    }

    /// Takes the segment, writable again, and the number of its first bytes that were committed.
    ///
    /// # Errors
    /// The consumer itself if the builder, another consumer or a buffer still refers to the
    /// segment.
    pub fn into_segment(self) -> Result<(PooledSegment, usize), Self> {
        let (read, finished) = (self.read, self.finished);
        match self.source {
            Source::Growing(block) => match Arc::try_unwrap(block) {
                Ok(block) => {
                    let committed = block.published().len;
                    Ok((block.into_segment(), committed))
                }
                Err(block) => Err(Self { source: Source::Growing(block), read, finished }),
            },
            Source::Static(buffer) => buffer.into_segment().map_err(|buffer| Self {
                source: Source::Static(buffer),
                read,
                finished,
            }),
        }
    }

    /// Skips the next `count` bytes.
    ///
    /// # Panics
    /// If fewer bytes are committed.
    pub fn skip(&mut self, count: usize) {
        let left = self.written_bytes() - self.read;
        assert!(count <= left, "skip of {count} bytes, only {left} are committed");
        self.read += count;
    }

    /// Returns a second consumer of the same bytes at the same offset; it sees later commits too.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self { source: self.source.clone(), read: self.read, finished: self.finished }
    }

    /// Returns a second consumer of the same bytes, at offset `position`.
    ///
    /// # Panics
    /// If fewer than `position` bytes are committed.
    #[must_use]
    pub fn copy_at(&self, position: usize) -> Self {
        let written = self.written_bytes();
        assert!(position <= written, "position {position} is beyond {written} committed bytes");
        Self { read: position, ..self.copy() }
    }
}
