//! One environment or two, and a partition between them.

#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use headgate_exchange::{
    Config, DataInput, ExchangeError, InputGate, PartitionKind, PartitionOptions, RecordReader,
    ResultPartition, Tls,
};

use crate::common::{Env, batch, config, drain, nothing, writer};

pub(crate) const KINDS: [PartitionKind; 4] = [
    PartitionKind::Pipelined,
    PartitionKind::PipelinedBounded,
    PartitionKind::Blocking,
    PartitionKind::Hybrid,
];

/// The environments of a producer and a consumer: one environment, or two that are connected over TCP, over
/// TLS or within the host.
pub(crate) struct Link {
    pub(crate) producer: Env,
    pub(crate) consumer: Option<Env>,
    config: Config,
}

impl Link {
    pub(crate) fn all(segments: usize) -> [Self; 4] {
        let config = config(segments, 4096);
        let one = Self { producer: Env::with(config.clone()), consumer: None, config };
        let (tcp, same_host) = (Self::remote(segments, false), Self::remote(segments, true));
        [one, tcp, same_host, Self::encrypted(segments)]
    }

    pub(crate) fn remote(segments: usize, same_host_link: bool) -> Self {
        Self::of_two(Config { same_host_link, ..config(segments, 4096) })
    }

    pub(crate) fn encrypted(segments: usize) -> Self {
        Self::of_two(Config { tls: Some(Tls::ephemeral().unwrap()), ..config(segments, 4096) })
    }

    fn of_two(config: Config) -> Self {
        let (producer, consumer) = (Env::with(config.clone()), Env::with(config.clone()));
        Self { producer, consumer: Some(consumer), config }
    }

    /// Another process like the consumer's.
    pub(crate) fn another(&self) -> Env {
        Env::with(self.config.clone())
    }

    pub(crate) fn consumer(&self) -> &Env {
        self.consumer.as_ref().unwrap_or(&self.producer)
    }

    pub(crate) fn partition(&self, kind: PartitionKind, count: usize) -> Arc<ResultPartition> {
        let options = PartitionOptions::all(count).of_kind(kind);
        self.producer.0.create_result_partition(&options).unwrap()
    }

    pub(crate) fn gate(&self, partition: &ResultPartition, index: u32) -> Arc<InputGate> {
        self.consumer().gate(&[self.producer.address(partition, index)])
    }

    pub(crate) fn bytes_reader(&self, partition: &ResultPartition, index: u32) -> RecordReader {
        let gate = self.gate_of_bytes(partition, index);
        let copies = Arc::clone(self.consumer().0.copies());
        RecordReader::new(gate, None, self.consumer().0.spanning_options(), copies)
    }

    pub(crate) fn gate_of_bytes(&self, partition: &ResultPartition, index: u32) -> Arc<InputGate> {
        let gate = self.consumer().0.create_input_gate().unwrap();
        let address = self.producer.address(partition, index);
        self.consumer().0.add_channel(&gate, &address, [0; 32]).unwrap();
        gate.seal();
        gate
    }

    /// Writes rows into the two subpartitions of a partition and checks that each row is read once and in
    /// order.
    pub(crate) fn delivers(&self, partition: &Arc<ResultPartition>, rows: i64) {
        let read = |index| {
            let gate = self.gate(partition, index);
            let keys = drain(&mut self.consumer().reader(&gate)).unwrap();
            assert!(keys.is_sorted(), "{:?}", partition.kind());
            keys
        };
        let mut keys = thread::scope(|scope| {
            let writing = scope.spawn(|| write_rows(partition, rows));
            if partition.kind() == PartitionKind::Blocking {
                writing.join().unwrap();
            }
            let readers = [0, 1].map(|index| scope.spawn(move || read(index)));
            readers.map(|reader| reader.join().unwrap()).concat()
        });
        keys.sort_unstable();
        assert_eq!(keys, Vec::from_iter(0..rows), "{:?}", partition.kind());
        consumed(partition);
    }

    /// Returns the error of a reader that comes before the partition is readable.
    pub(crate) fn bytes_reader_error(&self, partition: &ResultPartition) -> ExchangeError {
        let gate = self.consumer().0.create_input_gate().unwrap();
        let address = self.producer.address(partition, 0);
        let added = self.consumer().0.add_channel(&gate, &address, [0; 32]);
        gate.seal();
        let error = added.and_then(|_| gate.next(&nothing)).unwrap_err();
        gate.close();
        error
    }
}

pub(crate) fn write_rows(partition: &Arc<ResultPartition>, rows: i64) {
    let mut writer = writer(partition);
    for from in (0..rows).step_by(500) {
        writer.emit(&batch(from, (from + 500).min(rows), 40), &nothing).unwrap();
    }
    writer.finish().unwrap();
}

pub(crate) fn consumed(partition: &ResultPartition) {
    assert!(partition.wait_consumed(Some(Duration::from_secs(30)), &nothing).unwrap());
}
