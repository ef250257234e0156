//! The deserializer of records, compared with a parser that has all bytes at once.

use std::cell::Cell;

use bytes::Bytes;
use headgate_record::{DeserializeError, SpanningDeserializer, SpanningError, SpillStore};

use crate::input::{pieces, take};

/// Checks that records and error do not depend on how the bytes are cut or where records are assembled,
/// and that the unconsumed bytes are those not returned yet.
///
/// The bytes: limit / 16, threshold / 8, number of calls until the store fails once, number of sizes,
/// sizes of pieces, stream.
#[expect(clippy::missing_panics_doc, reason = "a finding is a panic")]
pub fn records(data: &[u8]) {
    let ([limit, threshold, fails_after, sizes], rest) = take(data);
    let (limit, threshold) = (usize::from(limit) * 16, usize::from(threshold) * 8);
    let (sizes, stream) = rest.split_at(usize::from(sizes).min(rest.len()));
    let (expected, end) = parse(stream, limit);

    let store = Store { calls_left: Cell::new(usize::from(fails_after)) };
    let mut deserializer = SpanningDeserializer::spilling(limit, threshold, store);
    let (mut records, mut taken, mut returned) = (Vec::new(), 0, 0);
    let mut error = None;
    'stream: for piece in pieces(stream, sizes) {
        deserializer
            .set_next_buffer(Bytes::copy_from_slice(piece))
            .expect("the last buffer is consumed");
        taken += piece.len();
        loop {
            let result = match deserializer.next_record() {
                Ok(result) => result,
                // The store fails only once.
                Err(DeserializeError::Spill(Failed)) => continue,
                Err(DeserializeError::Record(cause)) => {
                    error = Some(cause);
                    break 'stream;
                }
            };
            let is_consumed = result.is_buffer_consumed();
            if let Some(record) = result.into_record() {
                returned += 4 + record.len();
                records.push(record);
            }
            if is_consumed {
                break;
            }
        }
        let pieces: Result<Vec<_>, _> = deserializer.unconsumed().collect();
        if let Ok(pieces) = pieces {
            assert_eq!(pieces.concat(), stream[returned..taken]);
        }
        assert_eq!(deserializer.unconsumed_len(), taken - returned);
        assert_eq!(deserializer.has_unconsumed(), taken > returned);
    }
    assert_eq!(records, expected);
    assert_eq!(error, end);
    if error.is_some() {
        let again = deserializer.next_record().map(|_| ());
        assert_eq!(again, Err(DeserializeError::Record(end.expect("they are equal"))));
    }
    deserializer.clear();
    assert!(!deserializer.has_unconsumed());
}

fn parse(mut stream: &[u8], limit: usize) -> (Vec<Bytes>, Option<SpanningError>) {
    let mut records = Vec::new();
    while let Some((prefix, rest)) = stream.split_first_chunk() {
        let length = i32::from_be_bytes(*prefix);
        let Ok(length) = usize::try_from(length) else {
            return (records, Some(SpanningError::NegativeLength { length }));
        };
        if length > limit {
            return (records, Some(SpanningError::RecordTooLarge { length, limit }));
        }
        let Some((record, rest)) = rest.split_at_checked(length) else {
            break;
        };
        records.push(Bytes::copy_from_slice(record));
        stream = rest;
    }
    (records, None)
}

struct Store {
    /// Calls until one fails; the later ones succeed.
    calls_left: Cell<usize>,
}

#[derive(Debug, PartialEq, Eq)]
struct Failed;

impl Store {
    fn call(&self) -> Result<(), Failed> {
        let left = self.calls_left.get();
        self.calls_left.set(left.wrapping_sub(1));
        if left == 0 { Err(Failed) } else { Ok(()) }
    }
}

impl SpillStore for Store {
    type File = Vec<u8>;
    type Error = Failed;

    fn create(&self) -> Result<Vec<u8>, Failed> {
        self.call().map(|()| Vec::new())
    }

    fn write(&self, file: &mut Vec<u8>, offset: usize, bytes: &[u8]) -> Result<(), Failed> {
        self.call()?;
        assert_eq!(offset, file.len());
        file.extend_from_slice(bytes);
        Ok(())
    }

    fn read(&self, file: &Vec<u8>, offset: usize, length: usize) -> Result<Bytes, Failed> {
        self.call()?;
        Ok(Bytes::copy_from_slice(&file[offset..offset + length]))
    }
}
