//! `RecordReader` and `BufferReader`.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::task::Poll;

use arrow_array::RecordBatch;
use headgate_exchange::{
    CheckpointId, CheckpointNotice, Counters, DataInput, Interrupt, Received, Record,
    RecordReader as Inner, Result, ShuffleEnvironment,
};
use headgate_record::Event;
use pyo3::IntoPyObjectExt;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PySlice};
use pyo3_arrow::PySchema;

use crate::batches::ToPyarrow;
use crate::checkpoints::{self, PyStates, to_python};
use crate::errors::to_py;
use crate::exclusive::Exclusive;
use crate::input::AnyGate;
use crate::interrupt::{blocking, released, timeout_of};
use crate::readiness::Descriptor;
use crate::schema::page_schema;

/// A record on its way to Python. Owned, so that no lock is held while Python objects are made.
enum Out {
    Batch(RecordBatch),
    Bytes(Vec<u8>),
    Event(usize, Event),
    Checkpoint(CheckpointNotice),
}

impl From<Record> for Out {
    fn from(record: Record) -> Self {
        match record {
            Record::Batch(batch) => Self::Batch(batch),
            Record::Bytes(bytes) => Self::Bytes(bytes.to_vec()),
            Record::Event { channel, event } => Self::Event(channel, event),
            Record::Checkpoint(notice) => Self::Checkpoint(notice),
        }
    }
}

/// Returns the item, or `None` if there is none yet or the input has ended.
fn ready<T>(polled: Poll<Option<T>>) -> Option<T> {
    match polled {
        Poll::Ready(item) => item,
        Poll::Pending => None,
    }
}

fn event_tuple<'py>(py: Python<'py>, channel: usize, event: Event) -> PyResult<Bound<'py, PyAny>> {
    let (event, announced_as) = match event {
        Event::EventAnnouncement { sequence_number, announced } => {
            (*announced, Some(sequence_number.cast_unsigned()))
        }
        event => (event, None),
    };
    let (name, body) = match event {
        Event::Custom { name, body } => (name, body),
        event => (format!("{event:?}"), bytes::Bytes::new()),
    };
    let body = PyBytes::new(py, &body);
    match announced_as {
        None => (channel, name, body).into_bound_py_any(py),
        Some(sequence) => (channel, name, body, sequence).into_bound_py_any(py),
    }
}

struct State {
    reader: Inner,
    /// A bytes record that did not fit the caller's buffer; the next read returns it.
    held: Option<bytes::Bytes>,
}

impl State {
    fn next(&mut self, interrupt: Interrupt<'_>) -> Result<Option<Record>> {
        match self.held.take() {
            Some(record) => Ok(Some(Record::Bytes(record))),
            None => self.reader.next(interrupt),
        }
    }

    fn poll_next(&mut self) -> Result<Option<Record>> {
        match self.held.take() {
            Some(record) => Ok(Some(Record::Bytes(record))),
            None => self.reader.poll_next().map(ready),
        }
    }

    fn poll_priority_event(&mut self) -> Result<Option<Record>> {
        match self.held.take() {
            Some(record) => Ok(Some(Record::Bytes(record))),
            None => self.reader.poll_priority_event().map(ready),
        }
    }

    fn is_available(&self) -> bool {
        self.held.is_some() || self.reader.is_available()
    }
}

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct RecordReader {
    environment: Arc<ShuffleEnvironment>,
    counters: Arc<Counters>,
    input: Arc<dyn DataInput>,
    descriptor: Descriptor,
    /// Present for a reader of batches.
    batches: Option<ToPyarrow>,
    inner: Exclusive<State>,
}

impl RecordReader {
    fn record<'py>(&self, py: Python<'py>, record: Option<Out>) -> PyResult<Bound<'py, PyAny>> {
        match record {
            None => Ok(py.None().into_bound(py)),
            Some(Out::Batch(batch)) => self.batch(py, batch),
            Some(Out::Bytes(bytes)) => Ok(PyBytes::new(py, &bytes).into_any()),
            Some(Out::Event(channel, event)) => event_tuple(py, channel, event),
            Some(Out::Checkpoint(notice)) => checkpoints::notice(py, notice),
        }
    }

    /// Asks the reader or, while another thread holds its lock, its input.
    fn ask(
        &self,
        py: Python<'_>,
        reader: impl FnOnce(&State) -> bool + Send,
        input: impl FnOnce(&dyn DataInput) -> bool + Send,
    ) -> PyResult<bool> {
        blocking(py, |_| {
            self.environment.check_fork()?;
            Ok(match self.inner.try_lock() {
                Some(state) => reader(&state),
                None => input(&*self.input),
            })
        })
    }

    fn batch<'py>(&self, py: Python<'py>, batch: RecordBatch) -> PyResult<Bound<'py, PyAny>> {
        self.batches.as_ref().expect("only a reader with a schema reads batches").import(py, batch)
    }
}

#[pymethods]
impl RecordReader {
    #[new]
    #[pyo3(signature = (gate, schema=None, batch_bytes=0))]
    fn new(
        py: Python<'_>,
        gate: AnyGate<'_>,
        schema: Option<PySchema>,
        batch_bytes: usize,
    ) -> PyResult<Self> {
        let batches = schema.as_ref().map(|schema| ToPyarrow::new(py, schema)).transpose()?;
        let schema = schema.map(|schema| page_schema(py, schema)).transpose()?;
        let environment = Arc::clone(gate.environment());
        let spanning = environment.spanning_options();
        let copies = Arc::clone(environment.copies());
        let input = gate.input();
        let mut reader = Inner::new(Arc::clone(&input), schema, spanning, copies);
        if batch_bytes > 0 {
            reader = reader.with_batch_bytes(batch_bytes);
        }
        let counters = Arc::clone(reader.counters());
        let inner = Exclusive::new(State { reader, held: None });
        Ok(Self { environment, counters, input, descriptor: Descriptor::default(), batches, inner })
    }

    /// Returns a pyarrow `RecordBatch`, `bytes`, or a tuple `(channel, name, body)` for an event. An
    /// announced event has its sequence number as a fourth field. The progress of a checkpoint is an
    /// object of `headgate.checkpoints`, also a tuple. `None` is the end of the input.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let record = blocking(py, |interrupt| {
            self.environment.check()?;
            Ok(self.inner.lock(interrupt)?.next(interrupt)?.map(Out::from))
        })?;
        self.record(py, record)
    }

    /// Like `next`, but returns `None` instead of blocking.
    fn poll_next<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let record = blocking(py, |interrupt| {
            self.environment.check()?;
            Ok(self.inner.lock(interrupt)?.poll_next()?.map(Out::from))
        })?;
        self.record(py, record)
    }

    /// Like `poll_next`, but takes only priority events from the input.
    fn poll_priority_event<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let record = blocking(py, |interrupt| {
            self.environment.check()?;
            Ok(self.inner.lock(interrupt)?.poll_priority_event()?.map(Out::from))
        })?;
        self.record(py, record)
    }

    /// Copies the next bytes record into `buffer` and returns its length, a tuple for an event, or
    /// `None` at the end. Returns the negative length of a record that does not fit, and keeps it for
    /// the next call.
    fn next_into<'py>(
        &self,
        py: Python<'py>,
        buffer: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let target = PyBuffer::<u8>::get(buffer)?;
        if target.readonly() || target.dimensions() != 1 {
            return Err(PyBufferError::new_err(format!(
                "a record is read into writable contiguous bytes, and {} is not such a buffer",
                buffer.get_type()
            )));
        }
        let room = target.len_bytes();
        let record = blocking(py, |interrupt| {
            self.environment.check()?;
            let mut state = self.inner.lock(interrupt)?;
            let record = state.next(interrupt)?;
            if let Some(Record::Bytes(record)) = &record
                && record.len() > room
            {
                state.held = Some(record.clone());
            }
            Ok(record)
        })?;
        match record {
            None => Ok(py.None().into_bound(py)),
            Some(Record::Bytes(record)) if record.len() > room => {
                let length = i64::try_from(record.len()).unwrap_or(i64::MAX);
                (-length).into_bound_py_any(py)
            }
            Some(Record::Bytes(record)) => {
                let length = record.len();
                let start = PyMemoryView::from(buffer)?.get_item(PySlice::new(
                    py,
                    0,
                    isize::try_from(length)?,
                    1,
                ))?;
                PyBuffer::<u8>::get(&start)?.copy_from_slice(py, &record)?;
                released(py, || drop(record));
                length.into_bound_py_any(py)
            }
            Some(Record::Event { channel, event }) => event_tuple(py, channel, event),
            Some(Record::Checkpoint(notice)) => checkpoints::notice(py, notice),
            Some(Record::Batch(batch)) => self.batch(py, batch),
        }
    }

    /// Lets the reader go on after a checkpoint was triggered.
    fn snapshot_taken(&self, py: Python<'_>, checkpoint: i64) -> PyResult<()> {
        blocking(py, |interrupt| {
            self.inner.lock(interrupt)?.reader.snapshot_taken(CheckpointId(checkpoint))
        })
    }

    /// Returns the channels that have data in flight of a complete checkpoint, with that data.
    fn take_channel_state<'py>(&self, py: Python<'py>, checkpoint: i64) -> PyResult<PyStates<'py>> {
        let states = blocking(py, |interrupt| {
            self.environment.check_fork()?;
            self.inner.lock(interrupt)?.reader.take_channel_state(CheckpointId(checkpoint))
        })?;
        Ok(to_python(py, &states))
    }

    /// Returns the time at which a poll is due although no data arrives, in ms since 1970.
    fn next_timer_ms(&self, py: Python<'_>) -> PyResult<Option<i64>> {
        blocking(py, |interrupt| Ok(self.inner.lock(interrupt)?.reader.next_timer()))
    }

    #[pyo3(signature = (timeout=None))]
    fn wait_available(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let timeout = timeout_of(timeout)?;
        blocking(py, |interrupt| {
            self.environment.check()?;
            let state = self.inner.lock(interrupt)?;
            if state.is_available() {
                return Ok(true);
            }
            let until_timer = state.reader.until_timer();
            drop(state);
            let first = [timeout, until_timer].into_iter().flatten().min();
            let available = self.input.wait_available(first, interrupt)?;
            Ok(available || self.inner.lock(interrupt)?.is_available())
        })
    }

    fn wake_up(&self, py: Python<'_>) -> PyResult<()> {
        blocking(py, |_| {
            self.environment.check_fork()?;
            self.input.wake_up();
            Ok(())
        })
    }

    /// Returns the rows or records, and the bytes of their buffers, read so far.
    fn totals(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        self.environment.check_fork().map_err(|error| to_py(py, &error))?;
        Ok((self.counters.rows(), self.counters.bytes()))
    }

    fn is_available(&self, py: Python<'_>) -> PyResult<bool> {
        self.ask(py, |state| state.is_available(), |input| input.is_available())
    }

    fn is_finished(&self, py: Python<'_>) -> PyResult<bool> {
        self.ask(py, |state| state.reader.is_finished(), |input| input.is_finished())
    }

    fn open_descriptor(&self, py: Python<'_>) -> PyResult<RawFd> {
        blocking(py, |_| self.descriptor.open(&self.environment, &self.input))
    }

    fn clear_descriptor(&self, py: Python<'_>) {
        released(py, || self.descriptor.clear());
    }

    fn close_descriptor(&self, py: Python<'_>) {
        released(py, || self.descriptor.close());
    }
}

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct BufferReader {
    environment: Arc<ShuffleEnvironment>,
    input: Arc<dyn DataInput>,
    descriptor: Descriptor,
}

type Buffer<'py> = (usize, u8, u32, Bound<'py, PyBytes>);

impl BufferReader {
    fn buffer<'py>(py: Python<'py>, received: Option<Received>) -> Option<Buffer<'py>> {
        let received = received?;
        let bytes = PyBytes::new(py, received.buffer.as_slice());
        let (channel, data_type) = (received.channel, received.data_type as u8);
        let sequence = received.sequence.0;
        released(py, || drop(received));
        Some((channel, data_type, sequence, bytes))
    }
}

#[pymethods]
impl BufferReader {
    #[new]
    fn new(gate: AnyGate<'_>) -> Self {
        let (environment, input) = (Arc::clone(gate.environment()), gate.input());
        Self { environment, input, descriptor: Descriptor::default() }
    }

    /// Returns `(channel, data type, sequence number, bytes)`, or `None` at the end. The bytes are a
    /// copy, so the segment is free again at once.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Buffer<'py>>> {
        let received = blocking(py, |interrupt| {
            self.environment.check()?;
            self.input.checkpointing().begin_reading()?;
            self.input.next(interrupt)
        })?;
        Ok(Self::buffer(py, received))
    }

    /// Like `next`, but returns `None` instead of blocking.
    fn poll_next<'py>(&self, py: Python<'py>) -> PyResult<Option<Buffer<'py>>> {
        let received = blocking(py, |_| {
            self.environment.check()?;
            self.input.checkpointing().begin_reading()?;
            self.input.poll_next().map(ready)
        })?;
        Ok(Self::buffer(py, received))
    }

    #[pyo3(signature = (timeout=None))]
    fn wait_available(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let timeout = timeout_of(timeout)?;
        blocking(py, |interrupt| {
            self.environment.check()?;
            self.input.wait_available(timeout, interrupt)
        })
    }

    fn wake_up(&self, py: Python<'_>) -> PyResult<()> {
        blocking(py, |_| {
            self.environment.check_fork()?;
            self.input.wake_up();
            Ok(())
        })
    }

    fn is_available(&self, py: Python<'_>) -> PyResult<bool> {
        blocking(py, |_| {
            self.environment.check_fork()?;
            Ok(self.input.is_available())
        })
    }

    fn is_finished(&self, py: Python<'_>) -> PyResult<bool> {
        blocking(py, |_| {
            self.environment.check_fork()?;
            Ok(self.input.is_finished())
        })
    }

    fn open_descriptor(&self, py: Python<'_>) -> PyResult<RawFd> {
        blocking(py, |_| self.descriptor.open(&self.environment, &self.input))
    }

    fn clear_descriptor(&self, py: Python<'_>) {
        released(py, || self.descriptor.clear());
    }

    fn close_descriptor(&self, py: Python<'_>) {
        released(py, || self.descriptor.close());
    }
}
