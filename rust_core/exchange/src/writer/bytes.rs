//! Records that are bytes.

use std::sync::Arc;

use bytes::Bytes;
use headgate_record::{Event, Selection, Selector};

use crate::error::{ExchangeError, Interrupt, Result};
use crate::partition::ResultPartition;
use crate::writer::stream::StreamWriter;
use crate::writer::{WriterStats, broadcast_event};

/// Writes bytes records, spanning buffers where they must.
pub struct BytesWriter {
    partition: Arc<ResultPartition>,
    stream: StreamWriter,
    selector: Selector,
    stats: WriterStats,
    finished: bool,
}

impl BytesWriter {
    /// A writer that is the only one of its partition.
    ///
    /// # Errors
    /// A hash selector: bytes have no columns.
    pub fn new(
        partition: Arc<ResultPartition>,
        selector: Selector,
        max_record_size: usize,
    ) -> Result<Self> {
        if matches!(selector, Selector::Hash { .. }) {
            return Err(ExchangeError::State("records of bytes have no columns to hash"));
        }
        let stream = StreamWriter::new(partition.num_subpartitions(), max_record_size);
        let stats = WriterStats::default();
        Ok(Self { partition, stream, selector, stats, finished: false })
    }

    /// Emits one record to the subpartition the selector names.
    ///
    /// # Errors
    /// A record above the limit, the failure of the partition, or what the interrupt says.
    pub fn emit(&mut self, record: &Bytes, interrupt: Interrupt<'_>) -> Result<()> {
        let count = self.num_subpartitions();
        let selection = match &mut self.selector {
            Selector::RoundRobin { next } => {
                let one = *next % count;
                *next = (one + 1) % count;
                Selection::One(one)
            }
            Selector::Broadcast | Selector::Hash { .. } => Selection::All,
        };
        match selection {
            Selection::One(index) => self.emit_to(index, record.clone(), interrupt),
            Selection::All | Selection::Rows => self.broadcast_emit(record, interrupt),
        }
    }

    /// Emits one record to each subpartition.
    ///
    /// # Errors
    /// As [`emit`](Self::emit).
    pub fn broadcast_emit(&mut self, record: &Bytes, interrupt: Interrupt<'_>) -> Result<()> {
        for index in 0..self.num_subpartitions() {
            self.emit_to(index, record.clone(), interrupt)?;
        }
        Ok(())
    }

    /// Emits one record to the named subpartition.
    ///
    /// # Errors
    /// As [`emit`](Self::emit), and a subpartition that does not exist.
    pub fn emit_to(&mut self, index: u32, record: Bytes, interrupt: Interrupt<'_>) -> Result<()> {
        self.check_open()?;
        let count = self.num_subpartitions();
        if index >= count {
            return Err(ExchangeError::OutOfRange { row: 0, channel: index.into(), count });
        }
        let index = index as usize;
        if self.partition.subpartitions()[index].is_released() {
            return self.partition.check();
        }
        self.stats.rows += 1;
        self.stats.bytes += record.len() as u64;
        let completed = self.stream.write(&self.partition, index, record, 1, interrupt)?;
        self.stats.buffers += completed;
        Ok(())
    }

    /// Appends an event to each subpartition, behind all records emitted so far.
    ///
    /// # Errors
    /// After [`finish`](Self::finish), or an event that cannot be encoded.
    pub fn broadcast_event(&mut self, event: &Event) -> Result<()> {
        self.check_open()?;
        self.end_all();
        broadcast_event(&self.partition, event)
    }

    /// Shows everything emitted so far to the consumers.
    pub fn flush(&self) {
        self.stream.flush(&self.partition);
    }

    /// Ends every subpartition; nothing can be emitted any more.
    pub fn finish(&mut self) {
        if !std::mem::replace(&mut self.finished, true) {
            self.end_all();
            for subpartition in self.partition.subpartitions() {
                subpartition.finish();
            }
        }
    }

    /// What was emitted so far.
    pub fn stats(&self) -> WriterStats {
        self.stats
    }

    /// The partition it writes.
    pub fn partition(&self) -> &Arc<ResultPartition> {
        &self.partition
    }

    fn end_all(&mut self) {
        for index in 0..self.partition.num_subpartitions() {
            self.stats.buffers += self.stream.end(&self.partition, index);
        }
    }

    fn check_open(&self) -> Result<()> {
        if self.finished {
            return Err(ExchangeError::Closed("record writer"));
        }
        self.partition.check()
    }

    fn num_subpartitions(&self) -> u32 {
        u32::try_from(self.partition.num_subpartitions()).expect("checked when it was made")
    }
}
