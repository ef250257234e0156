//! Every kind of partition over every link: the same rows and events, once, in the same order.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;
mod link;

use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use common::{RECORD_LIMIT, drain, nothing};
use headgate_exchange::{BytesWriter, ExchangeError, PartitionKind, Record};
use headgate_record::{Event, Selector};
use link::{KINDS, Link, consumed, write_rows};

#[test]
fn every_kind_over_every_link_delivers_every_row_once_and_in_order() {
    for kind in KINDS {
        for link in Link::all(24) {
            let partition = link.partition(kind, 2);
            link.delivers(&partition, 20_000);
        }
    }
}

#[test]
fn events_stay_between_the_records_they_were_written_between() {
    for kind in KINDS {
        for link in Link::all(24) {
            let partition = link.partition(kind, 2);
            let write = || {
                let selector = Selector::Broadcast;
                let mut writer =
                    BytesWriter::new(Arc::clone(&partition), selector, RECORD_LIMIT).unwrap();
                for number in 0..300_u16 {
                    let record = Bytes::from([number.to_le_bytes(); 100].concat());
                    writer.broadcast_emit(&record, &nothing).unwrap();
                    if number % 3 == 0 {
                        let body = Bytes::from(number.to_le_bytes().to_vec());
                        let event = Event::Custom { name: "mark".to_owned(), body };
                        writer.broadcast_event(&event).unwrap();
                    }
                }
                writer.finish().unwrap();
            };
            let read = |index| {
                let mut reader = link.bytes_reader(&partition, index);
                let mut last = None;
                while let Some(record) = reader.next(&nothing).unwrap() {
                    match record {
                        Record::Bytes(bytes) => {
                            let number = u16::from_le_bytes([bytes[0], bytes[1]]);
                            assert_eq!(number, last.map_or(0, |last| last + 1));
                            last = Some(number);
                        }
                        Record::Event { event: Event::Custom { body, .. }, .. } => {
                            assert_eq!(Some(u16::from_le_bytes([body[0], body[1]])), last);
                        }
                        other => panic!("{other:?}"),
                    }
                }
                assert_eq!(last, Some(299), "{kind:?}");
            };
            thread::scope(|scope| {
                let writing = scope.spawn(write);
                if kind == PartitionKind::Blocking {
                    writing.join().unwrap();
                }
                for index in [0, 1] {
                    scope.spawn(move || read(index));
                }
            });
        }
    }
}

#[test]
fn spec_11_05_a_consumed_pipelined_partition_is_gone_and_a_blocking_one_stays() {
    for kind in KINDS {
        for link in Link::all(24) {
            let partition = link.partition(kind, 1);
            let stays = kind == PartitionKind::Blocking;
            thread::scope(|scope| {
                let writing = scope.spawn(|| write_rows(&partition, 2_000));
                if stays {
                    writing.join().unwrap();
                }
                drain(&mut link.consumer().reader(&link.gate(&partition, 0))).unwrap();
            });
            consumed(&partition);
            assert_eq!(partition.is_released(), !stays, "{kind:?}");
            if stays {
                let again = drain(&mut link.consumer().reader(&link.gate(&partition, 0))).unwrap();
                assert_eq!(again.len(), 2_000);
                link.producer.0.release_partition(partition.id());
            }
            let error = link.bytes_reader_error(&partition);
            assert!(matches!(error, ExchangeError::PartitionNotFound { .. }), "{kind:?}: {error}");
        }
    }
}
