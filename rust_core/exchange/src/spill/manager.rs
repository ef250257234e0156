//! What all partitions of an environment that use the disk share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::file::SpillFile;
use super::read_thread::ReadThread;
use crate::error::Result;
use crate::spill_dirs::SpillDirectories;
use crate::stats::SpillStats;

/// What went to disk and came back.
#[derive(Debug, Default)]
pub(super) struct SpillCounters {
    pub(super) written: AtomicU64,
    pub(super) read: AtomicU64,
    pub(super) files: AtomicU64,
}

/// Directories, the thread that reads, and counts.
pub(crate) struct SpillManager {
    directories: Arc<SpillDirectories>,
    pub(super) reads: Arc<ReadThread>,
    counters: Arc<SpillCounters>,
}

impl SpillManager {
    /// Opens and starts nothing yet.
    pub(crate) fn new(directories: Arc<SpillDirectories>) -> Self {
        Self { directories, reads: Arc::default(), counters: Arc::default() }
    }

    pub(super) fn create_file(&self) -> Result<SpillFile> {
        let file = self.directories.create()?;
        Ok(SpillFile::new(file, Arc::clone(&self.counters)))
    }

    /// A snapshot.
    pub(crate) fn stats(&self) -> SpillStats {
        SpillStats {
            bytes_written: self.counters.written.load(Ordering::Relaxed),
            bytes_read: self.counters.read.load(Ordering::Relaxed),
            files: self.counters.files.load(Ordering::Relaxed),
        }
    }

    /// Ends the thread that reads.
    pub(crate) fn stop(&self) {
        self.reads.stop();
    }

    /// Leaves the parent's thread alone in a forked child, which has none.
    pub(crate) fn forget(&self) {
        self.reads.forget();
    }
}
