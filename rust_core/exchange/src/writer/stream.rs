//! Length-prefixed records over growing buffers, one open buffer per subpartition (spec 4.5, 6).

use bytes::Bytes;
use headgate_memory::BufferBuilder;
use headgate_record::SpanningSerializer;

use crate::copies::Copies;
use crate::error::{ExchangeError, Interrupt, Result};
use crate::partition::ResultPartition;

pub(super) struct StreamWriter {
    serializer: SpanningSerializer,
    open: Vec<Option<BufferBuilder>>,
}

impl StreamWriter {
    pub(super) fn new(num_subpartitions: usize, max_record_size: usize) -> Self {
        let serializer = SpanningSerializer::new(max_record_size);
        Self { serializer, open: std::iter::repeat_with(|| None).take(num_subpartitions).collect() }
    }

    /// Writes one record that stands for `rows` rows; returns the buffers it completed.
    pub(super) fn write(
        &mut self,
        partition: &ResultPartition,
        index: usize,
        record: Bytes,
        rows: u64,
        interrupt: Interrupt<'_>,
    ) -> Result<u64> {
        let subpartition = &partition.subpartitions()[index];
        self.serializer
            .set_record(record)
            .map_err(|error| ExchangeError::of_spanning(error, "the writer"))?;
        Copies::count(&partition.copies().spanning, self.serializer.remaining());
        let mut completed = 0;
        let open = &mut self.open[index];
        while self.serializer.has_data() {
            let builder = match open {
                Some(builder) => builder,
                None => {
                    let segment = match partition.request_segment(Some(index), interrupt) {
                        Ok(segment) => segment,
                        Err(error) => {
                            self.serializer.clear();
                            return Err(error);
                        }
                    };
                    let mut builder = BufferBuilder::new(segment);
                    let consumer = builder.consumer().expect("a new builder has its consumer");
                    subpartition.add_growing(consumer);
                    open.insert(builder)
                }
            };
            builder.append_with(|target| self.serializer.copy_to(target).0);
            builder.commit();
            if builder.is_full() {
                builder.finish();
                *open = None;
                completed += 1;
                subpartition.appended(0);
            }
        }
        subpartition.appended(rows);
        Ok(completed)
    }

    /// Whether the subpartition has a buffer that a record can begin in.
    pub(super) fn is_open(&self, index: usize) -> bool {
        self.open[index].is_some()
    }

    /// Ends the open buffer, so that something else can follow it.
    pub(super) fn end(&mut self, partition: &ResultPartition, index: usize) -> u64 {
        let Some(mut builder) = self.open[index].take() else {
            return 0;
        };
        builder.finish();
        drop(builder);
        partition.subpartitions()[index].appended(0);
        1
    }

    pub(super) fn flush(&self, partition: &ResultPartition) {
        for subpartition in partition.subpartitions() {
            subpartition.flush();
        }
    }
}
