//! The channel state of a task's checkpoints: what may be added to it, and when it is complete (spec
//! 10.7).

use std::collections::BTreeMap;

use thiserror::Error;

use super::effect::CheckpointFailureReason;
use crate::CheckpointId;

/// Maximum number of checkpoints whose results were not taken.
pub const MAX_CHANNEL_STATES: usize = 1000;

/// Keeps account of the channel state that a task writes. The driver has the buffers: it frees each
/// one after it is written, or at once if it must not be.
///
/// Only the newest started checkpoint is written. It subsumes older ones that are incomplete.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct ChannelStateWriter {
    /// Started checkpoints whose results were not taken. Invariant: at most
    /// [`MAX_CHANNEL_STATES`], and none but the newest is incomplete.
    started: BTreeMap<CheckpointId, Progress>,
    /// Newest checkpoint that was started or aborted.
    latest: Option<CheckpointId>,
    /// Newest checkpoint that was aborted, or whose failure was taken, with the cause. Data of it and
    /// of older ones is discarded.
    aborted: Option<(CheckpointId, CheckpointFailureReason)>,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Progress {
    /// True for each part that is finished; both for a complete checkpoint.
    Writing {
        input: bool,
        output: bool,
    },
    Failed(CheckpointFailureReason),
}

/// The parts of a task's channel state.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ChannelStatePart {
    /// Data that its input channels have received and not processed.
    Input,
    /// Data that its outputs have not sent.
    Output,
}

impl ChannelStateWriter {
    /// Starts a checkpoint. One that was aborted, or that is older than another, fails at once.
    pub fn start(&mut self, checkpoint: CheckpointId) -> Result<(), ChannelStateWriterError> {
        let aborted = self.aborted.filter(|(aborted, _)| *aborted == checkpoint);
        let was_taken = Some(checkpoint) == self.latest && aborted.is_none();
        if self.started.contains_key(&checkpoint) || was_taken {
            return Err(ChannelStateWriterError::AlreadyStarted { checkpoint });
        }
        if self.started.len() >= MAX_CHANNEL_STATES {
            return Err(ChannelStateWriterError::TooMany { checkpoint });
        }
        let progress = match aborted {
            Some((_, reason)) => Progress::Failed(reason),
            None if Some(checkpoint) < self.latest => {
                Progress::Failed(CheckpointFailureReason::Subsumed)
            }
            None => Progress::Writing { input: false, output: false },
        };
        self.fail_incomplete_before(checkpoint);
        self.started.insert(checkpoint, progress);
        self.latest = self.latest.max(Some(checkpoint));
        Ok(())
    }

    /// Returns true if data of a part must be written, false if it must be discarded because the
    /// checkpoint failed.
    pub fn add(
        &self,
        checkpoint: CheckpointId,
        part: ChannelStatePart,
    ) -> Result<bool, ChannelStateWriterError> {
        match self.started.get(&checkpoint) {
            Some(progress) if progress.has_finished(part) => {
                Err(ChannelStateWriterError::Finished { checkpoint, part })
            }
            Some(progress) => Ok(matches!(progress, Progress::Writing { .. })),
            None => self.discards(checkpoint).map(|()| false),
        }
    }

    /// Ends a part. Ignored if the checkpoint failed, or if the part has ended already.
    pub fn finish(
        &mut self,
        checkpoint: CheckpointId,
        part: ChannelStatePart,
    ) -> Result<(), ChannelStateWriterError> {
        match self.started.get_mut(&checkpoint) {
            Some(Progress::Writing { input, output }) => {
                match part {
                    ChannelStatePart::Input => *input = true,
                    ChannelStatePart::Output => *output = true,
                }
                Ok(())
            }
            Some(Progress::Failed(_)) => Ok(()),
            None => self.discards(checkpoint),
        }
    }

    /// Aborts a checkpoint, which may not have started, and older ones that are incomplete. With
    /// `cleanup` nobody takes its result.
    pub fn abort(
        &mut self,
        checkpoint: CheckpointId,
        reason: CheckpointFailureReason,
        cleanup: bool,
    ) {
        self.latest = self.latest.max(Some(checkpoint));
        self.note_aborted(checkpoint, reason);
        self.fail_incomplete_before(checkpoint);
        if cleanup {
            self.started.remove(&checkpoint);
        } else if let Some(progress) = self.started.get_mut(&checkpoint) {
            *progress = Progress::Failed(reason);
        }
    }

    /// Takes the result of a checkpoint: that it is complete, or why it failed; `None` while it is
    /// being written.
    pub fn take_result(
        &mut self,
        checkpoint: CheckpointId,
    ) -> Result<Option<Result<(), CheckpointFailureReason>>, ChannelStateWriterError> {
        let result = match self.started.get(&checkpoint) {
            None => return Err(ChannelStateWriterError::NotStarted { checkpoint }),
            Some(Progress::Failed(reason)) => Err(*reason),
            Some(Progress::Writing { input: true, output: true }) => Ok(()),
            Some(Progress::Writing { .. }) => return Ok(None),
        };
        self.started.remove(&checkpoint);
        if let Err(reason) = result {
            self.note_aborted(checkpoint, reason);
        }
        Ok(Some(result))
    }

    /// Number of checkpoints whose results were not taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.started.len()
    }

    /// Returns true if every result was taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.started.is_empty()
    }

    fn note_aborted(&mut self, checkpoint: CheckpointId, reason: CheckpointFailureReason) {
        if self.aborted.is_none_or(|(aborted, _)| aborted < checkpoint) {
            self.aborted = Some((checkpoint, reason));
        }
    }

    fn fail_incomplete_before(&mut self, checkpoint: CheckpointId) {
        for (_, progress) in self.started.range_mut(..checkpoint) {
            if !progress.is_complete() && matches!(progress, Progress::Writing { .. }) {
                *progress = Progress::Failed(CheckpointFailureReason::Subsumed);
            }
        }
    }

    /// Checks that data of a checkpoint that is not in `started` may be discarded.
    fn discards(&self, checkpoint: CheckpointId) -> Result<(), ChannelStateWriterError> {
        let failed = self.aborted.is_some_and(|(aborted, _)| checkpoint <= aborted);
        if failed { Ok(()) } else { Err(ChannelStateWriterError::NotStarted { checkpoint }) }
    }
}

impl Progress {
    const fn has_finished(self, part: ChannelStatePart) -> bool {
        match (self, part) {
            (Self::Writing { input, .. }, ChannelStatePart::Input) => input,
            (Self::Writing { output, .. }, ChannelStatePart::Output) => output,
            (Self::Failed(_), _) => false,
        }
    }

    const fn is_complete(self) -> bool {
        matches!(self, Self::Writing { input: true, output: true })
    }
}

/// A wrong call.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum ChannelStateWriterError {
    /// A checkpoint was started twice.
    #[error("the channel state of checkpoint {checkpoint} was started before")]
    AlreadyStarted {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// Data was added to a finished part.
    #[error("data was added to the {part:?} state of checkpoint {checkpoint} after its end")]
    Finished {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The part.
        part: ChannelStatePart,
    },
    /// The checkpoint was not started, or its result was taken.
    #[error(
        "the channel state of checkpoint {checkpoint} was not started, or its result was taken"
    )]
    NotStarted {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// Too many results were not taken.
    #[error(
        "checkpoint {checkpoint} cannot start: the results of {MAX_CHANNEL_STATES} checkpoints \
         were not taken"
    )]
    TooMany {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
}
