//! Large records: assembled in a file of the store, which is dropped with the record.

#![allow(clippy::unwrap_used, reason = "a panic in a test reports the failure")]

mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use headgate_record::{DeserializationResult, DeserializeError, SpanningDeserializer};
use store::{Full, Store, unconsumed};

const MIB: usize = 1 << 20;
const LIMIT: usize = 16 * MIB;
const THRESHOLD: usize = 5 * MIB;

/// The stream of one record of this length, in buffers of 32 KiB.
fn buffers(length: usize) -> Vec<Bytes> {
    let prefix = u32::try_from(length).unwrap().to_be_bytes();
    let payload = (0..length).map(|i| (i % 251) as u8);
    let mut stream: Bytes = prefix.into_iter().chain(payload).collect();
    let mut buffers = Vec::new();
    while !stream.is_empty() {
        buffers.push(stream.split_to(stream.len().min(32 << 10)));
    }
    buffers
}

fn payload(buffers: &[Bytes]) -> Bytes {
    Bytes::from(buffers.concat()).slice(4..)
}

#[test]
fn spec_6_05_only_above_the_threshold_is_there_a_file_and_it_goes_with_the_record() {
    for (length, files) in [(4 * MIB, 0), (THRESHOLD, 0), (THRESHOLD + 1, 1), (6 * MIB, 1)] {
        let store = Store::default();
        let mut deserializer = SpanningDeserializer::spilling(LIMIT, THRESHOLD, &store);
        let buffers = buffers(length);
        let (last, first) = buffers.split_last().unwrap();
        for buffer in first {
            deserializer.set_next_buffer(buffer.clone()).unwrap();
            assert_eq!(deserializer.next_record(), Ok(DeserializationResult::PartialRecord));
            assert_eq!((store.created(), store.open()), (files, files));
        }
        deserializer.set_next_buffer(last.clone()).unwrap();
        let record = deserializer.next_record().unwrap().into_record().unwrap();
        assert!(record == payload(&buffers), "{length} bytes");
        assert_eq!((store.created(), store.open()), (files, 0));
    }
}

#[test]
fn spec_6_05_the_file_goes_when_the_deserializer_is_cleared_or_dropped() {
    let store = Store::default();
    let buffers = buffers(6 * MIB);
    let mut deserializer = SpanningDeserializer::spilling(LIMIT, THRESHOLD, &store);
    for clear in [true, false] {
        for buffer in &buffers[..5] {
            deserializer.set_next_buffer(buffer.clone()).unwrap();
            deserializer.next_record().unwrap();
        }
        assert_eq!(store.open(), 1);
        assert_eq!(unconsumed(&deserializer), buffers[..5].concat());
        if clear {
            deserializer.clear();
            assert_eq!((store.open(), deserializer.unconsumed_len()), (0, 0));
        }
    }
    drop(deserializer);
    assert_eq!((store.created(), store.open()), (2, 0));
}

#[test]
fn each_large_record_has_a_file_of_its_own() {
    let store = Store::default();
    let mut deserializer = SpanningDeserializer::spilling(LIMIT, 100, &store);
    let stream = [buffers(200_000), buffers(50), buffers(300_000)].concat();
    let mut lengths = Vec::new();
    for buffer in Bytes::from(stream.concat()).chunks(1000).map(Bytes::copy_from_slice) {
        deserializer.set_next_buffer(buffer).unwrap();
        loop {
            assert!(store.open() <= 1);
            let result = deserializer.next_record().unwrap();
            let consumed = result.is_buffer_consumed();
            lengths.extend(result.into_record().map(|record| record.len()));
            if consumed {
                break;
            }
        }
    }
    assert_eq!(lengths, [200_000, 50, 300_000]);
    assert_eq!((store.created(), store.open()), (2, 0));
}

#[test]
fn a_failed_store_call_can_be_repeated() {
    let buffers = buffers(100_000);
    assert_eq!(buffers.len(), 4);
    // One call creates the file, four write and one reads it; there is no seventh.
    for calls in 0..=6 {
        let store = Store::default();
        let mut deserializer = SpanningDeserializer::spilling(LIMIT, 5000, &store);
        store.calls_left.set(Some(calls));
        let (mut records, mut failures, mut taken) = (Vec::new(), 0, 0);
        for buffer in &buffers {
            deserializer.set_next_buffer(buffer.clone()).unwrap();
            taken += buffer.len();
            let result = match deserializer.next_record() {
                Err(error) => {
                    assert_eq!(error, DeserializeError::Spill(Full));
                    failures += 1;
                    store.calls_left.set(None);
                    assert_eq!(unconsumed(&deserializer), buffers.concat()[..taken]);
                    deserializer.next_record().unwrap()
                }
                Ok(result) => result,
            };
            assert!(result.is_buffer_consumed());
            records.extend(result.into_record());
        }
        assert!(records == [payload(&buffers)], "{calls} calls");
        assert_eq!(failures, usize::from(calls < 6), "{calls} calls");
        assert_eq!((store.created(), store.open()), (1, 0));
    }
}

/// Bytes that count their drops.
struct Counted(Bytes, Arc<AtomicUsize>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Relaxed);
    }
}

#[test]
fn spec_6_08_each_buffer_is_recycled_once_consumed_or_cleared_in_memory_or_on_disk() {
    for threshold in [100, LIMIT] {
        let store = Store::default();
        let mut deserializer = SpanningDeserializer::spilling(LIMIT, threshold, &store);
        let recycled = Arc::new(AtomicUsize::new(0));
        let mut given = 0;
        for end in [2, 3, 4] {
            for buffer in &buffers(100_000)[..end] {
                let counted = Counted(buffer.clone(), Arc::clone(&recycled));
                deserializer.set_next_buffer(Bytes::from_owner(counted)).unwrap();
                given += 1;
                assert_eq!(recycled.load(Relaxed), given - 1);
                deserializer.next_record().unwrap();
                assert_eq!(recycled.load(Relaxed), given);
            }
            // Inside the record, or after it.
            deserializer.clear();
        }
        let counted = Counted(Bytes::from_static(b"not looked at"), Arc::clone(&recycled));
        deserializer.set_next_buffer(Bytes::from_owner(counted)).unwrap();
        drop(deserializer);
        assert_eq!(recycled.load(Relaxed), given + 1);
        assert_eq!(store.open(), 0);
    }
}
