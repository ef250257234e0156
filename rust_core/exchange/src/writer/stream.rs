//! Length-prefixed records in growing buffers (spec 4.5, 6).

use bytes::Bytes;
use headgate_memory::BufferBuilder;
use headgate_record::SpanningSerializer;

use super::lane::{Lane, buffer_size};
use crate::copies::Copies;
use crate::error::{ExchangeError, Interrupt, Result};
use crate::partition::ResultPartition;

/// Writes records into the open buffers of all lanes.
pub(super) struct StreamWriter {
    serializer: SpanningSerializer,
    /// One open buffer per subpartition, and behind them the buffer that all of them read, each at
    /// its own position. Buffers for one and for all are never open at the same time: that would
    /// change the order of records.
    open: Vec<Option<BufferBuilder>>,
}

impl StreamWriter {
    pub(super) fn new(num_subpartitions: usize, max_record_size: usize) -> Self {
        let serializer = SpanningSerializer::new(max_record_size);
        let slots = num_subpartitions + 1;
        Self { serializer, open: std::iter::repeat_with(|| None).take(slots).collect() }
    }

    /// Writes one record that stands for `rows` rows, and shows it to the readers at once if
    /// `flush`. Returns the buffers it completed, each once for every subpartition that gets it.
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
        rows: u64,
        flush: bool,
        interrupt: Interrupt<'_>,
    ) -> Result<u64> {
        self.serializer
            .set_record(record)
            .map_err(|error| ExchangeError::of_spanning(error, "the writer"))?;
        let size = self.serializer.remaining();
        Copies::count(&partition.shared().copies.spanning, size);
        let appended = self.append(partition, lane, interrupt);
        if let Err(cause) = &appended {
            let sent = size - self.serializer.remaining();
            self.serializer.clear();
            if sent > 0 {
                let text = format!("a record was cut off after {sent} of {size} bytes: {cause}");
                partition.fail(&ExchangeError::Aborted(text));
            }
        }
        let completed = appended?;
        for subpartition in &partition.subpartitions()[lane.targets(partition)] {
            subpartition.appended(rows, flush);
        }
        Ok(completed)
    }

    /// Appends the serializer's record to the open buffer, and to new ones where it does not fit.
    fn append(
        &mut self,
        partition: &ResultPartition,
        lane: Lane,
        interrupt: Interrupt<'_>,
    ) -> Result<u64> {
        let mut completed = self.end_others(partition, lane);
        let range = lane.targets(partition);
        let targets = &partition.subpartitions()[range.clone()];
        let open = &mut self.open[lane.slot(partition)];
        let mut free = None;
        while self.serializer.has_data() {
            let builder = match open {
                Some(builder) => builder,
                None => {
                    let request = || partition.segments().request(lane.subpartition(), interrupt);
                    let mut builder = BufferBuilder::new(free.take().map_or_else(request, Ok)?);
                    // As large as the consumers ask for, but not smaller than the first record.
                    let wish = buffer_size(targets);
                    builder.trim(wish.max(self.serializer.remaining()));
                    let consumer = builder.consumer().expect("a new builder has its consumer");
                    for subpartition in targets {
                        subpartition.add_growing(consumer.copy());
                    }
                    open.insert(builder)
                }
            };
            builder.append_with(|target| self.serializer.copy_to(target).0);
            builder.commit();
            if builder.is_full() {
                let (rest, capacity) = (self.serializer.remaining(), builder.capacity());
                if rest > 0 && capacity < partition.segments().segment_size() {
                    free = partition.segments().try_request(lane.subpartition())?;
                    if free.is_none() {
                        // A larger buffer than asked for is better than a wait within a record.
                        builder.trim(capacity + rest);
                        continue;
                    }
                }
            }
            if let Some(full) = open.take_if(|builder| builder.is_full()) {
                partition.buffers().finish_growing(full, range.clone());
                completed += targets.len() as u64;
            }
        }
        Ok(completed)
    }

    /// True if the lane has a buffer that a record can begin in.
    pub(super) fn is_open(&self, partition: &ResultPartition, lane: Lane) -> bool {
        self.open[lane.slot(partition)].is_some()
    }

    /// Ends all open buffers, so that an event can follow them. Returns how many this completed.
    pub(super) fn end_all(&mut self, partition: &ResultPartition) -> u64 {
        let unicast = (0..partition.num_subpartitions()).map(Lane::One);
        unicast.chain([Lane::All]).map(|lane| self.end(partition, lane)).sum()
    }

    /// Ends the open buffers of the other kind first, so that records keep their order.
    fn end_others(&mut self, partition: &ResultPartition, lane: Lane) -> u64 {
        match lane {
            Lane::One(_) => self.end(partition, Lane::All),
            Lane::All => {
                let unicast = (0..partition.num_subpartitions()).map(Lane::One);
                unicast.map(|lane| self.end(partition, lane)).sum()
            }
        }
    }

    fn end(&mut self, partition: &ResultPartition, lane: Lane) -> u64 {
        let Some(builder) = self.open[lane.slot(partition)].take() else {
            return 0;
        };
        let targets = lane.targets(partition);
        partition.buffers().finish_growing(builder, targets.clone());
        targets.len() as u64
    }

    pub(super) fn flush(partition: &ResultPartition) {
        for subpartition in partition.subpartitions() {
            subpartition.flush();
        }
    }
}
