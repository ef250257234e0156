//! Random shapes of exchanges: every row arrives once, and nothing stalls.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::thread;
use std::time::Duration;

use common::{Env, batch, drain, nothing, writer};
use headgate_exchange::Record;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_shape_delivers_every_row_once(
        producers in 1_usize..4,
        consumers in 1_usize..5,
        local in any::<bool>(),
        spare in 0_usize..6,
        batches in 0_i64..30,
        rows in 1_i64..400,
        width in 0_usize..40,
        wide in any::<bool>(),
        keep in any::<bool>(),
        flush in any::<bool>(),
    ) {
        let width = if wide { width * 150 } else { width };
        let senders: Vec<_> =
            (0..producers).map(|_| Env::new(consumers + 1 + spare, 4096)).collect();
        // In one process the gates need no segments.
        let receivers: Vec<_> = if local && producers == 1 {
            Vec::new()
        } else {
            (0..consumers).map(|_| Env::new(producers + spare, 4096)).collect()
        };
        let partitions: Vec<_> = senders.iter().map(|env| env.partition(consumers)).collect();
        let total = producers as i64 * batches * rows;
        let mut seen = thread::scope(|scope| {
            let mut reading = Vec::new();
            for index in 0..consumers {
                let env = receivers.get(index).unwrap_or(&senders[0]);
                let addresses: Vec<_> = senders
                    .iter()
                    .zip(&partitions)
                    .map(|(env, partition)| env.address(partition, index as u32))
                    .collect();
                let gate = env.gate(&addresses);
                reading.push(scope.spawn(move || {
                    let mut reader = env.reader(&gate);
                    if !keep {
                        return drain(&mut reader).unwrap();
                    }
                    let mut kept = Vec::new();
                    while let Some(Record::Batch(batch)) = reader.next(&nothing).unwrap() {
                        kept.push(batch);
                    }
                    kept.iter().flat_map(common::keys).collect()
                }));
            }
            for (number, partition) in (0_i64..).zip(&partitions) {
                scope.spawn(move || {
                    let mut writer = writer(partition);
                    for part in 0..batches {
                        let from = (number * batches + part) * rows;
                        writer.emit(&batch(from, from + rows, width), &nothing).unwrap();
                        if flush {
                            writer.flush().unwrap();
                        }
                    }
                    writer.finish().unwrap();
                    let timeout = Some(Duration::from_secs(30));
                    assert!(partition.wait_consumed(timeout, &nothing).unwrap());
                });
            }
            reading.into_iter().flat_map(|reader| reader.join().unwrap()).collect::<Vec<_>>()
        });
        seen.sort_unstable();
        prop_assert_eq!(seen, Vec::from_iter(0..total));
    }
}
