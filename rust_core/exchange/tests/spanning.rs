//! Records that span buffers, as the reader of a gate sees them.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use bytes::Bytes;
use common::{Env, config, nothing};
use headgate_exchange::{
    BytesWriter, Config, Copies, ExchangeError, PartitionKind, PartitionOptions, Record,
    RecordReader, SpillDirectories,
};
use headgate_record::Selector;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An interrupt that ends the first wait.
fn stop() -> Result<(), ExchangeError> {
    Err(ExchangeError::Interrupted("the test".to_owned()))
}

fn next(reader: &mut RecordReader) -> Bytes {
    match reader.next(&nothing).unwrap() {
        Some(Record::Bytes(bytes)) => Bytes::copy_from_slice(&bytes),
        other => panic!("{other:?}"),
    }
}

fn stream(records: &[&Bytes]) -> Vec<u8> {
    let mut stream = Vec::new();
    for record in records {
        stream.extend_from_slice(&u32::try_from(record.len()).unwrap().to_be_bytes());
        stream.extend_from_slice(record);
    }
    stream
}

#[test]
fn spec_6_04_unconsumed_bytes_are_those_a_checkpoint_would_keep() {
    // A record of more than 5,000 bytes is assembled in a file.
    for (length, spills) in [(4_500, false), (11_000, true)] {
        let (producer, consumer) = (Env::new(24, 4096), Env::new(24, 4096));
        let partition = producer.partition(1);
        let gate = consumer.gate(&[producer.address(&partition, 0)]);
        let copies = Arc::new(Copies::default());
        let options = consumer.0.spanning_options();
        let mut reader = RecordReader::new(gate, None, options, Arc::clone(&copies));
        let selector = Selector::RoundRobin { next: 0, group: None, by_rows: false };
        let mut writer = BytesWriter::new(Arc::clone(&partition), selector, 1 << 20).unwrap();
        let (a, b) = (Bytes::from_static(b"first"), Bytes::from_static(b"second"));
        let large: Bytes = (0..length).map(|i: u32| (i % 251) as u8).collect();
        assert_eq!(reader.unconsumed(0).unwrap(), Vec::<Bytes>::new());
        for record in [&a, &b, &large] {
            writer.emit(record, &nothing).unwrap();
        }
        assert_eq!(next(&mut reader), a);
        // The rest of the first buffer.
        let all = stream(&[&b, &large]);
        let held = 4096 - stream(&[&a]).len();
        assert_eq!(reader.unconsumed(0).unwrap().concat(), all[..held]);
        assert_eq!(next(&mut reader), b);
        assert!(matches!(reader.next(&stop), Err(ExchangeError::Interrupted(_))));
        let all = stream(&[&large]);
        let full = (all.len() + stream(&[&a, &b]).len()) / 4096 * 4096;
        let held = full - stream(&[&a, &b]).len();
        assert_eq!(reader.unconsumed(0).unwrap().concat(), all[..held]);
        let spilled = copies.spilled.load(Ordering::Relaxed);
        assert_eq!(spilled, if spills { held as u64 - 4 } else { 0 });
        writer.finish().unwrap();
        assert_eq!(next(&mut reader), large);
        assert!(reader.next(&nothing).unwrap().is_none());
        assert!(reader.unconsumed(0).unwrap().is_empty());
    }
}

#[test]
fn a_call_after_a_failed_spill_tries_again() {
    let env = Env::new(24, 4096);
    let partition = env.partition(1);
    let gate = env.gate(&[env.address(&partition, 0)]);
    let folder = std::env::temp_dir().join(format!("headgate-late-{}", std::process::id()));
    let mut options = env.0.spanning_options();
    options.directories = Arc::new(SpillDirectories::new(vec![folder.clone()]));
    let mut reader = RecordReader::new(gate, None, options, Arc::default());
    let mut writer =
        BytesWriter::new(Arc::clone(&partition), Selector::Broadcast, 1 << 20).unwrap();
    let large = Bytes::from(vec![7; 10_000]);
    writer.emit(&large, &nothing).unwrap();
    writer.finish().unwrap();
    for _ in 0..2 {
        let error = reader.next(&nothing).unwrap_err();
        assert!(matches!(error, ExchangeError::SpillDirectories { .. }), "{error}");
    }
    std::fs::create_dir(&folder).unwrap();
    assert_eq!(next(&mut reader), large);
    std::fs::remove_dir(&folder).unwrap();
    assert!(reader.next(&nothing).unwrap().is_none());
}

#[test]
fn an_environment_spills_to_its_configured_directories() {
    let missing = std::env::temp_dir().join("headgate-missing-directory");
    let with = |threshold| {
        let temp_directories = vec![missing.clone()];
        Config { spill_threshold: threshold, temp_directories, ..config(24, 4096) }
    };
    for (threshold, fails) in [(10_000, false), (9_999, true)] {
        let env = Env::with(with(threshold));
        let partition = env.partition(1);
        let gate = env.gate(&[env.address(&partition, 0)]);
        let options = env.0.spanning_options();
        let mut reader = RecordReader::new(gate, None, options, Arc::default());
        let mut writer =
            BytesWriter::new(Arc::clone(&partition), Selector::Broadcast, 1 << 20).unwrap();
        writer.emit(&Bytes::from(vec![7; 10_000]), &nothing).unwrap();
        writer.finish().unwrap();
        let result = reader.next(&nothing);
        assert_eq!(result.is_err(), fails);
        if let Err(error) = result {
            assert!(error.to_string().contains("headgate-missing-directory"), "{error}");
        }
    }
}

#[test]
fn a_record_that_is_cut_off_fails_its_partition_with_the_cause() {
    for kind in [PartitionKind::Pipelined, PartitionKind::PipelinedBounded, PartitionKind::Hybrid] {
        let env = Env::new(8, 4096);
        let options = PartitionOptions { max_spill_size: 1, ..PartitionOptions::all(1) };
        let partition = env.0.create_result_partition(&options.of_kind(kind)).unwrap();
        let gate = env.gate(&[env.address(&partition, 0)]);
        let options = env.0.spanning_options();
        let mut reader = RecordReader::new(gate, None, options, Arc::default());
        let selector = Selector::Broadcast;
        let mut writer = BytesWriter::new(Arc::clone(&partition), selector, 1 << 20).unwrap();
        writer.emit(&Bytes::from_static(b"whole"), &nothing).unwrap();
        writer.flush().unwrap();
        assert_eq!(next(&mut reader), "whole");
        let cut = writer.emit(&Bytes::from(vec![1; 100_000]), &stop).unwrap_err();
        assert!(matches!(cut, ExchangeError::Interrupted(_)), "{cut}");
        let rest = writer.emit(&Bytes::from(vec![2; 100_000]), &nothing).unwrap_err();
        for error in [rest, reader.next(&nothing).unwrap_err()] {
            let text = error.to_string();
            assert!(text.contains("of 100004 bytes: interrupted by the test"), "{kind:?}: {text}");
        }
    }
}
