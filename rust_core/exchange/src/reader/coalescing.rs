//! What a reader holds that puts batches together.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::RecordBatch;
use headgate_record::{BatchCoalescer, CoalesceError, PageSchema};

use crate::error::{ExchangeError, Result};
use crate::reader::Record;

/// Rows that wait for others, and what is read before and behind them.
pub(super) struct Coalescing {
    rows: BatchCoalescer,
    /// Complete; read before the rows that wait.
    ready: VecDeque<Result<Record>>,
}

impl Coalescing {
    pub(super) fn new(schema: Arc<PageSchema>, batch_bytes: usize) -> Self {
        Self { rows: BatchCoalescer::new(schema, batch_bytes), ready: VecDeque::new() }
    }

    /// Whether nothing is held.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.ready.is_empty()
    }

    /// Whether a page of so many bytes goes by itself.
    pub(super) fn is_large(&self, page_bytes: usize) -> bool {
        self.rows.is_large(page_bytes)
    }

    /// Copies the rows of a page of the channel.
    pub(super) fn push(&mut self, batch: &RecordBatch, channel: impl Fn() -> String) -> Result<()> {
        let mut complete = Vec::new();
        let pushed = self.rows.push(batch, &mut complete);
        self.ready.extend(complete.into_iter().map(|batch| Ok(Record::Batch(batch))));
        pushed.map_err(|error| of_coalesce(error, channel))
    }

    /// Ends the batch that the rows wait for; `next` is read behind it.
    pub(super) fn end_batch(&mut self, next: Result<Option<Record>>) {
        let rows = self.rows.finish().map_err(|error| of_coalesce(error, || ALL.to_owned()));
        self.ready.extend(rows.map(|rows| rows.map(Record::Batch)).transpose());
        self.ready.extend(next.transpose());
    }

    pub(super) fn next(&mut self) -> Option<Result<Record>> {
        self.ready.pop_front()
    }
}

/// The name of rows of several channels, in errors.
const ALL: &str = "channels read together";

fn of_coalesce(error: CoalesceError, channel: impl Fn() -> String) -> ExchangeError {
    match error {
        CoalesceError::Source(source) => source.into(),
        CoalesceError::Page(source) => {
            ExchangeError::Page { channel: channel(), source: Arc::new(source) }
        }
    }
}
