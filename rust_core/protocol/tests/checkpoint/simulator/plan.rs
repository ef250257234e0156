//! A job as a seed decides it, and the cases that the schedules have seen.

use std::collections::BTreeMap;

use fastrand::Rng;

/// How often the schedules saw what they are about.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) completed: usize,
    pub(super) with_input_state: usize,
    pub(super) with_output_state: usize,
    pub(super) with_finished_tasks: usize,
    pub(super) aborted: BTreeMap<String, usize>,
    pub(super) converted: usize,
    pub(super) timed_out_outputs: usize,
    pub(super) overtaken_starts: usize,
    pub(super) restarts: usize,
    pub(super) restarts_with_channel_state: usize,
    pub(super) rescaled_with_channel_state: usize,
}

/// A job as a seed decides it.
#[derive(Debug)]
pub(super) struct Plan {
    /// Splits of the source.
    pub(super) splits: usize,
    /// Records of each split.
    pub(super) records: u32,
    /// Data buffers that a subpartition takes before its task waits.
    pub(super) capacity: usize,
    pub(super) checkpoints_after_finish: bool,
    /// How often the tasks of each stage read, from 1 for slow ones.
    pub(super) speed: [u8; 3],
}

impl Seen {
    /// Returns true if each situation came up.
    pub(super) fn has_seen_all(&self) -> bool {
        let situations = [
            self.completed,
            self.with_input_state,
            self.with_output_state,
            self.with_finished_tasks,
            self.aborted.len(),
            self.converted,
            self.timed_out_outputs,
            self.overtaken_starts,
            self.restarts,
            self.restarts_with_channel_state,
            self.rescaled_with_channel_state,
        ];
        situations.iter().all(|times| *times > 0)
    }
}

impl Plan {
    pub(super) fn new(rng: &mut Rng) -> Self {
        Self {
            splits: rng.usize(1..=3),
            records: rng.u32(4..=24),
            capacity: rng.usize(1..=4),
            checkpoints_after_finish: rng.u8(..) < 200,
            speed: std::array::from_fn(|_| rng.u8(1..=6)),
        }
    }
}
