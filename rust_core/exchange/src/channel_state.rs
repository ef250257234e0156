//! Reads the data in flight of a checkpoint back as records (spec 10.8).
//!
//! Decision: ADR 0039.

use std::convert::Infallible;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::{Buffer, MutableBuffer};
use bytes::Bytes;
use headgate_protocol::{ChannelStateReader, DataType};
use headgate_record::compression::plain_len;
use headgate_record::{
    Decompressor, DeserializeError, PageSchema, SpanningDeserializer, SpanningError, read_page,
};

use crate::aligned::Aligned;
use crate::error::{ExchangeError, Result};

/// One record of a channel state.
#[derive(Debug)]
pub enum ChannelRecord {
    /// Rows.
    Batch(RecordBatch),
    /// A bytes record.
    Bytes(Bytes),
}

/// Largest buffer, in bytes. No segment is larger.
const LIMIT: usize = 1 << 30;
/// The name of a channel state in errors.
const NAME: &str = "the channel state of a checkpoint";

fn damaged(detail: impl ToString) -> ExchangeError {
    ExchangeError::Integrity { channel: NAME.to_owned(), detail: detail.to_string() }
}

fn cut_off() -> ExchangeError {
    damaged(
        "it ends with a record without its end: what the producer had of the channel belongs behind what \
         the consumer had",
    )
}

fn undecodable(error: DeserializeError<Infallible>) -> ExchangeError {
    match error {
        // Longer than all bytes.
        DeserializeError::Record(SpanningError::RecordTooLarge { .. }) => cut_off(),
        other => damaged(other),
    }
}

/// Reads the records of one channel: batches of the schema, or bytes without one. `parts` has what the
/// consumer's reader had of the channel, and behind it what the producer's writer had of its
/// subpartition: a record may be cut between them.
///
/// # Errors
/// [`ExchangeError::Integrity`]: damaged bytes, or ones that end within a record.
/// [`ExchangeError::Page`]: pages of another schema, or damaged before they were written.
pub fn decode_channel_state(
    parts: &[u8],
    schema: Option<&PageSchema>,
) -> Result<Vec<ChannelRecord>> {
    let mut decompressor = Decompressor::default();
    let mut buffers = Vec::new();
    for buffer in ChannelStateReader::new(parts) {
        let buffer = buffer.map_err(damaged)?;
        let plain = if buffer.is_compressed {
            let len = plain_len(buffer.payload, LIMIT).map_err(damaged)?;
            let mut plain = MutableBuffer::from_len_zeroed(len);
            decompressor.decompress(buffer.payload, &mut plain).map_err(damaged)?;
            plain.into()
        } else {
            Buffer::from_slice_ref(buffer.payload)
        };
        buffers.push((buffer.data_type, Bytes::from_owner(Aligned(plain))));
    }
    // No record is longer than all bytes.
    let mut deserializer =
        SpanningDeserializer::new(buffers.iter().map(|(_, bytes)| bytes.len()).sum());
    let mut records = Vec::new();
    for (data_type, bytes) in buffers {
        if data_type == DataType::DataBufferWithClearEnd {
            if deserializer.has_unconsumed() {
                return Err(damaged("a page comes within a record"));
            }
            records.push(record(bytes, schema, true)?);
            continue;
        }
        deserializer.set_next_buffer(bytes).map_err(damaged)?;
        loop {
            let next = deserializer.next_record().map_err(undecodable)?;
            let is_consumed = next.is_buffer_consumed();
            if let Some(bytes) = next.into_record() {
                records.push(record(bytes, schema, false)?);
            }
            if is_consumed {
                break;
            }
        }
    }
    if deserializer.has_unconsumed() {
        return Err(cut_off());
    }
    Ok(records)
}

fn record(bytes: Bytes, schema: Option<&PageSchema>, is_page: bool) -> Result<ChannelRecord> {
    let Some(schema) = schema else {
        if is_page {
            return Err(ExchangeError::WrongRecords(
                "the channel state holds Arrow batches, and no schema was given",
            ));
        }
        return Ok(ChannelRecord::Bytes(bytes));
    };
    let read = read_page(schema, bytes).map(ChannelRecord::Batch);
    read.map_err(|source| ExchangeError::Page {
        channel: NAME.to_owned(),
        source: Arc::new(source),
    })
}
