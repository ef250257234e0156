//! Finishing buffers: a full segment becomes the buffer that consumers get, compressed where that
//! is asked for and worth it (spec 4.1, 4.5).
//!
//! The writer's thread compresses, in place, before the buffer is queued: queue, disk and wire
//! carry the compressed bytes, and a gate decompresses them. So neither the I/O thread nor the read
//! thread ever does.
//!
//! Decision: ADR 0016.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use headgate_memory::{Buffer, BufferBuilder, PooledSegment, lock};
use headgate_record::{Codec, Compressor};

use super::output::Output;
use super::shared::{CompressionCounters, Shared};
use crate::metrics::TaskIoMetrics;

/// Finishes the buffers of one partition.
pub(crate) struct BufferFinisher {
    output: Arc<Output>,
    compression: Option<Compression>,
    metrics: Arc<TaskIoMetrics>,
}

struct Compression {
    /// Shared by the writer and the output flusher, which also take turns in sending.
    compressor: Mutex<Compressor>,
    counters: Arc<CompressionCounters>,
}

impl Compression {
    fn apply(&self, mut segment: PooledSegment, len: usize) -> Buffer {
        let compressed = lock(&self.compressor).compress(&mut segment[..len]);
        let size = compressed.unwrap_or(len);
        self.counters.bytes_in.fetch_add(len as u64, Ordering::Relaxed);
        self.counters.bytes_out.fetch_add(size as u64, Ordering::Relaxed);
        match compressed {
            Some(size) => Buffer::freeze_compressed(segment, size, len),
            None => Buffer::freeze(segment, len),
        }
    }
}

impl BufferFinisher {
    pub(super) fn new(codec: Option<Codec>, output: Arc<Output>, shared: &Shared) -> Self {
        let counters = &shared.compressed;
        let compression = codec.map(|codec| Compression {
            compressor: Mutex::new(Compressor::new(codec)),
            counters: Arc::clone(counters),
        });
        Self { output, compression, metrics: Arc::clone(&shared.metrics) }
    }

    /// The compression for these subpartitions. None if all their readers are in this process: they
    /// would have to decompress the buffers at once.
    fn compression_for(&self, targets: Range<usize>) -> Option<&Compression> {
        self.compression.as_ref().filter(|_| self.output.leaves_memory(targets))
    }

    /// True if buffers for these subpartitions are not compressed.
    pub(crate) fn leaves_plain(&self, targets: Range<usize>) -> bool {
        self.compression_for(targets).is_none()
    }

    /// Turns the first `len` bytes of a segment into the buffer that these subpartitions get.
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

    /// Ends the growing buffer of these subpartitions. Compresses it if no reader has begun to read
    /// it; a buffer that was read in part stays as it is.
    pub(crate) fn finish_growing(&self, mut builder: BufferBuilder, targets: Range<usize>) {
        let compression = self.compression_for(targets.clone());
        let targets = &self.output.subpartitions()[targets];
        let mut unread = Vec::new();
        if compression.is_some() {
            unread.extend(targets.iter().filter_map(|target| Some((target, target.take_back()?))));
        }
        let bytes = builder.finish();
        drop(builder);
        self.metrics.finished(targets.len(), bytes);
        let (unread, consumers): (Vec<_>, Vec<_>) = unread.into_iter().unzip();
        // Drops all but one: only the last reference can give the segment back.
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
