//! Limits on frames that cost their sender nothing.

use thiserror::Error;

use crate::frame::Frame;

/// A kind of cheap frame that is counted.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Counter {
    /// Partition requests.
    Opens,
    /// Cancelled partition requests.
    Cancels,
    /// Credit announcements, however large.
    Credits,
    /// Events: they need no credit.
    Events,
    /// Data buffers without payload, whose credit returns at once.
    EmptyData,
    /// Events for the producing task, which are queued until its thread handles them.
    TaskEvents,
    /// Small control frames of a channel, and heartbeats.
    Controls,
}

/// The number of frames of each kind that a peer may send within one window.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BudgetLimits {
    /// Limit of [`Counter::Opens`].
    pub opens: u32,
    /// Limit of [`Counter::Cancels`].
    pub cancels: u32,
    /// Limit of [`Counter::Credits`].
    pub credits: u32,
    /// Limit of [`Counter::Events`].
    pub events: u32,
    /// Limit of [`Counter::EmptyData`].
    pub empty_data: u32,
    /// Limit of [`Counter::TaskEvents`].
    pub task_events: u32,
    /// Limit of [`Counter::Controls`].
    pub controls: u32,
}

impl Default for BudgetLimits {
    /// Limits for a window of one second, far above an honest peer's frames.
    fn default() -> Self {
        Self {
            opens: 65_536,
            cancels: 65_536,
            credits: 1_048_576,
            events: 65_536,
            empty_data: 4_096,
            task_events: 65_536,
            controls: 65_536,
        }
    }
}

/// Counts the cheap frames of one connection. The driver calls [`reset`](Self::reset) at the end of
/// each window.
#[derive(Clone, Debug)]
pub struct Budget {
    limits: BudgetLimits,
    spent: BudgetLimits,
}

impl Budget {
    /// Creates an unspent budget.
    #[must_use]
    pub const fn new(limits: BudgetLimits) -> Self {
        let spent = BudgetLimits {
            opens: 0,
            cancels: 0,
            credits: 0,
            events: 0,
            empty_data: 0,
            task_events: 0,
            controls: 0,
        };
        Self { limits, spent }
    }

    /// Counts an arrived frame.
    pub fn charge(&mut self, frame: &Frame) -> Result<(), BudgetError> {
        let Some(counter) = counter_of(frame) else {
            return Ok(());
        };
        let (spent, limit) = match counter {
            Counter::Opens => (&mut self.spent.opens, self.limits.opens),
            Counter::Cancels => (&mut self.spent.cancels, self.limits.cancels),
            Counter::Credits => (&mut self.spent.credits, self.limits.credits),
            Counter::Events => (&mut self.spent.events, self.limits.events),
            Counter::EmptyData => (&mut self.spent.empty_data, self.limits.empty_data),
            Counter::TaskEvents => (&mut self.spent.task_events, self.limits.task_events),
            Counter::Controls => (&mut self.spent.controls, self.limits.controls),
        };
        if *spent >= limit {
            return Err(BudgetError { counter, limit });
        }
        *spent += 1;
        Ok(())
    }

    /// Starts the next window.
    pub const fn reset(&mut self) {
        *self = Self::new(self.limits);
    }
}

fn counter_of(frame: &Frame) -> Option<Counter> {
    match frame {
        Frame::Buffer(header) if header.data_type.is_event() => Some(Counter::Events),
        Frame::Buffer(header) if header.size == 0 => Some(Counter::EmptyData),
        Frame::PartitionRequest(_) => Some(Counter::Opens),
        Frame::CancelPartitionRequest { .. } => Some(Counter::Cancels),
        Frame::AddCredit { .. } => Some(Counter::Credits),
        Frame::TaskEvent(_) => Some(Counter::TaskEvents),
        Frame::ResumeConsumption { .. }
        | Frame::AckAllUserRecordsProcessed { .. }
        | Frame::BacklogAnnouncement { .. }
        | Frame::NewBufferSize { .. }
        | Frame::Heartbeat => Some(Counter::Controls),
        // Limited otherwise: by credit, by the number of regions and loans, or as the last frame of
        // its channel or connection.
        Frame::Buffer(_)
        | Frame::LentBuffer(_)
        | Frame::Return { .. }
        | Frame::Lease
        | Frame::Region { .. }
        | Frame::Error(_)
        | Frame::CloseRequest => None,
    }
}

/// A peer sent too many frames of one kind within a window.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("more than {limit} {counter:?} within one window")]
pub struct BudgetError {
    /// The kind of frame.
    pub counter: Counter,
    /// The allowed number.
    pub limit: u32,
}
