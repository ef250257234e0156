//! Complete buffers in a smaller form, where that is asked for and worth it (spec 4.1, 4.5).
//!
//! The thread that writes compresses, in place: queue, disk and wire carry what it made, and a gate takes
//! it apart. So neither the I/O thread nor the one that reads from disk has anything to do with it.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use headgate_memory::{Buffer, BufferBuilder, PooledSegment};
use headgate_record::{Codec, Compressor};

use crate::lock::lock;
use crate::partition::ResultPartition;

/// What compressors of an environment were given, and what they made of it.
#[derive(Debug, Default)]
pub(crate) struct CompressionCounters {
    /// Bytes of buffers that were to be compressed.
    pub(crate) bytes_in: AtomicU64,
    /// Bytes of the same buffers afterwards, those that did not become smaller included.
    pub(crate) bytes_out: AtomicU64,
}

/// Compresses for one partition.
pub(super) struct Compression {
    /// Of the writer and the output flusher, which also take turns in what they send.
    compressor: Mutex<Compressor>,
    counters: Arc<CompressionCounters>,
}

impl Compression {
    pub(super) fn new(codec: Codec, counters: &Arc<CompressionCounters>) -> Self {
        let compressor = Mutex::new(Compressor::new(codec));
        Self { compressor, counters: Arc::clone(counters) }
    }

    fn apply(&self, mut segment: PooledSegment, len: usize) -> Buffer {
        let compressed = lock(&self.compressor).compress(&mut segment[..len]);
        let made = compressed.unwrap_or(len);
        self.counters.bytes_in.fetch_add(len as u64, Ordering::Relaxed);
        self.counters.bytes_out.fetch_add(made as u64, Ordering::Relaxed);
        match compressed {
            Some(made) => Buffer::freeze_compressed(segment, made, len),
            None => Buffer::freeze(segment, len),
        }
    }
}

impl ResultPartition {
    /// Where buffers for these subpartitions are to be compressed: whatever may get to disk, and what
    /// does not only go to readers of this process, who would have to take it apart at once.
    fn compression_for(&self, targets: Range<usize>) -> Option<&Compression> {
        let far = || self.subpartitions()[targets].iter().any(|target| target.is_remote());
        self.compression.as_ref().filter(|_| self.kind().is_stored() || far())
    }

    /// Whether buffers for these subpartitions stay as they are.
    pub(crate) fn leaves_plain(&self, targets: Range<usize>) -> bool {
        self.compression_for(targets).is_none()
    }

    /// A segment that is written to its end, as the buffer that these subpartitions get.
    pub(crate) fn freeze(
        &self,
        segment: PooledSegment,
        len: usize,
        targets: Range<usize>,
    ) -> Buffer {
        match self.compression_for(targets) {
            Some(compression) => compression.apply(segment, len),
            None => Buffer::freeze(segment, len),
        }
    }

    /// Ends the growing buffer of these subpartitions. It is compressed if nobody has begun to read it:
    /// what was read in part stays as it is.
    pub(crate) fn finish_growing(&self, mut builder: BufferBuilder, targets: Range<usize>) {
        let compression = self.compression_for(targets.clone());
        let targets = &self.subpartitions()[targets];
        let mut unread = Vec::new();
        if compression.is_some() {
            unread.extend(targets.iter().filter_map(|target| Some((target, target.take_back()?))));
        }
        let bytes = builder.finish();
        drop(builder);
        self.metrics().finished(targets.len(), bytes);
        let (unread, consumers): (Vec<_>, Vec<_>) = unread.into_iter().unzip();
        // The others go, or the segment would not be this one's own.
        let consumer = consumers.into_iter().next();
        if let (Some(compression), Some(consumer)) = (compression, consumer) {
            match consumer.into_segment() {
                Ok((segment, len)) => {
                    let buffer = compression.apply(segment, len);
                    for target in unread {
                        target.put_back(buffer.clone());
                    }
                }
                Err(consumer) => unread.iter().for_each(|it| it.add_growing(consumer.copy())),
            }
        }
        for target in targets {
            target.completed(bytes);
        }
    }
}
