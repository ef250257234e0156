//! Length-prefixed records over growing buffers (spec 4.5, 6).

use std::sync::Arc;

use bytes::Bytes;
use headgate_memory::BufferBuilder;
use headgate_record::SpanningSerializer;

use crate::copies::Copies;
use crate::error::{ExchangeError, Interrupt, Result};
use crate::partition::ResultPartition;
use crate::subpartition::Subpartition;
use crate::writer::Lane;

pub(super) struct StreamWriter {
    serializer: SpanningSerializer,
    /// One open buffer per subpartition, and behind them the one that all of them read, each at its
    /// own position. Unicast and broadcast ones are never open together, so the order of emits holds.
    open: Vec<Option<BufferBuilder>>,
}

impl StreamWriter {
    pub(super) fn new(num_subpartitions: usize, max_record_size: usize) -> Self {
        let serializer = SpanningSerializer::new(max_record_size);
        let slots = num_subpartitions + 1;
        Self { serializer, open: std::iter::repeat_with(|| None).take(slots).collect() }
    }

    /// Writes one record that stands for `rows` rows; returns the buffers it completed, each once for
    /// every subpartition that gets it.
    pub(super) fn write(
        &mut self,
        partition: &ResultPartition,
        lane: Lane,
        record: Bytes,
        rows: u64,
        interrupt: Interrupt<'_>,
    ) -> Result<u64> {
        self.serializer
            .set_record(record)
            .map_err(|error| ExchangeError::of_spanning(error, "the writer"))?;
        let mut completed = self.end_others(partition, lane);
        Copies::count(&partition.copies().spanning, self.serializer.remaining());
        let targets = &partition.subpartitions()[lane.targets(partition)];
        let open = &mut self.open[lane.slot(partition)];
        while self.serializer.has_data() {
            let builder = match open {
                Some(builder) => builder,
                None => {
                    let segment = match partition.request_segment(lane.subpartition(), interrupt) {
                        Ok(segment) => segment,
                        Err(error) => {
                            self.serializer.clear();
                            return Err(error);
                        }
                    };
                    let mut builder = BufferBuilder::new(segment);
                    // What the consumers wish for, yet all of the first record that fits.
                    let wish = targets.iter().map(|one| one.buffer_size()).min();
                    let wish = wish.unwrap_or(usize::MAX);
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
                let bytes = builder.finish();
                *open = None;
                completed += complete(partition, targets, bytes);
            }
        }
        for subpartition in targets {
            subpartition.appended(rows);
        }
        Ok(completed)
    }

    /// Whether the lane has a buffer that a record can begin in.
    pub(super) fn is_open(&self, partition: &ResultPartition, lane: Lane) -> bool {
        self.open[lane.slot(partition)].is_some()
    }

    /// Ends what is open, so that something else can follow it; returns the buffers this completed.
    pub(super) fn end_all(&mut self, partition: &ResultPartition) -> u64 {
        let unicast = (0..partition.num_subpartitions()).map(Lane::One);
        unicast.chain([Lane::All]).map(|lane| self.end(partition, lane)).sum()
    }

    /// What is open of the other kind ends first.
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
        let Some(mut builder) = self.open[lane.slot(partition)].take() else {
            return 0;
        };
        let bytes = builder.finish();
        drop(builder);
        complete(partition, &partition.subpartitions()[lane.targets(partition)], bytes)
    }

    pub(super) fn flush(partition: &ResultPartition) {
        for subpartition in partition.subpartitions() {
            subpartition.flush();
        }
    }
}

/// A buffer of so many bytes is finished; returns how many get it.
fn complete(partition: &ResultPartition, targets: &[Arc<Subpartition>], bytes: usize) -> u64 {
    partition.metrics().finished(targets.len(), bytes);
    for subpartition in targets {
        subpartition.completed(bytes);
    }
    targets.len() as u64
}
