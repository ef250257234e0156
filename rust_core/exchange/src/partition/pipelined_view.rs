//! The one reader of a pipelined subpartition.

use std::sync::Arc;

use headgate_net::Polled;
use headgate_protocol::Sequence;

use crate::error::{ExchangeError, Result};
use crate::subpartition::Subpartition;
use crate::view::{SubpartitionView, ViewState, ViewedPartition};

/// Reads one subpartition and reports to its partition.
pub(super) struct PipelinedView {
    partition: Arc<dyn ViewedPartition>,
    subpartition: Arc<Subpartition>,
    index: usize,
}

impl PipelinedView {
    pub(super) fn new(
        partition: Arc<dyn ViewedPartition>,
        subpartition: Arc<Subpartition>,
        index: usize,
    ) -> Self {
        Self { partition, subpartition, index }
    }
}

impl SubpartitionView for PipelinedView {
    fn poll(&self) -> Result<Option<Polled>> {
        self.subpartition.poll()
    }

    fn look(&self) -> ViewState {
        self.subpartition.look(true)
    }

    fn priority_event(&self) -> Option<Sequence> {
        self.subpartition.priority_event()
    }

    fn is_released(&self) -> bool {
        self.subpartition.is_released()
    }

    fn backlog(&self) -> u32 {
        self.subpartition.backlog()
    }

    fn waiting(&self) -> (usize, u64) {
        self.subpartition.waiting()
    }

    fn resume(&self) -> Result<()> {
        self.subpartition.resume()
    }

    fn give_empty_buffers(&self) {
        self.subpartition.give_empty_buffers();
    }

    fn set_buffer_size(&self, size: u32) {
        self.subpartition.set_buffer_size(size);
    }

    fn set_unread(&self, buffers: u32) {
        self.subpartition.set_unread(buffers);
    }

    fn acknowledge(&self) {
        self.partition.acknowledged(self.index);
    }

    fn task_event(&self, event: &[u8]) -> Result<()> {
        self.partition.publish_task_event(self.index, event)
    }

    fn consumed(&self) {
        self.partition.consumed(self.index);
    }

    fn consumer_lost(&self, cause: &ExchangeError) {
        self.partition.consumer_lost(self.index, cause);
    }
}
