//! The input of an iteration, read one superstep at a time.

use crate::error::Result;

/// An input whose channels stop at the end of each superstep.
pub trait SuperstepInput {
    /// Stops a channel that reached the end of the superstep: only its priority events are read
    /// before [`start_next_superstep`](Self::start_next_superstep).
    fn end_superstep(&self, channel: usize);

    /// Returns true if no channel can be added and every channel has ended or reached the end of the
    /// superstep, at least one of them the latter.
    fn has_reached_end_of_superstep(&self) -> bool;

    /// Reads all channels again.
    ///
    /// # Errors
    /// [`ExchangeError::State`](crate::ExchangeError::State) before the end of the superstep.
    fn start_next_superstep(&self) -> Result<()>;
}
