//! The reading half of a buffer that may still grow (spec 2.4).

use std::sync::Arc;

use crate::block::Block;
use crate::buffer::Buffer;
use crate::pooled_segment::PooledSegment;
use crate::position::Published;

/// Hands out what was committed since the last [`build`](Self::build).
///
/// ```text
///   0            read            written by now            capacity
///   |-- built -----|-- the next build --|-- the builder's -----|
/// ```
#[derive(Debug)]
pub struct BufferConsumer {
    source: Source,
    /// Invariant: never above what was published when it was set.
    read: usize,
    /// What the last `build` saw: a finished buffer is never dropped before its tail was read.
    finished: bool,
}

#[derive(Debug, Clone)]
enum Source {
    /// Its builder may still append.
    Growing(Arc<Block>),
    /// There never was a builder.
    Static(Buffer),
}

impl BufferConsumer {
    pub(crate) fn growing(block: Arc<Block>) -> Self {
        let finished = block.published().finished;
        Self { source: Source::Growing(block), read: 0, finished }
    }

    /// A consumer of a buffer that is complete: finished from the start.
    pub fn of_static(buffer: Buffer) -> Self {
        Self { source: Source::Static(buffer), read: 0, finished: true }
    }

    fn published(&self) -> Published {
        match &self.source {
            Source::Growing(block) => block.published(),
            Source::Static(buffer) => Published { len: buffer.len(), finished: true },
        }
    }

    /// Everything committed and not yet built, possibly nothing.
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

    /// Whether the builder had finished at the last `build`.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether the builder has finished by now, built or not.
    pub fn is_complete(&self) -> bool {
        self.published().finished
    }

    /// Whether `build` would return bytes now.
    pub fn is_data_available(&self) -> bool {
        self.written_bytes() > self.read
    }

    /// Bytes committed by now, from the start of the buffer, built or not.
    pub fn written_bytes(&self) -> usize {
        self.published().len
    }

    /// Whether nothing was built or left out so far.
    pub fn is_unread(&self) -> bool {
        self.read == 0
    }

    /// The segment, to be written again, and how many of its first bytes were committed.
    ///
    /// # Errors
    /// The consumer itself, where its builder, another reader or a buffer refers to the segment.
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

    /// Leaves out the next `count` bytes.
    ///
    /// # Panics
    /// When fewer are committed: the caller knows of no bytes that it has not seen.
    pub fn skip(&mut self, count: usize) {
        let left = self.written_bytes() - self.read;
        assert!(count <= left, "{count} bytes to skip of {left} that are committed");
        self.read += count;
    }

    /// A second reader over the same bytes, starting where this one is; sees later commits too.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self { source: self.source.clone(), read: self.read, finished: self.finished }
    }

    /// A second reader over the same bytes, starting at `position`.
    ///
    /// # Panics
    /// When fewer bytes than that are committed.
    #[must_use]
    pub fn copy_at(&self, position: usize) -> Self {
        let written = self.written_bytes();
        assert!(position <= written, "position {position} is beyond {written} committed bytes");
        Self { read: position, ..self.copy() }
    }
}
