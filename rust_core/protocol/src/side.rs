//! The two ends of a connection.

/// The end of a connection that receives; it decides which frames may arrive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// Receives buffers, backlogs and errors.
    Consumer,
    /// Receives requests, cancels, credits and task events.
    Producer,
}
