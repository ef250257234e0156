//! Length-prefixed records in growing buffers (spec 4.5, 6).

use std::sync::{Arc, Mutex, MutexGuard, Weak};

use bytes::Bytes;
use headgate_memory::{BufferBuilder, PooledSegment, lock};
use headgate_record::SpanningSerializer;

use super::lane::{Lane, buffer_size};
use super::records::{Destination, Records};
use crate::copies::Copies;
use crate::error::{ExchangeError, Interrupt, Result};
use crate::partition::{OpenBuffers, ResultPartition};

/// Writes records of bytes, one behind the other, into the open buffers of all lanes.
pub struct StreamWriter {
    serializer: SpanningSerializer,
    open: Arc<Open>,
}

/// One open buffer per subpartition, and behind them the buffer that all of them read, each at its
/// own position. Buffers for one and for all are never open at the same time: that would change the
/// order of records. Empty once they are discarded.
///
/// The lock is not held during a wait. Locks of subpartitions may be taken under it, not the
/// reverse.
struct Open(Mutex<Slots>);

type Slots = Vec<Option<BufferBuilder>>;

impl Open {
    /// # Errors
    /// Why the partition ended, which discards the buffers.
    fn lock(&self, partition: &ResultPartition) -> Result<MutexGuard<'_, Slots>> {
        let open = lock(&self.0);
        if open.is_empty() {
            drop(open);
            return Err(partition.ended());
        }
        Ok(open)
    }
}

impl OpenBuffers for Open {
    fn discard(&self) {
        let open = std::mem::take(&mut *lock(&self.0));
        drop(open);
    }
}

impl StreamWriter {
    pub(super) fn new(partition: &ResultPartition, max_record_size: usize) -> Self {
        let slots = partition.num_subpartitions() + 1;
        let open = Mutex::new(std::iter::repeat_with(|| None).take(slots).collect());
        let open = Arc::new(Open(open));
        let weak: Weak<Open> = Arc::downgrade(&open);
        partition.add_open_buffers(weak);
        Self { serializer: SpanningSerializer::new(max_record_size), open }
    }

    /// Writes one record, and shows it to the readers at once if `flush`. If `waits`, a record that
    /// needs a new buffer begins only once the partition is available. Returns the buffers it
    /// completed, each once for every subpartition that gets it.
    ///
    /// # Errors
    /// A record above the limit, the failure of the partition, or what the interrupt says. If a part
    /// of the record is in a buffer then, the partition fails: readers would take the next record
    /// for the rest.
    pub(super) fn write(
        &mut self,
        partition: &ResultPartition,
        lane: Lane,
        record: Bytes,
        waits: bool,
        flush: bool,
        interrupt: Interrupt<'_>,
    ) -> Result<u64> {
        self.serializer
            .set_record(record)
            .map_err(|error| ExchangeError::of_spanning(error, "the writer"))?;
        let size = self.serializer.remaining();
        let appended = self.append(partition, lane, waits, interrupt);
        if let Err(cause) = &appended {
            let sent = size - self.serializer.remaining();
            self.serializer.clear();
            if sent > 0 {
                let text = format!("a record was cut off after {sent} of {size} bytes: {cause}");
                partition.fail(&ExchangeError::Aborted(text));
            }
        }
        let completed = appended?;
        Copies::count(&partition.shared().copies.spanning, size);
        for subpartition in &partition.subpartitions()[lane.targets(partition)] {
            subpartition.appended(1, flush);
        }
        Ok(completed)
    }

    /// Appends the serializer's record to the open buffer, and to new ones where it does not fit.
    fn append(
        &mut self,
        partition: &ResultPartition,
        lane: Lane,
        waits: bool,
        interrupt: Interrupt<'_>,
    ) -> Result<u64> {
        let slot = lane.slot(partition);
        let mut open = self.open.lock(partition)?;
        if waits && open[slot].is_none() {
            drop(open);
            partition.wait_for_room(interrupt)?;
            open = self.open.lock(partition)?;
        }
        let mut completed = end_others(&mut open, partition, lane);
        let mut free = None;
        while self.serializer.has_data() {
            let Some(builder) = &mut open[slot] else {
                drop(open);
                let request = || partition.segments().request(lane.subpartition(), interrupt);
                let segment = free.take().map_or_else(request, Ok)?;
                open = self.open.lock(partition)?;
                open[slot] = Some(begin(segment, partition, lane, self.serializer.remaining()));
                continue;
            };
            builder.append_with(|target| self.serializer.copy_to(target).0);
            builder.commit();
            if !builder.is_full() {
                continue;
            }
            let (rest, capacity) = (self.serializer.remaining(), builder.capacity());
            if rest > 0 && capacity < partition.segments().segment_size() {
                drop(open);
                free = partition.segments().try_request(lane.subpartition())?;
                open = self.open.lock(partition)?;
                if free.is_none() {
                    // A larger buffer than asked for is better than a wait within a record.
                    if let Some(builder) = &mut open[slot] {
                        builder.trim(capacity + rest);
                    }
                    continue;
                }
            }
            completed += end(&mut open, partition, lane);
        }
        Ok(completed)
    }

    /// Ends all open buffers. Returns how many this completed.
    pub(super) fn end_buffers(&self, partition: &ResultPartition) -> u64 {
        let mut open = lock(&self.open.0);
        let unicast = (0..partition.num_subpartitions()).map(Lane::One);
        unicast.chain([Lane::All]).map(|lane| end(&mut open, partition, lane)).sum()
    }
}

impl Records for StreamWriter {
    type Record<'a> = &'a Bytes;

    fn emit(
        &mut self,
        to: &mut Destination,
        lane: Option<Lane>,
        record: &Bytes,
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let lane = match lane.or_else(|| to.lane_by_load()) {
            Some(lane) => lane,
            None => {
                let selection = to.selector.select_record(to.num_subpartitions())?;
                Lane::of(selection).expect("a record of bytes is one row")
            }
        };
        let partition = &to.partition;
        if !lane.is_wanted(partition) {
            return partition.check();
        }
        let (bytes, flush) = (record.len() as u64, to.flush_always);
        let completed = self.write(partition, lane, record.clone(), true, flush, interrupt)?;
        if let Some(timed) = &to.timed {
            timed.written();
        }
        let targets = lane.targets(partition).len() as u64;
        to.counters.add(targets, targets * bytes, completed);
        Ok(())
    }

    fn end_all(&mut self, to: &Destination) {
        let ended = self.end_buffers(&to.partition);
        to.counters.add(0, 0, ended);
    }

    fn flush(&self, to: &Destination) {
        flush(&to.partition);
    }

    fn timed_flush(&self, to: &Destination) -> Box<dyn Fn() -> bool + Send + Sync> {
        let partition = Arc::clone(&to.partition);
        Box::new(move || {
            flush(&partition);
            false
        })
    }
}

fn flush(partition: &ResultPartition) {
    for subpartition in partition.subpartitions() {
        subpartition.flush();
    }
}

/// Queues a new buffer for the `rest` of a record.
fn begin(
    segment: PooledSegment,
    partition: &ResultPartition,
    lane: Lane,
    rest: usize,
) -> BufferBuilder {
    let targets = &partition.subpartitions()[lane.targets(partition)];
    let mut builder = BufferBuilder::new(segment);
    // As large as the consumers ask for, but not smaller than the first record.
    builder.trim(buffer_size(targets).max(rest));
    let consumer = builder.consumer().expect("a new builder has its consumer");
    for subpartition in targets {
        subpartition.add_growing(consumer.copy());
    }
    builder
}

/// Ends the open buffers of the other kind first, so that records keep their order.
fn end_others(open: &mut [Option<BufferBuilder>], partition: &ResultPartition, lane: Lane) -> u64 {
    match lane {
        Lane::One(_) => end(open, partition, Lane::All),
        Lane::All => {
            let unicast = (0..partition.num_subpartitions()).map(Lane::One);
            unicast.map(|lane| end(open, partition, lane)).sum()
        }
    }
}

fn end(open: &mut [Option<BufferBuilder>], partition: &ResultPartition, lane: Lane) -> u64 {
    let Some(builder) = open.get_mut(lane.slot(partition)).and_then(Option::take) else {
        return 0;
    };
    let targets = lane.targets(partition);
    partition.buffers().finish_growing(builder, targets.clone());
    targets.len() as u64
}
