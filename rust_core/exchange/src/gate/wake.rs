//! Calls to a gate's listeners, after its lock is released.

use std::sync::{Arc, Weak};

use crate::gate::data_input::AvailabilityListener;

pub(crate) type Listeners = Arc<[Weak<dyn AvailabilityListener>]>;

/// The calls that one change of a gate makes due.
#[derive(Default)]
pub(crate) struct Wake {
    pub(crate) data: bool,
    pub(crate) priority: bool,
    pub(crate) listeners: Option<Listeners>,
}

impl Wake {
    /// Calls the listeners. The gate's lock must not be held.
    pub(crate) fn call(self) {
        for listener in self.listeners.iter().flat_map(|all| all.iter()).filter_map(Weak::upgrade) {
            if self.priority {
                listener.priority_available();
            }
            if self.data {
                listener.data_available();
            }
        }
    }
}
