//! The I/O thread that delivers, and the reader that starts a checkpoint, in all orders of their locks:
//! what the reader processed before its snapshot and what was copied are the data before the barrier.

use std::sync::Arc;

use bytes::Bytes;
use headgate_protocol::{Alignment, ChannelStateReader, CheckpointOptions, PrioritizedDeque};
use headgate_record::event::Barrier;

use super::*;
use crate::sync::model::check;
use crate::sync::thread::spawn;
use crate::sync::{Mutex, lock};

const CHECKPOINT: CheckpointId = CheckpointId(1);

/// The part of a remote channel that both threads change.
#[derive(Default)]
struct Channel {
    received: PrioritizedDeque<(Buffer, DataType, Sequence)>,
    persisting: Persisting,
}

impl Channel {
    fn deliver(&mut self, buffer: Buffer, data_type: DataType, sequence: u32) {
        let sequence = Sequence(sequence);
        if data_type.is_buffer() {
            self.persisting.on_data(&buffer, data_type);
        } else {
            self.persisting.on_event(&buffer, data_type, sequence);
        }
        if data_type.has_priority() {
            self.received.add_priority((buffer, data_type, sequence));
        } else {
            self.received.add((buffer, data_type, sequence));
        }
    }

    fn start(&mut self) {
        let waiting = self.received.iter().map(|(buffer, kind, number)| (buffer, *kind, *number));
        assert!(self.persisting.start(CHECKPOINT, waiting), "there is no newer checkpoint");
    }
}

fn barrier(data_type: DataType) -> Buffer {
    let alignment = match data_type {
        DataType::PrioritizedEventBuffer => Alignment::Unaligned,
        _ => Alignment::Aligned,
    };
    let options = CheckpointOptions { alignment, snapshot: Bytes::new() };
    let barrier = Barrier { id: CHECKPOINT, timestamp: 0, options };
    Buffer::from(Event::CheckpointBarrier(barrier).encode().expect("it has sound options"))
}

fn data(number: u8) -> Buffer {
    Buffer::from(Bytes::from(vec![number]))
}

#[test]
fn what_was_processed_and_what_was_copied_are_the_data_before_the_barrier() {
    for kind in [DataType::PrioritizedEventBuffer, DataType::AlignedCheckpointBarrier] {
        for processed_first in 0..3 {
            check(move || {
                let channel = Arc::new(Mutex::new(Channel::default()));
                let other = Arc::clone(&channel);
                let io = spawn(move || {
                    lock(&other).deliver(data(0), DataType::DataBuffer, 0);
                    lock(&other).deliver(data(1), DataType::DataBuffer, 1);
                    lock(&other).deliver(barrier(kind), kind, 2);
                    lock(&other).deliver(data(3), DataType::DataBuffer, 3);
                });
                let mut processed = Vec::new();
                let mut has_barrier = false;
                for _ in 0..processed_first {
                    let taken = lock(&channel).received.poll();
                    match taken {
                        Some((buffer, kind, _)) if kind.is_buffer() => {
                            processed.extend_from_slice(buffer.as_slice());
                        }
                        // The reader starts the checkpoint with its barrier, before further data.
                        Some(_) => {
                            has_barrier = true;
                            break;
                        }
                        None => {}
                    }
                }
                lock(&channel).start();
                io.join().expect("no panic");
                let mut channel = lock(&channel);
                channel.persisting.stop(CHECKPOINT);
                let part = channel.persisting.take(CHECKPOINT).expect("it was started").finish();
                for buffer in ChannelStateReader::new(&part) {
                    processed.extend_from_slice(buffer.expect("its checksum is right").payload);
                }
                assert_eq!(processed, [0, 1], "barrier read first: {has_barrier}");
            });
        }
    }
}
