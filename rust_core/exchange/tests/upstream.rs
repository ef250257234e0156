//! What goes against the flow, over both kinds of channel.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use common::{Env, RECORD_LIMIT, nothing};
use headgate_exchange::{BytesWriter, DataInput, DataType, ExchangeError, InputGate};
use headgate_record::Selector;

fn next_size(gate: &InputGate) -> Option<(DataType, usize)> {
    let received = gate.next(&nothing).unwrap()?;
    Some((received.data_type, received.buffer.len()))
}

/// Sizes of the data buffers that are left.
fn sizes(gate: &InputGate) -> Vec<usize> {
    let all = std::iter::from_fn(|| next_size(gate));
    all.filter(|(data_type, _)| data_type.is_buffer()).map(|(_, size)| size).collect()
}

/// Waits until the consumer's event shows that what it said before has come, too.
fn come(partition: &headgate_exchange::ResultPartition, gates: &[Arc<InputGate>]) {
    for gate in gates {
        gate.send_task_event("said", Bytes::new()).unwrap();
    }
    for _ in gates {
        while partition.take_task_event().is_none() {
            nothing().unwrap();
            std::thread::yield_now();
        }
    }
}

#[test]
fn spec_4_11_buffers_hold_what_their_consumer_wishes_for() {
    for local in [true, false] {
        let (producer, other) = (Env::new(16, 4096), Env::new(16, 4096));
        let consumer = if local { &producer } else { &other };
        let partition = producer.partition(2);
        partition.subscribe_task_event("said").unwrap();
        let selector = Selector::RoundRobin { next: 0, group: None, by_rows: false };
        let mut writer = BytesWriter::new(Arc::clone(&partition), selector, RECORD_LIMIT).unwrap();
        let gates = [0, 1].map(|index| {
            let gate = consumer.0.create_input_gate().unwrap();
            let address = producer.address(&partition, index);
            consumer.0.add_channel(&gate, &address, [0; 32]).unwrap();
            gate.seal();
            gate
        });
        for (gate, size) in gates.iter().zip([10, 6]) {
            gate.announce_buffer_size(NonZeroU32::new(size).unwrap());
        }
        come(&partition, &gates);
        // With its length a record of 2 bytes takes 6, one of 10 takes 14, one of 20 takes 24.
        for size in [2, 2, 10, 10, 20, 20] {
            writer.emit(&Bytes::from(vec![1; size]), &nothing).unwrap();
        }
        writer.finish().unwrap();
        assert_eq!(sizes(&gates[0]), [10, 10, 24], "the wish is 10");
        assert_eq!(sizes(&gates[1]), [6, 14, 24], "the wish is 6: the first record fits whole");
        assert!(partition.wait_consumed(None, &nothing).unwrap());
    }
}

#[test]
fn a_closed_gate_tells_nobody_anything() {
    let env = Env::new(16, 4096);
    let partition = env.partition(1);
    let gate = env.gate(&[env.address(&partition, 0)]);
    gate.close();
    gate.announce_buffer_size(NonZeroU32::MIN);
    let sent = gate.send_task_event("late", Bytes::new());
    assert!(matches!(sent, Err(ExchangeError::Closed(_))), "{sent:?}");
    assert!(gate.resume_consumption(0).is_err());
}
