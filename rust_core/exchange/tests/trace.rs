//! The trace of an exchange with a checkpoint. It is of the whole process, so this program has one test.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::{Env, RECORD_LIMIT, nothing, wait_until};
use headgate_exchange::{
    Alignment, Barrier, BytesWriter, CheckpointId, CheckpointOptions, CheckpointedInput,
    ExchangeError, InputGate, Record, RecordReader,
};
use headgate_record::Selector;
use headgate_trace::{Event, Kind};

fn events() -> Vec<Event> {
    headgate_trace::last(usize::MAX).entries.into_iter().map(|entry| entry.event).collect()
}

#[test]
fn connections_credits_barriers_and_failures_are_recorded_if_they_are_wanted() {
    exchange();
    assert!(events().is_empty(), "nothing was wanted");

    headgate_trace::set(&[Kind::Gate]);
    exchange();
    let found = events();
    let barrier = found.iter().position(|it| *it == Event::Barrier { channel: 0, checkpoint: 1 });
    let aligned = found.iter().position(|it| *it == Event::Aligned { checkpoint: 1 });
    let resumed = found.iter().position(|it| *it == Event::Resumed { channel: 0 });
    assert!(barrier.is_some() && barrier < aligned && barrier < resumed, "{found:?}");
    assert!(resumed.is_some(), "{found:?}");
    assert!(found.iter().any(|it| matches!(it, Event::Failed { cause, .. } if **cause == *"over")));
    assert!(!found.iter().any(|it| matches!(it, Event::Dialed { .. })), "{found:?}");

    headgate_trace::clear();
    headgate_trace::set(&[Kind::Net]);
    exchange();
    // The producer notices last that the consumer has gone.
    let is_end = |it: &Event| matches!(it, Event::Closed { .. } | Event::Lost { .. });
    wait_until("both ends are closed", || events().iter().filter(|it| is_end(it)).count() == 2);
    let found = events();
    assert!(!found.iter().any(|it| matches!(it, Event::Barrier { .. })), "{found:?}");
    let count = |is: fn(&Event) -> bool| found.iter().filter(|it| is(it)).count();
    assert_eq!(count(|it| matches!(it, Event::Dialed { .. })), 1, "{found:?}");
    assert_eq!(count(|it| matches!(it, Event::Accepted { .. })), 1, "{found:?}");
    assert_eq!(count(|it| matches!(it, Event::Opened { .. })), 2, "{found:?}");
    assert_eq!(count(|it| matches!(it, Event::Closed { .. })), 2, "{found:?}");
    let sum = |credits: fn(&Event) -> u32| found.iter().map(credits).sum::<u32>();
    let granted = sum(|it| if let Event::Granted { credits, .. } = it { *credits } else { 0 });
    let credited = sum(|it| if let Event::Credited { credits, .. } = it { *credits } else { 0 });
    assert!(credited > 0 && credited <= granted, "{credited} of {granted} arrived");
}

/// Sends records with a barrier between them to another environment, and fails its gate at the end.
fn exchange() {
    let (producer, consumer) = (Env::new(64, 4096), Env::new(64, 4096));
    let partition = producer.partition(1);
    let gate = consumer.gate(&[producer.address(&partition, 0)]);
    gate.enable_checkpointing(true).unwrap();
    let selector = Selector::One(0);
    let mut writer = BytesWriter::new(Arc::clone(&partition), selector, RECORD_LIMIT).unwrap();
    let options =
        CheckpointOptions { alignment: Alignment::Aligned, snapshot: Bytes::from_static(b"where") };
    let barrier = Barrier { id: CheckpointId(1), timestamp: 0, options };
    let (spanning, copies) = (consumer.0.spanning_options(), Arc::clone(consumer.0.copies()));
    let mut reader = RecordReader::new(Arc::<InputGate>::clone(&gate), None, spanning, copies);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..200 {
                writer.emit(&Bytes::from(vec![number; 1000]), &nothing).unwrap();
                if number == 100 {
                    writer.broadcast_barrier(&barrier, &producer.0).unwrap();
                }
            }
            writer.finish().unwrap();
        });
        while let Some(record) = reader.next(&nothing).unwrap() {
            if matches!(record, Record::Checkpoint(_)) {
                // Not due for the notice that the checkpoint is complete.
                let _ = reader.snapshot_taken(CheckpointId(1));
            }
        }
    });
    gate.fail(ExchangeError::Aborted("over".to_owned()));
    consumer.0.close();
    producer.0.close();
}
