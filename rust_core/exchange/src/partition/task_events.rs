//! Events from the consumers to the task that produces (spec 8.4, 11).
//!
//! The I/O thread and readers publish them here. The writer's own thread takes them and calls their
//! handlers, so a handler never runs on the I/O thread, nor at the same time as the writer.

use std::collections::{HashSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use headgate_memory::lock;
use headgate_record::Event;

use crate::error::{ExchangeError, Result};

/// Limit of events that wait for the writer.
const MAX_PENDING: usize = 1024;
/// Limit of the bytes of their bodies. A single event may be larger.
const MAX_PENDING_BYTES: usize = 4 << 20;

/// An event from a consumer to the task that produces for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskEvent {
    /// The subpartition whose consumer sent it.
    pub subpartition: usize,
    /// The name that its handler subscribed to.
    pub name: String,
    /// The content.
    pub body: Bytes,
}

#[derive(Default)]
struct State {
    names: HashSet<String>,
    pending: VecDeque<TaskEvent>,
    /// Bytes of the bodies in `pending`.
    bytes: usize,
}

/// The task events of one partition.
#[derive(Default)]
pub struct TaskEvents {
    state: Mutex<State>,
    /// True while `pending` is not empty, to be read without the lock. Changes under the lock only.
    some: AtomicBool,
}

impl TaskEvents {
    /// Takes events of these names from the start.
    pub(super) fn taking(names: &[String]) -> Self {
        let names = names.iter().cloned().collect();
        Self { state: Mutex::new(State { names, ..State::default() }), ..Self::default() }
    }

    /// Takes events of this name from now on; consumers that sent one before got an error.
    ///
    /// # Errors
    /// When it takes them already.
    pub fn subscribe(&self, name: &str) -> Result<()> {
        if lock(&self.state).names.insert(name.to_owned()) {
            Ok(())
        } else {
            Err(ExchangeError::State("this task event has a handler already"))
        }
    }

    /// Queues an encoded event for the writer's thread.
    pub(super) fn publish(&self, subpartition: usize, event: &[u8]) -> Result<()> {
        let refused = |detail: String| Err(ExchangeError::TaskEvent(detail));
        let (name, body) = match Event::decode(event) {
            Ok(Event::Custom { name, body }) => (name, body),
            Ok(other) => return refused(format!("{other:?} is no task event")),
            Err(error) => return refused(error.to_string()),
        };
        let mut state = lock(&self.state);
        if !state.names.contains(&name) {
            return refused(format!("the producer has no handler for task events named {name:?}"));
        }
        let full = state.bytes.saturating_add(body.len()) > MAX_PENDING_BYTES;
        if state.pending.len() >= MAX_PENDING || (full && !state.pending.is_empty()) {
            let (count, bytes) = (state.pending.len(), state.bytes);
            return refused(format!(
                "{count} task events of {bytes} bytes wait for the producer already; \
                 the limits are {MAX_PENDING} events and {MAX_PENDING_BYTES} bytes"
            ));
        }
        state.bytes += body.len();
        state.pending.push_back(TaskEvent { subpartition, name, body });
        self.some.store(true, Ordering::Release);
        Ok(())
    }

    /// True if [`take`](Self::take) would return an event; takes no lock.
    pub fn has_pending(&self) -> bool {
        self.some.load(Ordering::Acquire)
    }

    /// Takes the oldest event.
    pub fn take(&self) -> Option<TaskEvent> {
        let mut state = lock(&self.state);
        let event = state.pending.pop_front()?;
        state.bytes -= event.body.len();
        self.some.store(!state.pending.is_empty(), Ordering::Release);
        Some(event)
    }
}
