//! Partitions served to other processes: what a connection asks of the [`PartitionManager`] and of a view.
//!
//! Decision: ADR 0046.

use std::sync::Arc;

use headgate_net::{
    Available, ConnectionError, DataNotifier, PartitionNotifier, Partitions, Polled, Reason,
    Refusal, View,
};
use headgate_protocol::{PartitionId, PartitionRequest};

use crate::connection_error::refusal_of;
use crate::manager::{Lookup, PartitionListener, PartitionManager};
use crate::view::{DataListener, ReadablePartition, SubpartitionView, ViewState};

impl DataListener for DataNotifier {
    fn takes_pieces(&self) -> bool {
        self.takes_pieces()
    }

    fn data_available(&self) {
        self.data_available();
    }
}

impl PartitionListener for PartitionNotifier {
    fn partition_created(&self, _partition: &Arc<dyn ReadablePartition>) {
        self.partition_created();
    }
}

impl Partitions for PartitionManager {
    fn open(
        &self,
        request: &PartitionRequest,
        data: DataNotifier,
        appears: &Arc<PartitionNotifier>,
    ) -> Result<Option<Arc<dyn View>>, Refusal> {
        let listener: Arc<dyn PartitionListener> = Arc::<PartitionNotifier>::clone(appears);
        let partition = match self.find_or_wait(request.partition, &listener) {
            Lookup::Found(partition) => partition,
            Lookup::Waiting => return Ok(None),
            Lookup::Gone => {
                let text = format!("partition {} was released", request.partition);
                return Err(Refusal { reason: Reason::PartitionNotFound, text });
            }
        };
        let expected = (request.schema_hash != [0; 32]).then_some(request.schema_hash);
        if let (Some(written), Some(expected)) = (partition.schema_hash(), expected)
            && written != expected
        {
            let text = "the consumer expects another schema than the producer writes".to_owned();
            return Err(Refusal { reason: Reason::SchemaMismatch, text });
        }
        fail_point!("partition.found", text => return Err(Refusal { reason: Reason::ProducerFailed, text }));
        let view = partition.create_view(request.subpartition as usize, Arc::new(data));
        let view = view.map_err(|error| refusal_of(&error))?;
        if request.initial_credit == 0 {
            view.give_empty_buffers();
        }
        Ok(Some(Arc::new(Served(view))))
    }

    fn forget(&self, id: PartitionId, appears: &Arc<PartitionNotifier>) {
        let listener: Arc<dyn PartitionListener> = Arc::<PartitionNotifier>::clone(appears);
        self.forget(id, &listener);
    }
}

/// A view whose consumer is in another process.
struct Served(Arc<dyn SubpartitionView>);

impl View for Served {
    fn poll(&self) -> Result<Option<Polled>, Refusal> {
        self.0.poll().map_err(|error| refusal_of(&error))
    }

    fn look(&self) -> Result<Available, Refusal> {
        match self.0.look() {
            ViewState::Open { next, backlog } => Ok(Available { next, backlog }),
            ViewState::Released => {
                let text = "the producer closed its partition before the end".to_owned();
                Err(Refusal { reason: Reason::ProducerFailed, text })
            }
            ViewState::Failed(cause) => Err(refusal_of(&cause)),
        }
    }

    fn resume(&self) -> Result<(), String> {
        self.0.resume().map_err(|error| error.to_string())
    }

    fn set_buffer_size(&self, size: u32) {
        self.0.set_buffer_size(size);
    }

    fn set_unread(&self, buffers: u32) {
        self.0.set_unread(buffers);
    }

    fn acknowledge(&self) {
        self.0.acknowledge();
    }

    fn task_event(&self, event: &[u8]) -> Result<(), Refusal> {
        self.0.task_event(event).map_err(|error| refusal_of(&error))
    }

    fn consumed(&self) {
        self.0.consumed();
    }

    fn consumer_lost(&self, cause: &ConnectionError) {
        self.0.consumer_lost(&cause.clone().into());
    }
}
