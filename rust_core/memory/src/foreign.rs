//! Memory that the exchange keeps but did not allocate, and its charge to a pool.
//!
//! Decision: ADR 0021.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;

use crate::lock::lock;
use crate::pooled_segment::PooledSegment;

/// Unused segments that account for foreign memory while the exchange keeps it.
#[derive(Debug)]
pub struct Charge {
    /// Returned to their pool when the charge is dropped.
    _segments: Vec<PooledSegment>,
}

impl Charge {
    /// Makes a charge of the total size of these segments.
    pub fn new(segments: Vec<PooledSegment>) -> Self {
        Self { _segments: segments }
    }
}

/// True once foreign memory must not be freed any more.
static PROCESS_ENDS: AtomicBool = AtomicBool::new(false);

/// Queue of foreign memory that the exchange no longer needs, until its owner's thread frees it.
///
/// Freeing it can run the owner's code and wait for the owner's locks, such as that of a Python
/// interpreter. So our threads never free it, nor does any thread that holds one of our locks: they
/// put it into this queue.
#[derive(Default)]
pub struct ForeignMemory {
    unneeded: Mutex<Vec<Vec<Bytes>>>,
    /// Bytes copied by `Chain::whole`.
    joined: AtomicU64,
}

impl ForeignMemory {
    /// Frees the queued memory. Only the owner's threads may call this, without holding a lock of
    /// this library.
    pub fn release(&self) {
        if PROCESS_ENDS.load(Ordering::Acquire) {
            return;
        }
        let unneeded = std::mem::take(&mut *lock(&self.unneeded));
        drop(unneeded);
    }

    /// Stops `release` from freeing memory in this process. Called when the process is about to
    /// exit: the owner's code and locks may be gone already.
    pub fn process_ends() {
        PROCESS_ENDS.store(true, Ordering::Release);
    }

    /// Bytes of pieces that were copied together for readers of one slice.
    pub fn joined(&self) -> u64 {
        self.joined.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for ForeignMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignMemory").field("joined", &self.joined()).finish_non_exhaustive()
    }
}

/// The pieces of a buffer of foreign memory, and its share of their charge.
///
/// The charge ends with the last buffer that shares it, in whichever thread that is dropped. The
/// memory itself goes to the queue of [`ForeignMemory`].
pub(crate) struct Chain {
    pieces: Vec<Bytes>,
    len: usize,
    /// Copy of all pieces, made on first use.
    whole: OnceLock<Bytes>,
    _charge: Arc<Charge>,
    memory: Arc<ForeignMemory>,
}

impl Chain {
    pub(crate) fn new(pieces: Vec<Bytes>, charge: Arc<Charge>, memory: Arc<ForeignMemory>) -> Self {
        let len = pieces.iter().map(Bytes::len).sum();
        Self { pieces, len, whole: OnceLock::new(), _charge: charge, memory }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// Returns the pieces; the caller frees them.
    pub(crate) fn into_pieces(mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.pieces)
    }

    /// Returns a copy of all pieces in one slice.
    pub(crate) fn whole(&self) -> &Bytes {
        self.whole.get_or_init(|| {
            self.memory.joined.fetch_add(self.len as u64, Ordering::Relaxed);
            self.pieces.concat().into()
        })
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        let pieces = std::mem::take(&mut self.pieces);
        if !pieces.is_empty() {
            lock(&self.memory.unneeded).push(pieces);
        }
    }
}
