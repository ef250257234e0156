//! The coalesced rows of a reader, and the records behind them.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::RecordBatch;
use headgate_record::{BatchCoalescer, CoalesceError, PageSchema};

use super::record::Record;
use crate::error::{ExchangeError, Result};

/// Rows that wait for others, and the records to return before and behind them.
pub(super) struct Coalescing {
    rows: BatchCoalescer,
    /// Complete records, returned before the rows that wait.
    ready: VecDeque<Result<Record>>,
}

impl Coalescing {
    pub(super) fn new(schema: Arc<PageSchema>, batch_bytes: usize) -> Self {
        Self { rows: BatchCoalescer::new(schema, batch_bytes), ready: VecDeque::new() }
    }

    /// True if it holds nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.ready.is_empty()
    }

    /// True if a page of this size is returned without a copy.
    pub(super) fn is_large(&self, page_bytes: usize) -> bool {
        self.rows.is_large(page_bytes)
    }

    /// Copies the rows of a page.
    pub(super) fn push(&mut self, batch: &RecordBatch, channel: impl Fn() -> String) -> Result<()> {
        let mut complete = Vec::new();
        let pushed = self.rows.push(batch, &mut complete);
        self.ready.extend(complete.into_iter().map(|batch| Ok(Record::Batch(batch))));
        pushed.map_err(|error| of_coalesce(error, channel))
    }

    /// Completes the batch of the rows that wait. `next` is returned behind it.
    pub(super) fn end_batch(&mut self, next: Result<Option<Record>>) {
        let rows = self.rows.finish().map_err(|error| of_coalesce(error, || ALL.to_owned()));
        self.ready.extend(rows.map(|rows| rows.map(Record::Batch)).transpose());
        self.ready.extend(next.transpose());
    }

    pub(super) fn next(&mut self) -> Option<Result<Record>> {
        self.ready.pop_front()
    }
}

/// The name of several channels in errors.
const ALL: &str = "channels read together";

fn of_coalesce(error: CoalesceError, channel: impl Fn() -> String) -> ExchangeError {
    match error {
        CoalesceError::Source(source) => source.into(),
        CoalesceError::Page(source) => {
            ExchangeError::Page { channel: channel(), source: Arc::new(source) }
        }
    }
}
