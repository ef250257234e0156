//! The descriptor of a reader, for event loops.

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use headgate_exchange::{
    AvailabilityListener, DataInput, ExchangeError, Readiness, Result, ShuffleEnvironment,
};

/// Opened on first use; closed with its reader, or once the reader has read everything.
#[derive(Default)]
pub(crate) struct Descriptor(Mutex<Option<Arc<Readiness>>>);

impl Descriptor {
    /// Returns a descriptor that is readable whenever a poll of the input may return something.
    pub(crate) fn open(
        &self,
        environment: &ShuffleEnvironment,
        input: &Arc<dyn DataInput>,
    ) -> Result<RawFd> {
        environment.check_fork()?;
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(readiness) = &*slot {
            return Ok(readiness.descriptor());
        }
        let readiness = Arc::new(Readiness::new()?);
        let descriptor = readiness.descriptor();
        let weak: Weak<Readiness> = Arc::downgrade(&readiness);
        *slot = Some(readiness);
        drop(slot);
        input.add_listener(weak as Weak<dyn AvailabilityListener>);
        Ok::<_, ExchangeError>(descriptor)
    }

    pub(crate) fn clear(&self) {
        if let Some(readiness) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            readiness.clear();
        }
    }

    pub(crate) fn close(&self) {
        let readiness = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(readiness);
    }
}
