//! `ArrowWriter` and `BytesWriter`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::{RecordBatch, UInt32Array};
use bytes::Bytes;
use headgate_exchange::{
    ArrowWriter as ArrowInner, BufferTimeout, BytesWriter as BytesInner, Counters, DataType,
    Emitted, ExchangeError, Interrupt, Result, ResultPartition as Partition, ShuffleEnvironment,
};
use headgate_record::StopMode;
use headgate_record::{Event, HashError, SelectError, Selector, SplitMix64};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3_arrow::input::AnyRecordBatch;
use pyo3_arrow::{PyArray, PyRecordBatch, PySchema};

use crate::batches::{FromPyarrow, pinned};
use crate::errors::{of_hash, to_py};
use crate::interrupt::{blocking, lock};
use crate::output::{back_pressured_ns, is_available, wait_available};
use crate::partition::ResultPartition;
use crate::schema::page_schema;

/// A selector's kind and its values, as `headgate.selectors` names them.
type Choice<'py> = (String, Bound<'py, PyTuple>);

fn selector(py: Python<'_>, schema: Option<&PySchema>, choice: &Choice<'_>) -> PyResult<Selector> {
    let (kind, values) = choice;
    let schema =
        || schema.map(AsRef::as_ref).ok_or_else(|| to_py(py, &SelectError::NoColumns.into()));
    let of_hash = |error: HashError| of_hash(&error).into_py(py);
    Ok(match kind.as_str() {
        "broadcast" => Selector::Broadcast,
        "hash" => {
            let (columns,) = values.extract::<(Vec<String>,)>()?;
            Selector::hash_by_name(schema()?, &columns).map_err(of_hash)?
        }
        "key_group" => {
            let (column, max_parallelism) = values.extract::<(String, u32)>()?;
            Selector::key_group_by_name(schema()?, &column, max_parallelism).map_err(of_hash)?
        }
        "one" => Selector::One(values.extract::<(u32,)>()?.0),
        "round_robin" => {
            let (next, first, last, by_rows) = values.extract::<(u32, u32, u32, bool)>()?;
            Selector::RoundRobin { next, group: Some(first..last), by_rows }
        }
        "shuffle" => {
            let (seed, by_rows) = values.extract::<(u64, bool)>()?;
            Selector::Shuffle { random: SplitMix64::new(seed), by_rows }
        }
        _ => return Err(PyTypeError::new_err(format!("{kind} is no selector"))),
    })
}

/// Seconds; 0 flushes each record, less than that is never.
fn buffer_timeout(seconds: f64) -> BufferTimeout {
    if seconds == 0.0 {
        return BufferTimeout::EveryRecord;
    }
    // What no duration holds, below or above, is never.
    Duration::try_from_secs_f64(seconds).map_or(BufferTimeout::Never, BufferTimeout::After)
}

fn event(name: String, body: Vec<u8>) -> Event {
    Event::Custom { name, body: Bytes::from(body) }
}

/// How an event travels, by its number on the wire.
fn data_type(number: u8) -> PyResult<DataType> {
    DataType::try_from(number).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Every batch of a capsule producer, one after the other; `known` is the schema that most of them have.
/// What a batch keeps is asked for where it has so many bytes.
fn for_each_batch(
    py: Python<'_>,
    known: &FromPyarrow,
    large: usize,
    batches: &Bound<'_, PyAny>,
    mut each: impl FnMut(Emitted<'_>, Interrupt<'_>) -> Result<()> + Send,
) -> PyResult<()> {
    let mut one = |batch: &RecordBatch| {
        let bytes: usize = batch.columns().iter().map(|it| it.get_buffer_memory_size()).sum();
        let pinned = if bytes < large { 0 } else { pinned(batches)? };
        blocking(py, |interrupt| each(Emitted { batch, pinned }, interrupt))
    };
    if let Some(batch) = known.take(py, batches)? {
        return one(&batch);
    }
    match batches.extract::<AnyRecordBatch>()? {
        AnyRecordBatch::RecordBatch(batch) => one(&batch.into_inner()),
        AnyRecordBatch::Stream(stream) => {
            // The stream's own producer may need the GIL for each batch, so it is not detached.
            for batch in stream.into_reader()? {
                let batch = batch.map_err(|error| PyTypeError::new_err(error.to_string()))?;
                blocking(py, |interrupt| each((&batch).into(), interrupt))?;
            }
            Ok(())
        }
    }
}

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct ArrowWriter {
    environment: Arc<ShuffleEnvironment>,
    partition: Arc<Partition>,
    counters: Arc<Counters>,
    batches: FromPyarrow,
    inner: Mutex<ArrowInner>,
}

impl ArrowWriter {
    fn for_each_batch(
        &self,
        py: Python<'_>,
        batches: &Bound<'_, PyAny>,
        each: impl FnMut(Emitted<'_>, Interrupt<'_>) -> Result<()> + Send,
    ) -> PyResult<()> {
        let large = Emitted::least_in_pieces(self.environment.config().segment_size);
        for_each_batch(py, &self.batches, large, batches, each)
    }
}

#[pymethods]
impl ArrowWriter {
    #[new]
    #[pyo3(signature = (partition, schema, selector, *, timeout=-1.0))]
    fn new(
        py: Python<'_>,
        partition: &ResultPartition,
        schema: PySchema,
        selector: Choice<'_>,
        timeout: f64,
    ) -> PyResult<Self> {
        let selector = self::selector(py, Some(&schema), &selector)?;
        let batches = FromPyarrow::new(py, &schema)?;
        let schema = page_schema(py, schema)?;
        let environment = Arc::clone(&partition.environment);
        let partition = Arc::clone(&partition.inner);
        let limit = environment.config().max_record_size;
        let inner = blocking(py, |_| {
            environment.check()?;
            ArrowInner::new(partition, schema, selector, limit)?
                .with_buffer_timeout(buffer_timeout(timeout), &environment)
        })?;
        let (partition, counters) = (Arc::clone(inner.partition()), Arc::clone(inner.counters()));
        Ok(Self { environment, partition, counters, batches, inner: Mutex::new(inner) })
    }

    fn emit(&self, py: Python<'_>, batches: &Bound<'_, PyAny>) -> PyResult<()> {
        self.for_each_batch(py, batches, |batch, interrupt| {
            self.environment.check()?;
            lock(&self.inner, interrupt)?.emit(batch, interrupt)
        })
    }

    fn emit_to(&self, py: Python<'_>, batch: PyRecordBatch, channels: PyArray) -> PyResult<()> {
        let batch = batch.into_inner();
        let (channels, _) = channels.into_inner();
        let channels = channels
            .as_any()
            .downcast_ref::<UInt32Array>()
            .ok_or_else(|| PyTypeError::new_err("channel numbers are uint32"))?;
        blocking(py, |interrupt| {
            self.environment.check()?;
            lock(&self.inner, interrupt)?.emit_to(&batch, channels.values(), interrupt)
        })
    }

    fn broadcast_emit(&self, py: Python<'_>, batches: &Bound<'_, PyAny>) -> PyResult<()> {
        self.for_each_batch(py, batches, |batch, interrupt| {
            self.environment.check()?;
            lock(&self.inner, interrupt)?.broadcast_emit(batch, interrupt)
        })
    }

    fn random_emit(&self, py: Python<'_>, batches: &Bound<'_, PyAny>) -> PyResult<()> {
        self.for_each_batch(py, batches, |batch, interrupt| {
            self.environment.check()?;
            lock(&self.inner, interrupt)?.random_emit(batch, interrupt)
        })
    }

    fn broadcast_event(
        &self,
        py: Python<'_>,
        name: String,
        body: Vec<u8>,
        data_type: u8,
    ) -> PyResult<()> {
        let data_type = self::data_type(data_type)?;
        blocking(py, |interrupt| {
            self.environment.check()?;
            lock(&self.inner, interrupt)?.broadcast_event_as(&event(name, body), data_type)
        })
    }

    fn end_of_data(&self, py: Python<'_>, drain: bool) -> PyResult<()> {
        let mode = if drain { StopMode::Drain } else { StopMode::NoDrain };
        blocking(py, |interrupt| {
            self.environment.check()?;
            lock(&self.inner, interrupt)?.end_of_data(mode)
        })
    }

    fn end_of_superstep(&self, py: Python<'_>) -> PyResult<()> {
        blocking(py, |interrupt| {
            self.environment.check()?;
            lock(&self.inner, interrupt)?.broadcast_event(&Event::EndOfSuperstep)
        })
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        blocking(py, |interrupt| {
            self.environment.check()?;
            lock(&self.inner, interrupt)?.flush()
        })
    }

    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        blocking(py, |interrupt| {
            self.environment.check()?;
            lock(&self.inner, interrupt)?.finish()
        })
    }

    fn fail(&self, py: Python<'_>, cause: String) -> PyResult<()> {
        blocking(py, |_| {
            self.environment.check()?;
            self.partition.fail(&ExchangeError::Aborted(cause));
            Ok(())
        })
    }

    fn is_available(&self, py: Python<'_>) -> PyResult<bool> {
        is_available(py, &self.environment, &self.partition)
    }

    #[pyo3(signature = (timeout=None))]
    fn wait_available(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        wait_available(py, &self.environment, &self.partition, timeout)
    }

    fn back_pressured_ns(&self, py: Python<'_>) -> PyResult<u64> {
        back_pressured_ns(py, &self.environment, &self.partition)
    }

    fn stats(&self, py: Python<'_>) -> PyResult<(u64, u64, u64)> {
        self.environment.check_fork().map_err(|error| to_py(py, &error))?;
        Ok((self.counters.rows(), self.counters.bytes(), self.counters.buffers()))
    }
}

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct BytesWriter {
    environment: Arc<ShuffleEnvironment>,
    partition: Arc<Partition>,
    counters: Arc<Counters>,
    inner: Mutex<BytesInner>,
}

#[pymethods]
impl BytesWriter {
    #[new]
    #[pyo3(signature = (partition, selector, *, timeout=-1.0))]
    fn new(
        py: Python<'_>,
        partition: &ResultPartition,
        selector: Choice<'_>,
        timeout: f64,
    ) -> PyResult<Self> {
        let selector = self::selector(py, None, &selector)?;
        let environment = Arc::clone(&partition.environment);
        let partition = Arc::clone(&partition.inner);
        let limit = environment.config().max_record_size;
        let inner = blocking(py, |_| {
            environment.check()?;
            BytesInner::new(partition, selector, limit)?
                .with_buffer_timeout(buffer_timeout(timeout), &environment)
        })?;
        let (partition, counters) = (Arc::clone(inner.partition()), Arc::clone(inner.counters()));
        Ok(Self { environment, partition, counters, inner: Mutex::new(inner) })
    }

    fn emit(&self, py: Python<'_>, record: Vec<u8>) -> PyResult<()> {
        let record = Bytes::from(record);
        blocking(py, |interrupt| {
            self.environment.check()?;
            lock(&self.inner, interrupt)?.emit(&record, interrupt)
        })
    }

    fn emit_to(&self, py: Python<'_>, record: Vec<u8>, channel: u32) -> PyResult<()> {
        blocking(py, |interrupt| {
            self.environment.check()?;
            lock(&self.inner, interrupt)?.emit_to(channel, Bytes::from(record), interrupt)
        })
    }

    fn broadcast_emit(&self, py: Python<'_>, record: Vec<u8>) -> PyResult<()> {
        let record = Bytes::from(record);
        blocking(py, |interrupt| {
            self.environment.check()?;
            lock(&self.inner, interrupt)?.broadcast_emit(&record, interrupt)
        })
    }

    fn random_emit(&self, py: Python<'_>, record: Vec<u8>) -> PyResult<()> {
        let record = Bytes::from(record);
        blocking(py, |interrupt| {
            self.environment.check()?;
            lock(&self.inner, interrupt)?.random_emit(&record, interrupt)
        })
    }

    fn broadcast_event(
        &self,
        py: Python<'_>,
        name: String,
        body: Vec<u8>,
        data_type: u8,
    ) -> PyResult<()> {
        let data_type = self::data_type(data_type)?;
        blocking(py, |interrupt| {
            self.environment.check()?;
            lock(&self.inner, interrupt)?.broadcast_event_as(&event(name, body), data_type)
        })
    }

    fn end_of_data(&self, py: Python<'_>, drain: bool) -> PyResult<()> {
        let mode = if drain { StopMode::Drain } else { StopMode::NoDrain };
        blocking(py, |interrupt| {
            self.environment.check()?;
            lock(&self.inner, interrupt)?.end_of_data(mode)
        })
    }

    fn end_of_superstep(&self, py: Python<'_>) -> PyResult<()> {
        blocking(py, |interrupt| {
            self.environment.check()?;
            lock(&self.inner, interrupt)?.broadcast_event(&Event::EndOfSuperstep)
        })
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        blocking(py, |interrupt| {
            self.environment.check()?;
            lock(&self.inner, interrupt)?.flush()
        })
    }

    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        blocking(py, |interrupt| {
            self.environment.check()?;
            lock(&self.inner, interrupt)?.finish()
        })
    }

    fn fail(&self, py: Python<'_>, cause: String) -> PyResult<()> {
        blocking(py, |_| {
            self.environment.check()?;
            self.partition.fail(&ExchangeError::Aborted(cause));
            Ok(())
        })
    }

    fn is_available(&self, py: Python<'_>) -> PyResult<bool> {
        is_available(py, &self.environment, &self.partition)
    }

    #[pyo3(signature = (timeout=None))]
    fn wait_available(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        wait_available(py, &self.environment, &self.partition, timeout)
    }

    fn back_pressured_ns(&self, py: Python<'_>) -> PyResult<u64> {
        back_pressured_ns(py, &self.environment, &self.partition)
    }

    fn stats(&self, py: Python<'_>) -> PyResult<(u64, u64, u64)> {
        self.environment.check_fork().map_err(|error| to_py(py, &error))?;
        Ok((self.counters.rows(), self.counters.bytes(), self.counters.buffers()))
    }
}
