//! The position of a consumer of another host in a kept subpartition.

use std::sync::{Arc, Mutex, MutexGuard};

use headgate_memory::lock;
use headgate_net::Polled;

use super::damage::DamageReport;
use super::reading::Reading;
use crate::error::{ExchangeError, Result};
use crate::view::{SubpartitionView, ViewState};

struct State {
    reading: Reading,
    released: bool,
}

/// Serves the buffers from where they are mapped. All are there from the start, so no listener is
/// ever called. The thread that polls waits for the disk if a page is not in memory, though it was
/// asked for when the file was mapped.
pub(crate) struct KeptView {
    state: Mutex<State>,
    report: Arc<DamageReport>,
}

impl KeptView {
    pub(super) fn new(reading: Reading, report: Arc<DamageReport>) -> Self {
        Self { state: Mutex::new(State { reading, released: false }), report }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn release(&self) {
        let mut state = self.lock();
        state.released = true;
        state.reading.unmap();
    }
}

impl SubpartitionView for KeptView {
    fn poll(&self) -> Result<Option<Polled>> {
        let mut state = self.lock();
        if state.released {
            return Ok(None);
        }
        let Some(read) = state.reading.read().inspect_err(|error| self.report.note(error))? else {
            return Ok(None);
        };
        Ok(Some(Polled {
            buffer: read.buffer,
            data_type: read.data_type,
            backlog: state.reading.data_left(),
            sequence: read.sequence,
            next: state.reading.following(),
        }))
    }

    fn look(&self) -> ViewState {
        let state = self.lock();
        if state.released {
            return ViewState::Released;
        }
        ViewState::Open { next: state.reading.following(), backlog: state.reading.data_left() }
    }

    fn is_released(&self) -> bool {
        self.lock().released
    }

    fn backlog(&self) -> u32 {
        self.lock().reading.data_left()
    }

    fn waiting(&self) -> (usize, u64) {
        let state = self.lock();
        (state.reading.left(), state.reading.total_bytes())
    }

    fn consumed(&self) {
        self.release();
    }

    fn consumer_lost(&self, _cause: &ExchangeError) {
        self.release();
    }
}
