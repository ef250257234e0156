//! Who is told that a gate has something, after its lock is left.

use std::sync::{Arc, Weak};

use crate::gate::AvailabilityListener;

pub(super) type Listeners = Arc<[Weak<dyn AvailabilityListener>]>;

/// Whom to tell of what once the lock is left.
#[derive(Default)]
pub(super) struct Wake {
    pub(super) data: bool,
    pub(super) priority: bool,
    pub(super) listeners: Option<Listeners>,
}

impl Wake {
    pub(super) fn tell(self) {
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
