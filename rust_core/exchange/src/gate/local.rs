//! A channel within one process: reads the producer's subpartition, no copy and no credit (spec 8.6).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use headgate_protocol::{DataType, Next, Sequence, Totals};

use crate::error::{ExchangeError, Result};
use crate::gate::{GateQueue, Taken};
use crate::lock::lock;
use crate::partition::ResultPartition;
use crate::view::{DataListener, SubpartitionView};

struct ToGate {
    queue: Arc<GateQueue>,
    index: usize,
}

impl DataListener for ToGate {
    fn data_available(&self) {
        self.queue.notify_non_empty(self.index);
    }

    fn priority_event(&self, sequence: Sequence) {
        self.queue.notify_priority_event(self.index, sequence);
    }
}

/// The consumer's end of a subpartition of this process.
pub(crate) struct LocalChannel {
    partition: Arc<ResultPartition>,
    subpartition: usize,
    name: String,
    /// Set when attached: a channel that was refused never releases what another one reads.
    view: OnceLock<Arc<dyn SubpartitionView>>,
    released: AtomicBool,
    received: Mutex<Totals>,
}

impl LocalChannel {
    /// Not attached yet: the gate must know the channel before data is announced.
    pub(crate) fn new(partition: Arc<ResultPartition>, subpartition: usize) -> Self {
        let name = format!("local channel {}/{subpartition}", partition.id());
        Self {
            partition,
            subpartition,
            name,
            view: OnceLock::new(),
            released: AtomicBool::new(false),
            received: Mutex::default(),
        }
    }

    pub(crate) fn attach(&self, queue: &Arc<GateQueue>, index: usize) -> Result<()> {
        fail_point!("local.attached", error => return Err(error));
        let listener = Arc::new(ToGate { queue: Arc::clone(queue), index });
        let view = self.partition.create_view(self.subpartition, listener)?;
        // What came before the view was known here found nothing to take: looked at again.
        if self.view.get_or_init(|| view).availability() != Next::None {
            queue.notify_non_empty(index);
        }
        Ok(())
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn take(&self) -> Result<Option<Taken>> {
        let Some(view) = self.view.get() else {
            return Ok(None);
        };
        let polled = view.poll().map_err(|cause| match cause {
            ExchangeError::Aborted(text) => ExchangeError::ProducerFailed(text),
            other => other,
        })?;
        fail_point!("local.taken", error => return Err(error));
        let Some(polled) = polled else {
            return if view.is_released() && !self.released.load(Ordering::Acquire) {
                Err(ExchangeError::PeerLost {
                    peer: self.name.clone(),
                    detail: "the partition was closed before its end".to_owned(),
                })
            } else {
                Ok(None)
            };
        };
        let mut received = lock(&self.received);
        let mut totals = None;
        if polled.data_type.is_buffer() {
            received.add_buffer(u32::try_from(polled.buffer.len()).expect("within a segment"));
        } else if polled.data_type == DataType::EndOfPartition {
            let sent = super::remote::totals_of(polled.buffer.as_slice(), &self.name)?;
            super::remote::compare_totals(&received, &sent, &self.name)?;
            totals = Some(sent);
        }
        Ok(Some(Taken {
            buffer: polled.buffer,
            data_type: polled.data_type,
            sequence: polled.sequence,
            totals,
            more: polled.next != Next::None,
        }))
    }

    /// After its end, or instead of it: the producer need not keep anything for this channel.
    pub(crate) fn release(&self) {
        if let Some(view) = self.view.get()
            && !self.released.swap(true, Ordering::AcqRel)
        {
            view.consumed();
        }
    }
}
