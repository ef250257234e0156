//! Memory that is not the pool's, and what is charged for it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;

use crate::pooled_segment::PooledSegment;

/// Segments that nobody writes: they stand for memory of others that the exchange keeps meanwhile.
#[derive(Debug)]
pub struct Charge {
    /// They go home with it.
    _segments: Vec<PooledSegment>,
}

impl Charge {
    /// A charge of so much memory as these segments have.
    pub fn new(segments: Vec<PooledSegment>) -> Self {
        Self { _segments: segments }
    }
}

static PROCESS_ENDS: AtomicBool = AtomicBool::new(false);

/// Memory of others of which the exchange needs nothing more, until a thread of theirs lets go of it.
///
/// To let go of it may run code of theirs, and wait for locks of theirs such as an interpreter's. So no
/// thread of ours ever does it, and nobody who holds a lock of ours: both only put it here.
#[derive(Default)]
pub struct ForeignMemory {
    unneeded: Mutex<Vec<Vec<Bytes>>>,
    joined: AtomicU64,
}

impl ForeignMemory {
    /// Lets go of what is not needed any more. For threads of others, which hold no lock of ours.
    pub fn release(&self) {
        if PROCESS_ENDS.load(Ordering::Acquire) {
            return;
        }
        let unneeded =
            std::mem::take(&mut *self.unneeded.lock().unwrap_or_else(PoisonError::into_inner));
        drop(unneeded);
    }

    /// From now on the process keeps all such memory: it is about to end, and what letting go of it would
    /// run or wait for may be gone.
    pub fn process_ends() {
        PROCESS_ENDS.store(true, Ordering::Release);
    }

    /// Bytes of buffers in pieces that were put together for somebody who reads them in one.
    pub fn joined(&self) -> u64 {
        self.joined.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for ForeignMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignMemory").field("joined", &self.joined()).finish_non_exhaustive()
    }
}

/// A buffer in pieces of foreign memory, and its part of their charge.
///
/// The charge ends with the last buffer that shares it, wherever that is dropped; the memory itself is
/// let go of as [`ForeignMemory`] says.
pub(crate) struct Chain {
    pieces: Vec<Bytes>,
    len: usize,
    /// Put together, once somebody asks for that.
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

    /// The pieces, which from now on are their owner's again.
    pub(crate) fn into_pieces(mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.pieces)
    }

    /// A copy of all of it in one piece.
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
            self.memory.unneeded.lock().unwrap_or_else(PoisonError::into_inner).push(pieces);
        }
    }
}
