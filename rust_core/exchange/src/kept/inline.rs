//! Indexes with their buffers behind them, and the output of a producer that is small from the start.
//!
//! Decision: ADR 0026.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use headgate_memory::SEGMENT_ALIGNMENT;
use headgate_protocol::{DataType, KeptBlock, KeptIndex, Totals, crc32c};
use headgate_record::{PageSchema, Scatter, Selection, Selector, Source, encode_rows};

use crate::error::{ExchangeError, Result};
use crate::subpartition::end_of_partition;

/// Encodes an index of these blocks. Returns the bytes, with room for the blocks behind the index, and
/// the place of each block in them.
pub(crate) fn with_room(blocks: &[KeptBlock]) -> (Vec<u8>, Vec<Range<usize>>) {
    let mut end = 0_u64;
    let placed = blocks.iter().map(|block| {
        // The consumer reads pages in place, once it has copied the bytes to aligned memory.
        let offset = end.next_multiple_of(SEGMENT_ALIGNMENT as u64);
        end = offset + u64::from(block.len);
        KeptBlock { offset, ..*block }
    });
    let index = KeptIndex(placed.collect());
    let mut out = index.encode();
    let behind = out.len();
    let place = |block: &KeptBlock| {
        let start = behind + usize::try_from(block.offset).expect("lengths of 32 bits");
        start..start + block.len as usize
    };
    let places: Vec<_> = index.0.iter().map(place).collect();
    out.resize(places.last().map_or(behind, |last| last.end), 0);
    (out, places)
}

/// The limits of an output that needs no file.
#[derive(Clone, Copy, Debug)]
pub struct SmallLimits {
    /// Bytes of all pages.
    pub all: usize,
    /// Bytes of one page; a partition with more in all is small if none of its pages has more.
    pub page: usize,
    /// Bytes of the largest page that a record and a receiver may have.
    pub most: usize,
}

/// One subpartition of a small output.
#[derive(Clone, Debug)]
pub struct SmallSubpartition {
    /// Its number.
    pub subpartition: u32,
    /// Its rows.
    pub rows: u64,
    /// Bytes of its page.
    pub bytes: u64,
    /// Its index, with the page behind it.
    pub index: Vec<u8>,
}

/// Keeps the whole output of a producer that has few rows for each of `n` subpartitions: one page for
/// each that has rows, exactly as large as they need, in ordinary memory. `None` if the pages exceed
/// the limits, or the selector does not look at each row.
///
/// # Errors
/// The batch has another schema, or its rows cannot be placed.
pub fn keep_small(
    schema: &Arc<PageSchema>,
    selector: &mut Selector,
    batch: &RecordBatch,
    n: u32,
    limits: SmallLimits,
) -> Result<Option<Vec<SmallSubpartition>>> {
    let source = Source::try_new(schema, batch)?;
    let mut ids = Vec::new();
    if selector.select(batch, n, &mut ids)? != Selection::Rows {
        return Ok(None);
    }
    let mut scatter = Scatter::new();
    scatter.group(&ids, 0, n).map_err(|error| ExchangeError::OutOfRange {
        row: error.row as usize,
        channel: error.id.into(),
        count: n,
    })?;
    let (mut all, mut largest) = (0, 0);
    let mut kept = Vec::new();
    for (subpartition, rows) in scatter.groups() {
        // A page that is too large for the format is too large for the limits.
        let Ok(page) = encode_rows(schema, &source, rows) else {
            return Ok(None);
        };
        all += page.len();
        largest = largest.max(page.len());
        if page.len() > limits.most || (all > limits.all && largest > limits.page) {
            return Ok(None);
        }
        let (bytes, rows) = (page.len() as u64, rows.len() as u64);
        kept.push(SmallSubpartition { subpartition, rows, bytes, index: of_one_page(&page, rows) });
    }
    Ok(Some(kept))
}

/// Encodes the index of a subpartition of one page, with the page behind it.
fn of_one_page(page: &[u8], rows: u64) -> Vec<u8> {
    let len = |bytes: &[u8]| u32::try_from(bytes.len()).expect("limited by the format of pages");
    let mut totals = Totals { rows, ..Totals::default() };
    totals.add_buffer(len(page));
    let end: Bytes = end_of_partition(&totals);
    let block = |data_type, bytes: &[u8]| KeptBlock {
        data_type,
        offset: 0,
        len: len(bytes),
        plain_len: None,
        crc: crc32c(bytes),
    };
    let (mut out, places) = with_room(&[
        block(DataType::DataBufferWithClearEnd, page),
        block(DataType::EndOfPartition, &end),
    ]);
    out[places[0].clone()].copy_from_slice(page);
    out[places[1].clone()].copy_from_slice(&end);
    out
}
