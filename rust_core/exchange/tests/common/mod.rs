//! Environments that check, when they are dropped, that all segments were returned.

#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use headgate_exchange::{
    Address, ArrowWriter, BufferOptions, Config, ExchangeError, InputGate, PartitionOptions,
    Record, RecordReader, ResultPartition, ShuffleEnvironment,
};
use headgate_record::{PageSchema, Selector};

pub(crate) const SECRET: [u8; 32] = [7; 32];
pub(crate) const RECORD_LIMIT: usize = 64 << 20;

/// An interrupt that fires only if the whole test binary takes so long that something must hang.
pub(crate) fn nothing() -> Result<(), ExchangeError> {
    static START: OnceLock<Instant> = OnceLock::new();
    let started = START.get_or_init(Instant::now);
    if started.elapsed() > Duration::from_secs(100) {
        Err(ExchangeError::Interrupted("the test".to_owned()))
    } else {
        Ok(())
    }
}

/// Waits until `done`. Panics after 20 s.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "not within 20 s: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn config(segments: usize, segment_size: usize) -> Config {
    Config {
        memory: segments * segment_size,
        segment_size,
        listen: "127.0.0.1:0".to_owned(),
        secret: SECRET,
        exchange: [1; 16],
        run: 3,
        epoch: 2,
        process: None,
        max_record_size: RECORD_LIMIT,
        buffers: BufferOptions::default(),
        spill_threshold: 5_000,
        temp_directories: Vec::new(),
        partition_request_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(10),
        same_host_link: false,
        tls: None,
        buffer_debloat: None,
    }
}

/// An environment whose segments are counted when it is dropped.
pub(crate) struct Env(pub(crate) ShuffleEnvironment);

impl Env {
    pub(crate) fn new(segments: usize, segment_size: usize) -> Self {
        Self::with(config(segments, segment_size))
    }

    pub(crate) fn with(config: Config) -> Self {
        Self(ShuffleEnvironment::new(config).unwrap())
    }

    pub(crate) fn partition(&self, count: usize) -> Arc<ResultPartition> {
        self.0.create_result_partition(&PartitionOptions::all(count)).unwrap()
    }

    pub(crate) fn address(&self, partition: &ResultPartition, subpartition: u32) -> Address {
        let address = self.0.address().unwrap();
        Address {
            host: address.ip().to_string(),
            port: address.port(),
            process: self.0.process(),
            partition: partition.id(),
            subpartition,
        }
    }

    pub(crate) fn gate(&self, addresses: &[Address]) -> Arc<InputGate> {
        let gate = self.0.create_input_gate().unwrap();
        for address in addresses {
            self.0.add_channel(&gate, address, page_schema().hash()).unwrap();
        }
        gate.seal();
        gate
    }

    pub(crate) fn reader(&self, gate: &Arc<InputGate>) -> RecordReader {
        let copies = Arc::clone(self.0.copies());
        let options = self.0.spanning_options();
        RecordReader::new(Arc::<InputGate>::clone(gate), Some(page_schema()), options, copies)
    }
}

impl Drop for Env {
    fn drop(&mut self) {
        self.0.close();
        if !std::thread::panicking() {
            let pool = self.0.stats().pool;
            assert_eq!((pool.held, pool.pinned), (0, 0), "every segment is returned");
        }
    }
}

pub(crate) fn page_schema() -> Arc<PageSchema> {
    let fields =
        vec![Field::new("k", DataType::Int64, false), Field::new("s", DataType::Utf8, true)];
    Arc::new(PageSchema::try_new(Arc::new(Schema::new(fields))).unwrap())
}

/// Returns rows `from..to`, each with a string of `width` bytes made from its number.
pub(crate) fn batch(from: i64, to: i64, width: usize) -> RecordBatch {
    let keys = Int64Array::from_iter_values(from..to);
    let text = StringArray::from_iter(
        (from..to).map(|row| (row % 7 != 0).then(|| format!("{row:0width$}"))),
    );
    let schema = Arc::clone(page_schema().schema());
    RecordBatch::try_new(schema, vec![Arc::new(keys), Arc::new(text)]).unwrap()
}

pub(crate) fn writer(partition: &Arc<ResultPartition>) -> ArrowWriter {
    let selector = Selector::Hash { columns: vec![0.into()] };
    ArrowWriter::new(Arc::clone(partition), page_schema(), selector, RECORD_LIMIT).unwrap()
}

/// Returns all keys of a reader, in the order in which they arrived.
pub(crate) fn drain(reader: &mut RecordReader) -> Result<Vec<i64>, ExchangeError> {
    let mut keys = Vec::new();
    while let Some(record) = reader.next(&nothing)? {
        let Record::Batch(batch) = record else { panic!("only batches were written") };
        let column = batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap();
        keys.extend(column.values());
    }
    Ok(keys)
}

/// Returns the keys of one batch.
pub(crate) fn keys(batch: &RecordBatch) -> Vec<i64> {
    batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap().values().to_vec()
}
