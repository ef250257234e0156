//! `RecordWriter`, for record batches and for bytes records.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{RecordBatch, UInt32Array};
use bytes::Bytes;
use headgate_exchange::{
    ArrowWriter, AvailabilityListener, BufferTimeout, BytesWriter, CheckpointId, Counters,
    DataType, Emitted, ExchangeError, Interrupt, Result, ResultPartition as Partition,
    ShuffleEnvironment,
};
use headgate_record::key_group::Key;
use headgate_record::{Event, HashError, SelectError, Selector, StopMode};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3_arrow::PySchema;
use pyo3_arrow::input::AnyRecordBatch;

use crate::arrays::{self, Batch, Column, check_batch};
use crate::batches::{FromPyarrow, pinned};
use crate::checkpoints;
use crate::errors::{of_hash, to_py};
use crate::exclusive::{Exclusive, Guard};
use crate::input::AnyGate;
use crate::interrupt::{blocking, timeout_of};
use crate::partition::ResultPartition;
use crate::schema::page_schema;

/// Returns true for the name of an event that is not the user's.
#[pyfunction]
pub(crate) fn is_reserved_event(name: &str) -> bool {
    Event::is_reserved(name)
}

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct RecordWriter {
    environment: Arc<ShuffleEnvironment>,
    partition: Arc<Partition>,
    counters: Arc<Counters>,
    writer: Writer,
}

/// The exchange's writer of one kind of record.
enum Writer {
    Arrow { writer: Exclusive<ArrowWriter>, batches: FromPyarrow },
    Bytes(Exclusive<BytesWriter>),
}

/// The subpartitions that a record goes to, unless the caller names them.
#[derive(Clone, Copy)]
enum Route {
    Selected,
    All,
    Random,
}

/// Calls the same method of the writer of either kind, without the GIL.
macro_rules! locked {
    ($self:ident, $py:ident, $method:ident($($argument:expr),*)) => {
        blocking($py, |interrupt| {
            match &$self.writer {
                Writer::Arrow { writer, .. } => $self.lock(writer, interrupt)?.$method($($argument),*),
                Writer::Bytes(writer) => $self.lock(writer, interrupt)?.$method($($argument),*),
            }
        })
    };
}

#[pymethods]
impl RecordWriter {
    /// Writes record batches of the schema, or bytes records if there is none.
    #[new]
    #[pyo3(signature = (partition, selector, schema=None, *, timeout=-1.0))]
    fn new(
        py: Python<'_>,
        partition: &ResultPartition,
        selector: Choice<'_>,
        schema: Option<PySchema>,
        timeout: f64,
    ) -> PyResult<Self> {
        let selector = self::selector(py, schema.as_ref(), &selector)?;
        let timeout = buffer_timeout(timeout);
        let environment = Arc::clone(&partition.environment);
        let partition = Arc::clone(&partition.inner);
        let limit = environment.config().max_record_size;
        let (counters, writer) = match schema {
            Some(schema) => {
                let batches = FromPyarrow::new(py, &schema)?;
                let schema = page_schema(py, schema)?;
                let writer = blocking(py, |_| {
                    environment.check()?;
                    ArrowWriter::new(Arc::clone(&partition), schema, selector, limit)?
                        .with_buffer_timeout(timeout, &environment)
                })?;
                let counters = Arc::clone(writer.counters());
                (counters, Writer::Arrow { writer: Exclusive::new(writer), batches })
            }
            None => {
                let writer = blocking(py, |_| {
                    environment.check()?;
                    BytesWriter::new(Arc::clone(&partition), selector, limit)?
                        .with_buffer_timeout(timeout, &environment)
                })?;
                (Arc::clone(writer.counters()), Writer::Bytes(Exclusive::new(writer)))
            }
        };
        Ok(Self { environment, partition, counters, writer })
    }

    fn emit(&self, py: Python<'_>, record: &Bound<'_, PyAny>) -> PyResult<()> {
        self.emit_by(py, record, Route::Selected)
    }

    /// Emits each row to the channel that a `uint32` array names for it, or a bytes record to one
    /// channel.
    fn emit_to(
        &self,
        py: Python<'_>,
        record: &Bound<'_, PyAny>,
        channels: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        match &self.writer {
            Writer::Arrow { writer, .. } => {
                let batch = record.extract::<Batch>()?.into_inner();
                let channels = channels.extract::<Column>()?.into_inner();
                let channels = channels
                    .as_any()
                    .downcast_ref::<UInt32Array>()
                    .ok_or_else(|| PyTypeError::new_err("channel numbers are uint32"))?;
                blocking(py, |interrupt| {
                    self.lock(writer, interrupt)?.emit_to(&batch, channels.values(), interrupt)
                })
            }
            Writer::Bytes(writer) => {
                let record = Bytes::from(record.extract::<Vec<u8>>()?);
                let channel = channels.extract()?;
                blocking(py, |interrupt| {
                    self.lock(writer, interrupt)?.emit_to(channel, record, interrupt)
                })
            }
        }
    }

    fn broadcast_emit(&self, py: Python<'_>, record: &Bound<'_, PyAny>) -> PyResult<()> {
        self.emit_by(py, record, Route::All)
    }

    fn random_emit(&self, py: Python<'_>, record: &Bound<'_, PyAny>) -> PyResult<()> {
        self.emit_by(py, record, Route::Random)
    }

    fn broadcast_event(
        &self,
        py: Python<'_>,
        name: String,
        body: Vec<u8>,
        data_type: u8,
    ) -> PyResult<()> {
        let data_type = DataType::try_from(data_type)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        let event = Event::Custom { name, body: Bytes::from(body) };
        locked!(self, py, broadcast_event_as(&event, data_type))
    }

    fn broadcast_barrier(&self, py: Python<'_>, barrier: checkpoints::PyBarrier) -> PyResult<()> {
        let barrier = checkpoints::barrier(barrier)?;
        locked!(self, py, broadcast_barrier(&barrier, &self.environment))
    }

    fn broadcast_cancellation(&self, py: Python<'_>, checkpoint_id: i64) -> PyResult<()> {
        locked!(self, py, broadcast_cancellation(CheckpointId(checkpoint_id)))
    }

    /// Returns the subpartitions that have data in flight, with that data; `None` while it is not
    /// known which.
    fn take_channel_state<'py>(
        &self,
        py: Python<'py>,
        checkpoint: i64,
    ) -> PyResult<Option<checkpoints::PyStates<'py>>> {
        let states = locked!(self, py, take_channel_state(CheckpointId(checkpoint)))?;
        Ok(states.map(|states| checkpoints::to_python(py, &states)))
    }

    fn end_of_data(&self, py: Python<'_>, drain: bool) -> PyResult<()> {
        let mode = if drain { StopMode::Drain } else { StopMode::NoDrain };
        locked!(self, py, end_of_data(mode))
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        locked!(self, py, flush())
    }

    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        locked!(self, py, finish())
    }

    fn fail(&self, py: Python<'_>, cause: String) -> PyResult<()> {
        blocking(py, |_| {
            self.environment.check()?;
            self.partition.fail(&ExchangeError::Aborted(cause));
            Ok(())
        })
    }

    /// Takes no lock of the writer, so that it answers while another thread emits.
    fn is_available(&self, py: Python<'_>) -> PyResult<bool> {
        blocking(py, |_| {
            self.environment.check_fork()?;
            Ok(self.partition.is_available())
        })
    }

    #[pyo3(signature = (timeout=None))]
    fn wait_available(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let timeout = timeout_of(timeout)?;
        blocking(py, |interrupt| {
            self.environment.check()?;
            self.partition.wait_available(timeout, interrupt)
        })
    }

    fn wake_up(&self, py: Python<'_>) -> PyResult<()> {
        blocking(py, |_| {
            self.environment.check_fork()?;
            self.partition.wake_up();
            Ok(())
        })
    }

    /// Lets priority events of a gate call `wake_up`.
    fn wake_up_on_priority_events(&self, py: Python<'_>, gate: AnyGate<'_>) -> PyResult<()> {
        let input = gate.input();
        blocking(py, |_| {
            self.environment.check_fork()?;
            let listener: Arc<dyn AvailabilityListener> = Arc::<Partition>::clone(&self.partition);
            input.add_listener(Arc::downgrade(&listener));
            Ok(())
        })
    }

    fn back_pressured_ns(&self, py: Python<'_>) -> PyResult<u64> {
        blocking(py, |_| {
            self.environment.check_fork()?;
            Ok(self.partition.back_pressured_ns())
        })
    }

    /// Rows or records, bytes and buffers emitted so far.
    fn stats(&self, py: Python<'_>) -> PyResult<(u64, u64, u64)> {
        self.environment.check_fork().map_err(|error| to_py(py, &error))?;
        Ok((self.counters.rows(), self.counters.bytes(), self.counters.buffers()))
    }
}

impl RecordWriter {
    /// Takes the lock of the writer. Before, it frees the memory of batches that were sent: that may
    /// run finalizers in Python, which may use this writer.
    fn lock<'a, T>(
        &self,
        writer: &'a Exclusive<T>,
        interrupt: Interrupt<'_>,
    ) -> Result<Guard<'a, T>> {
        self.environment.check()?;
        self.environment.release_foreign();
        writer.lock(interrupt)
    }

    fn emit_by(&self, py: Python<'_>, record: &Bound<'_, PyAny>, route: Route) -> PyResult<()> {
        match &self.writer {
            Writer::Arrow { writer, batches } => {
                let large = Emitted::least_in_pieces(self.environment.config().segment_size);
                for_each_batch(py, batches, large, record, |batch, interrupt| {
                    let mut writer = self.lock(writer, interrupt)?;
                    match route {
                        Route::Selected => writer.emit(batch, interrupt),
                        Route::All => writer.broadcast_emit(batch, interrupt),
                        Route::Random => writer.random_emit(batch, interrupt),
                    }
                })
            }
            Writer::Bytes(writer) => {
                let record = Bytes::from(record.extract::<Vec<u8>>()?);
                blocking(py, |interrupt| {
                    let mut writer = self.lock(writer, interrupt)?;
                    match route {
                        Route::Selected => writer.emit(&record, interrupt),
                        Route::All => writer.broadcast_emit(&record, interrupt),
                        Route::Random => writer.random_emit(&record, interrupt),
                    }
                })
            }
        }
    }
}

/// Calls `each` with every batch of a capsule producer, in order. `known` takes batches of the
/// writer's own schema without importing it again.
///
/// Asks Python for the memory that a batch keeps alive only if the batch has at least `large` bytes: see
/// docs/adr/0021-pages-in-pieces.md.
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
    match arrays::batches(batches)? {
        AnyRecordBatch::RecordBatch(batch) => one(&batch.into_inner()),
        AnyRecordBatch::Stream(stream) => {
            // Attached: the stream's producer may be Python code.
            for batch in stream.into_reader()? {
                let batch = batch.map_err(|error| PyTypeError::new_err(error.to_string()))?;
                check_batch(py, &batch)?;
                blocking(py, |interrupt| each((&batch).into(), interrupt))?;
            }
            Ok(())
        }
    }
}

/// The kind and the arguments of a selector, from `headgate.selectors.native_choice`.
type Choice<'py> = (String, Bound<'py, PyTuple>);

fn selector(py: Python<'_>, schema: Option<&PySchema>, choice: &Choice<'_>) -> PyResult<Selector> {
    let (kind, values) = choice;
    let schema =
        || schema.map(AsRef::as_ref).ok_or_else(|| to_py(py, &SelectError::NoColumns.into()));
    let of_hash = |error: HashError| of_hash(&error).into_py(py);
    Ok(match kind.as_str() {
        "broadcast" => Selector::Broadcast,
        "hash" => {
            let (columns,) = values.extract::<(Vec<Vec<String>>,)>()?;
            Selector::hash_by_name(schema()?, &columns).map_err(of_hash)?
        }
        "key_group" => {
            let (column, max_parallelism) = values.extract::<(String, u32)>()?;
            let key = Key::flink(schema()?, &column).map_err(of_hash)?;
            Selector::KeyGroup { key, max_parallelism }
        }
        "key_group_of_state" => {
            let (columns, max_parallelism) = values.extract::<(Vec<String>, u32)>()?;
            let key = Key::of_state_by_name(schema()?, &columns).map_err(of_hash)?;
            Selector::KeyGroup { key, max_parallelism }
        }
        "least_loaded" => Selector::LeastLoaded { next: values.extract::<(u32,)>()?.0 },
        "one" => Selector::One(values.extract::<(u32,)>()?.0),
        "round_robin" => {
            let (next, first, last, by_rows) = values.extract::<(u32, u32, u32, bool)>()?;
            Selector::RoundRobin { next, group: Some(first..last), by_rows }
        }
        "shuffle" => {
            let (seed, by_rows) = values.extract::<(u64, bool)>()?;
            Selector::shuffle(seed, by_rows)
        }
        _ => return Err(PyTypeError::new_err(format!("{kind} is no selector"))),
    })
}

/// Reads `buffer_timeout=` in seconds: 0 flushes after each record, a negative number never by time.
fn buffer_timeout(seconds: f64) -> BufferTimeout {
    if seconds == 0.0 {
        return BufferTimeout::EveryRecord;
    }
    // Negative numbers, and those too large for a duration, fail to convert.
    Duration::try_from_secs_f64(seconds).map_or(BufferTimeout::Never, BufferTimeout::After)
}
