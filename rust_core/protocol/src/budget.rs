//! Counters against floods of frames that cost their sender nothing.

use thiserror::Error;

use crate::frame::Frame;

/// What is counted.
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
    /// Data buffers without payload: their credit returns at once.
    EmptyData,
    /// Events for the producing task, which waits for its own thread.
    TaskEvents,
    /// Small frames that change how a channel goes on, and heartbeats.
    Controls,
}

/// How many frames of each kind a peer may send within one window.
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
    /// For a window of one second: far above what an honest peer sends.
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

/// Counts the cheap frames of one connection. The driver decides what a window is and calls
/// [`reset`](Self::reset) at its end.
#[derive(Clone, Debug)]
pub struct Budget {
    limits: BudgetLimits,
    spent: BudgetLimits,
}

impl Budget {
    /// A budget of which nothing is spent.
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

    /// Counts one frame that arrived.
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
        // Paid for by credit, or the last frame of its channel or connection.
        // A producer has so many regions, and lends each buffer once.
        Frame::Buffer(_)
        | Frame::LentBuffer(_)
        | Frame::Return { .. }
        | Frame::Lease
        | Frame::Region { .. }
        | Frame::Error(_)
        | Frame::CloseRequest => None,
    }
}

/// A peer sent more frames of one kind within a window than it may.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("more than {limit} {counter:?} within one window")]
pub struct BudgetError {
    /// What was counted.
    pub counter: Counter,
    /// How many were allowed.
    pub limit: u32,
}
