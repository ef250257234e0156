//! The gates of an environment.

use std::sync::{Arc, Mutex, Weak};

use headgate_memory::lock;

use crate::error::ExchangeError;
use crate::gate::InputGate;

/// The gates that are still in use.
#[derive(Default)]
pub(super) struct Gates(Mutex<Vec<Weak<InputGate>>>);

impl Gates {
    pub(super) fn add(&self, gate: &Arc<InputGate>) {
        let mut gates = lock(&self.0);
        gates.retain(|gate| gate.strong_count() > 0);
        gates.push(Arc::downgrade(gate));
    }

    pub(super) fn all(&self) -> Vec<Arc<InputGate>> {
        lock(&self.0).iter().filter_map(Weak::upgrade).collect()
    }

    /// Ends the reader of every gate with this cause.
    pub(super) fn fail_all(&self, cause: &ExchangeError) {
        for gate in self.all() {
            gate.fail(cause.clone());
        }
    }
}
