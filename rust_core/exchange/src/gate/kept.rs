//! A channel whose producer has ended: reads a kept subpartition from its file, without copy and
//! without credit.
//!
//! Decision: ADR 0022.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use headgate_memory::lock;
use headgate_net::UpstreamMessage;
use headgate_protocol::{ChannelStateBuilder, CheckpointId, DataType, Sequence, Totals};

use crate::error::{ExchangeError, Result};
use crate::gate::channel::{InputChannel, More, Taken, integrity, totals_of};
use crate::gate::local::compare_totals;
use crate::gate::queue::GateQueue;
use crate::kept::Reading;
use crate::metrics::{Passed, WaitTimes};
use crate::stats::{ChannelStats, Origin, Queued};

struct State {
    reading: Reading,
    taken: Totals,
}

/// The consumer's end of a kept subpartition.
pub(crate) struct KeptChannel {
    name: String,
    /// Bytes of all its data buffers.
    bytes: u64,
    state: Mutex<State>,
    queue: Arc<GateQueue>,
    index: usize,
    waits: Arc<WaitTimes>,
    failure: OnceLock<ExchangeError>,
    released: AtomicBool,
}

impl KeptChannel {
    /// Creates a channel that reads the buffers of an encoded index from this file, or from the
    /// bytes behind the index. The file is opened when the first buffer is taken.
    ///
    /// # Errors
    /// [`ExchangeError::Integrity`]: the bytes are no index.
    pub(crate) fn new(
        kept: &[u8],
        file: Option<PathBuf>,
        queue: &Arc<GateQueue>,
        index: usize,
        waits: &Arc<WaitTimes>,
    ) -> Result<Self> {
        let name = match &file {
            Some(path) => format!("kept channel {index} of {}", path.display()),
            None => format!("kept channel {index}"),
        };
        let reading = Reading::new(&name, kept, file)?;
        Ok(Self {
            bytes: reading.total_bytes(),
            name,
            state: Mutex::new(State { reading, taken: Totals::default() }),
            queue: Arc::clone(queue),
            index,
            waits: Arc::clone(waits),
            failure: OnceLock::new(),
            released: AtomicBool::new(false),
        })
    }

    /// Announces to the gate what there is to read.
    pub(crate) fn announce(&self) {
        self.queue.notify_non_empty(self.index);
    }

    fn fail(&self, cause: ExchangeError) {
        if !self.released.load(Ordering::Acquire) {
            self.failure.get_or_init(|| cause);
            self.announce();
        }
    }
}

impl InputChannel for KeptChannel {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_local(&self) -> bool {
        true
    }

    fn take(&self) -> Result<Option<Taken>> {
        if let Some(failure) = self.failure.get() {
            return Err(failure.clone());
        }
        if self.released.load(Ordering::Acquire) {
            return Ok(None);
        }
        let mut state = lock(&self.state);
        let reads = self.waits.disk();
        let read = state.reading.read()?;
        drop(reads);
        let Some(read) = read else {
            return Err(integrity(&self.name, &"the index ends before the subpartition does"));
        };
        let mut totals = None;
        if read.data_type.is_buffer() {
            let plain_len = u32::try_from(read.buffer.plain_len()).expect("limited by the index");
            state.taken.add_buffer(plain_len);
        } else if read.data_type == DataType::EndOfPartition {
            let sent = totals_of(&read.bytes).map_err(|error| integrity(&self.name, &error))?;
            compare_totals(&state.taken, &sent, &self.name)?;
            totals = Some(sent);
        }
        let more = if totals.is_some() { More::Nothing } else { More::Something };
        let (buffer, data_type, sequence) = (read.buffer, read.data_type, read.sequence);
        Ok(Some(Taken { buffer, data_type, sequence, totals, more }))
    }

    fn tell(&self, message: UpstreamMessage) {
        if matches!(message, UpstreamMessage::TaskEvent(_)) {
            let text = "the producer of a kept partition has ended".to_owned();
            self.fail(ExchangeError::TaskEvent(text));
        }
    }

    /// Always an error: kept partitions have no barriers.
    fn resume(&self) -> Result<()> {
        Err(ExchangeError::State("the channel is not blocked by a barrier"))
    }

    /// Always false, as above.
    fn convert_to_priority(&self, _sequence: Sequence) -> bool {
        false
    }

    /// Always an error, as above.
    fn start_persisting(&self, _checkpoint: CheckpointId) -> Result<bool> {
        Err(ExchangeError::State(
            "a kept channel has no barriers: a gate that reads one takes aligned checkpoints only",
        ))
    }

    fn stop_persisting(&self, _checkpoint: CheckpointId) {}

    fn take_persisted(&self, _checkpoint: CheckpointId) -> Option<ChannelStateBuilder> {
        None
    }

    fn buffers_in_use(&self) -> usize {
        lock(&self.state).reading.left()
    }

    fn stats(&self) -> ChannelStats {
        let state = lock(&self.state);
        let is_open = !self.released.load(Ordering::Acquire);
        let left = if is_open { state.reading.left() } else { 0 };
        let waiting = if is_open { self.bytes.saturating_sub(state.taken.bytes) } else { 0 };
        ChannelStats {
            name: self.name.clone(),
            origin: Origin::Local,
            queue: Queued { buffers: left, bytes: waiting },
            taken: Passed { bytes: state.taken.bytes, buffers: state.taken.buffers },
            ..ChannelStats::default()
        }
    }

    fn release(&self) {
        self.released.store(true, Ordering::Release);
        lock(&self.state).reading.unmap();
    }
}
