//! Targets: memory that blocks are read into.

use std::sync::{Arc, Weak};

use headgate_memory::{Buffer, PooledSegment, SegmentListener};
use headgate_protocol::DataType;

use super::file::Extent;
use super::read_thread::{Fill, ReadThread};
use super::store::Store;
use crate::error::{ExchangeError, Result};

/// Memory for one block.
pub(super) enum Target {
    /// A segment for a data block of this extent.
    Segment(PooledSegment, Extent),
    /// Ordinary memory for an event, which needs no segment.
    Heap(Vec<u8>),
}

impl Target {
    pub(super) fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Segment(segment, extent) => &mut segment[..extent.len as usize],
            Self::Heap(bytes) => bytes,
        }
    }

    pub(super) fn into_buffer(self) -> Buffer {
        match self {
            Self::Segment(segment, Extent { len, plain_len, .. }) => match plain_len {
                Some(plain) => Buffer::freeze_compressed(segment, len as usize, plain as usize),
                None => Buffer::freeze(segment, len as usize),
            },
            Self::Heap(bytes) => Buffer::from(bytes::Bytes::from(bytes)),
        }
    }
}

/// Takes memory for as many blocks of the plan as segments are free. If none is, the view is queued
/// with the read thread again when one is.
///
/// # Errors
/// The pool is closed, or the kernel has no memory.
pub(super) fn of_plan(
    plan: &[(Extent, DataType)],
    store: &Store,
    view: &Weak<dyn Fill>,
) -> Result<Vec<Target>> {
    let mut targets = Vec::with_capacity(plan.len());
    for (extent, data_type) in plan {
        if data_type.is_event() {
            targets.push(Target::Heap(vec![0; extent.len as usize]));
            continue;
        }
        let segment = if targets.is_empty() {
            let reads = Arc::clone(&store.manager.reads);
            let view = Weak::clone(view);
            store.pool.request_or_listen(|| Arc::new(Retry { reads, view }))
        } else {
            store.pool.try_request()
        };
        match segment.map_err(|error| ExchangeError::of_request(error, "result partition"))? {
            Some(segment) => targets.push(Target::Segment(segment, *extent)),
            None => break,
        }
    }
    Ok(targets)
}

/// Queues a view with the read thread again when a segment is free.
struct Retry {
    reads: Arc<ReadThread>,
    view: Weak<dyn Fill>,
}

impl SegmentListener for Retry {
    fn segment_available(&self) {
        self.reads.retry(Weak::clone(&self.view));
    }
}
