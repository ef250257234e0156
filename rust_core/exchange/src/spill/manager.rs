//! The disk of an environment: directories, the read thread and counters, shared by all partitions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::file::{SpillCounters, SpillFile};
use super::read_thread::ReadThread;
use crate::error::Result;
use crate::metrics::WaitTimes;
use crate::spill_dirs::SpillDirectories;
use crate::stats::SpillStats;

/// Creates spill files, and owns the thread that reads them.
pub(crate) struct SpillManager {
    directories: Arc<SpillDirectories>,
    pub(super) reads: Arc<ReadThread>,
    counters: Arc<SpillCounters>,
}

impl SpillManager {
    /// Creates a manager that opens and starts nothing yet.
    pub(crate) fn new(directories: Arc<SpillDirectories>, waits: Arc<WaitTimes>) -> Self {
        let counters = Arc::new(SpillCounters { waits, ..SpillCounters::default() });
        Self { directories, reads: Arc::default(), counters }
    }

    pub(super) fn create_file(&self) -> Result<SpillFile> {
        let file = self.directories.create()?;
        Ok(SpillFile::new(file, Arc::clone(&self.counters)))
    }

    /// Returns a snapshot of the counters.
    pub(crate) fn stats(&self) -> SpillStats {
        SpillStats {
            bytes_written: self.counters.written.load(Ordering::Relaxed),
            bytes_read: self.counters.read.load(Ordering::Relaxed),
            files: self.counters.files.load(Ordering::Relaxed),
        }
    }

    /// Stops the read thread and waits for it.
    pub(crate) fn stop(&self) {
        self.reads.stop();
    }

    /// Leaves the parent's thread alone in a forked child, which has no such thread.
    pub(crate) fn forget(&self) {
        self.reads.forget();
    }
}
