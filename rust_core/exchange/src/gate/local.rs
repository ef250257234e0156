//! A channel within one process: reads the producer's subpartition directly, without copy and without
//! credit (spec 8.6).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use headgate_memory::lock;
use headgate_net::UpstreamMessage;
use headgate_protocol::{
    ChannelStateBuilder, CheckpointId, DataType, Next, PartitionId, Sequence, Totals,
};

use crate::error::{ExchangeError, Result};
use crate::gate::channel::{InputChannel, More, Taken, integrity, totals_of};
use crate::gate::persisting::Persisting;
use crate::gate::queue::GateQueue;
use crate::manager::PartitionListener;
use crate::metrics::Passed;
use crate::stats::{ChannelStats, Origin, Queued};
use crate::view::{DataListener, ReadablePartition, SubpartitionView};

struct ToGate {
    queue: Arc<GateQueue>,
    index: usize,
}

impl DataListener for ToGate {
    fn is_local(&self) -> bool {
        true
    }

    fn takes_pieces(&self) -> bool {
        true
    }

    fn data_available(&self) {
        self.queue.notify_non_empty(self.index);
    }

    fn priority_event(&self, sequence: Sequence) {
        self.queue.notify_priority_event(self.index, sequence);
    }
}

/// The consumer's end of a subpartition of this process.
pub(crate) struct LocalChannel {
    partition: PartitionId,
    subpartition: usize,
    /// Hash of the schema that the reader expects; zeros accept any.
    schema_hash: [u8; 32],
    name: String,
    queue: Arc<GateQueue>,
    index: usize,
    /// Set by `attach`. A channel that was refused has none, so it never releases a subpartition that
    /// another channel reads.
    view: OnceLock<Arc<dyn SubpartitionView>>,
    /// The first failure; raised after the buffers before it are read.
    failure: OnceLock<ExchangeError>,
    released: AtomicBool,
    received: Mutex<Taking>,
}

/// A buffer or event that the reader took.
#[derive(Default)]
struct Taking {
    totals: Totals,
    persisting: Persisting,
}

/// A channel that waits for its partition to be created.
pub(crate) struct LocalRequest {
    channel: Weak<LocalChannel>,
}

impl LocalRequest {
    pub(crate) fn new(channel: &Arc<LocalChannel>) -> Self {
        Self { channel: Arc::downgrade(channel) }
    }

    /// Fails the channel if its partition was not created in time.
    pub(crate) fn timed_out(&self) {
        if let Some(channel) = self.channel.upgrade()
            && channel.view.get().is_none()
        {
            channel.fail(channel.not_found("is not here"));
        }
    }
}

impl PartitionListener for LocalRequest {
    fn partition_created(&self, partition: &Arc<dyn ReadablePartition>) {
        if let Some(channel) = self.channel.upgrade()
            && let Err(error) = channel.attach(&**partition)
        {
            channel.fail(error);
        }
    }
}

impl LocalChannel {
    /// Creates a channel that is not [attached](Self::attach) yet: the gate must know the channel before
    /// the subpartition announces data.
    pub(crate) fn new(
        partition: PartitionId,
        subpartition: usize,
        schema_hash: [u8; 32],
        queue: &Arc<GateQueue>,
        index: usize,
    ) -> Self {
        Self {
            partition,
            subpartition,
            schema_hash,
            name: format!("local channel {partition}/{subpartition}"),
            queue: Arc::clone(queue),
            index,
            view: OnceLock::new(),
            failure: OnceLock::new(),
            released: AtomicBool::new(false),
            received: Mutex::default(),
        }
    }

    /// Connects the channel to its partition.
    ///
    /// # Errors
    /// Another schema than expected, no such subpartition, or one that another channel reads.
    pub(crate) fn attach(self: &Arc<Self>, partition: &dyn ReadablePartition) -> Result<()> {
        fail_point!("local.attached", text => return Err(ExchangeError::Aborted(text)));
        let written = partition.schema_hash();
        if self.schema_hash != [0; 32] && written.is_some_and(|it| it != self.schema_hash) {
            return Err(ExchangeError::SchemaRefused {
                peer: "this process".to_owned(),
                detail: "the consumer expects another schema than the producer writes".to_owned(),
            });
        }
        let listener = Arc::new(ToGate { queue: Arc::clone(&self.queue), index: self.index });
        let view = partition.create_view(self.subpartition, listener)?;
        let view = self.view.get_or_init(|| view);
        if self.released.load(Ordering::Acquire) {
            // Released meanwhile, when `release` found no view to consume.
            view.consumed();
            return Ok(());
        }
        self.queue.upstream.requested(Arc::<Self>::clone(self));
        // A notification before `view` was set found nothing to take.
        self.look_again(&**view);
        Ok(())
    }

    /// Tells the gate what waits in the subpartition.
    fn look_again(&self, view: &dyn SubpartitionView) {
        if view.availability() == Next::None {
            return;
        }
        match view.priority_event() {
            // A reader that waits for room takes nothing else.
            Some(sequence) => self.queue.notify_priority_event(self.index, sequence),
            None => self.queue.notify_non_empty(self.index),
        }
    }

    pub(crate) fn not_found(&self, what: &str) -> ExchangeError {
        ExchangeError::PartitionNotFound {
            peer: "this process".to_owned(),
            detail: format!(
                "subpartition {} of partition {} {what}",
                self.subpartition, self.partition
            ),
        }
    }

    /// Records the first failure; buffers that can be taken are read before it.
    fn fail(&self, cause: ExchangeError) {
        if !self.released.load(Ordering::Acquire) {
            self.failure.get_or_init(|| cause);
            self.queue.notify_non_empty(self.index);
        }
    }
}

impl InputChannel for LocalChannel {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_local(&self) -> bool {
        true
    }

    fn take(&self) -> Result<Option<Taken>> {
        let Some(view) = self.view.get() else {
            return self.failure.get().cloned().map_or(Ok(None), Err);
        };
        let polled = view.poll().map_err(|cause| match cause {
            ExchangeError::Aborted(text) => ExchangeError::ProducerFailed(text),
            other => other,
        })?;
        fail_point!("local.taken", text => return Err(ExchangeError::Aborted(text)));
        let Some(polled) = polled else {
            if let Some(failure) = self.failure.get() {
                return Err(failure.clone());
            }
            return if view.is_released() && !self.released.load(Ordering::Acquire) {
                let detail = "the partition was closed before its end".to_owned();
                Err(ExchangeError::PeerLost { peer: self.name.clone(), detail })
            } else {
                Ok(None)
            };
        };
        let mut received = lock(&self.received);
        let mut totals = None;
        if polled.data_type.is_buffer() {
            let plain_len = u32::try_from(polled.buffer.plain_len()).expect("within a segment");
            received.totals.add_buffer(plain_len);
            received.persisting.on_data(&polled.buffer, polled.data_type);
        } else if polled.data_type == DataType::EndOfPartition {
            let sent = totals_of(polled.buffer.as_slice())
                .map_err(|error| integrity(&self.name, &error))?;
            compare_totals(&received.totals, &sent, &self.name)?;
            totals = Some(sent);
        } else {
            received.persisting.on_event(&polled.buffer, polled.data_type, polled.sequence);
        }
        let more = if polled.next != Next::None || self.failure.get().is_some() {
            More::Something
        } else {
            More::Nothing
        };
        let (data_type, sequence) = (polled.data_type, polled.sequence);
        Ok(Some(Taken { buffer: polled.buffer, data_type, sequence, totals, more }))
    }

    /// Ignored before the channel is attached.
    fn tell(&self, message: UpstreamMessage) {
        let Some(view) = self.view.get().filter(|_| !self.released.load(Ordering::Acquire)) else {
            return;
        };
        match message {
            UpstreamMessage::TaskEvent(event) => {
                if let Err(error) = view.task_event(&event) {
                    self.fail(error);
                }
            }
            UpstreamMessage::Acknowledge => view.acknowledge(),
            UpstreamMessage::BufferSize(size) => view.set_buffer_size(size.get()),
        }
    }

    fn resume(&self) -> Result<()> {
        let not_blocked = ExchangeError::State("the channel is not blocked by a barrier");
        let view = self.view.get().ok_or(not_blocked)?;
        view.resume()?;
        // The subpartition announced nothing while it was blocked.
        self.look_again(&**view);
        Ok(())
    }

    /// Always false: a local channel announces no barriers.
    fn convert_to_priority(&self, _sequence: Sequence) -> bool {
        false
    }

    /// The data in flight waits at the producer, whose part of the checkpoint it is.
    fn start_persisting(&self, checkpoint: CheckpointId) -> Result<bool> {
        Ok(lock(&self.received).persisting.start(checkpoint, std::iter::empty()))
    }

    fn stop_persisting(&self, checkpoint: CheckpointId) {
        lock(&self.received).persisting.stop(checkpoint);
    }

    fn take_persisted(&self, checkpoint: CheckpointId) -> Option<ChannelStateBuilder> {
        lock(&self.received).persisting.take(checkpoint)
    }

    fn buffers_in_use(&self) -> usize {
        self.view.get().map_or(0, |view| view.backlog() as usize)
    }

    fn stats(&self) -> ChannelStats {
        let taken = lock(&self.received).totals;
        let is_open = !self.released.load(Ordering::Acquire);
        let view = self.view.get().filter(|_| is_open);
        let (buffers, written) = view.map_or((0, 0), |view| view.waiting());
        ChannelStats {
            name: self.name.clone(),
            origin: Origin::Local,
            queue: Queued { buffers, bytes: written.saturating_sub(taken.bytes) },
            taken: Passed { bytes: taken.bytes, buffers: taken.buffers },
            ..ChannelStats::default()
        }
    }

    fn release(&self) {
        if !self.released.swap(true, Ordering::AcqRel)
            && let Some(view) = self.view.get()
        {
            view.consumed();
        }
    }
}

/// Compares the received totals with the producer's, without rows: only the reader counts those.
pub(super) fn compare_totals(received: &Totals, sent: &Totals, channel: &str) -> Result<()> {
    if (received.bytes, received.buffers) == (sent.bytes, sent.buffers) {
        return Ok(());
    }
    let detail = format_args!(
        "{} bytes in {} buffers arrived, {} bytes in {} buffers were sent",
        received.bytes, received.buffers, sent.bytes, sent.buffers
    );
    Err(integrity(channel, &detail))
}
