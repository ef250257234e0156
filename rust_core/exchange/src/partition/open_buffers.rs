//! The buffers that a partition's writer is filling. The writer owns them, and may outlive the
//! partition: an exception's traceback can keep it.

use std::sync::{Mutex, Weak};

use headgate_memory::lock;

/// Buffers that a writer is filling.
pub(crate) trait OpenBuffers: Send + Sync {
    /// Drops them and refuses new ones: nobody will read them. Takes the lock under which records
    /// are copied, which the caller must not hold.
    fn discard(&self);
}

/// The open buffers of a partition's writers.
#[derive(Default)]
pub(super) struct AllOpenBuffers(Mutex<Vec<Weak<dyn OpenBuffers>>>);

impl AllOpenBuffers {
    pub(super) fn add(&self, open: Weak<dyn OpenBuffers>) {
        let mut all = lock(&self.0);
        all.retain(|open| open.strong_count() > 0);
        all.push(open);
    }

    pub(super) fn discard(&self) {
        let all = std::mem::take(&mut *lock(&self.0));
        all.iter().filter_map(Weak::upgrade).for_each(|open| open.discard());
    }
}
