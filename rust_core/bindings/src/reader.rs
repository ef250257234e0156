//! `RecordReader` and `BufferReader`.

use std::sync::{Arc, Mutex};

use headgate_exchange::{
    Counters, InputGate as Gate, Record, RecordReader as Inner, ShuffleEnvironment,
};
use headgate_record::Event;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3_arrow::{PyRecordBatch, PySchema};

use crate::errors::to_py;
use crate::gate::InputGate;
use crate::interrupt::{blocking, lock, released};
use crate::schema::page_schema;

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct RecordReader {
    environment: Arc<ShuffleEnvironment>,
    counters: Arc<Counters>,
    inner: Mutex<Inner>,
}

/// What leaves the detached section: owned, so that no lock is held when Python objects are made.
enum Out {
    Batch(arrow_array::RecordBatch),
    Bytes(Vec<u8>),
    Event(usize, Event),
}

#[pymethods]
impl RecordReader {
    #[new]
    #[pyo3(signature = (gate, schema=None))]
    fn new(py: Python<'_>, gate: &InputGate, schema: Option<PySchema>) -> PyResult<Self> {
        let schema = schema.map(|schema| page_schema(py, schema)).transpose()?;
        let environment = Arc::clone(&gate.environment);
        let limit = environment.config().max_record_size;
        let copies = Arc::clone(environment.copies());
        let inner = Inner::new(Arc::clone(&gate.inner), schema, limit, copies);
        let counters = Arc::clone(inner.counters());
        Ok(Self { environment, counters, inner: Mutex::new(inner) })
    }

    /// A pyarrow `RecordBatch`, `bytes`, a tuple `(channel, name, body)` for an event, or `None` at
    /// the end.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let record = blocking(py, |interrupt| {
            self.environment.check()?;
            let record = lock(&self.inner, interrupt)?.next(interrupt)?;
            Ok(record.map(|record| match record {
                Record::Batch(batch) => Out::Batch(batch),
                Record::Bytes(bytes) => Out::Bytes(bytes.to_vec()),
                Record::Event { channel, event } => Out::Event(channel, event),
            }))
        })?;
        match record {
            None => Ok(py.None().into_bound(py)),
            Some(Out::Batch(batch)) => PyRecordBatch::new(batch).into_pyarrow(py),
            Some(Out::Bytes(bytes)) => Ok(PyBytes::new(py, &bytes).into_any()),
            Some(Out::Event(channel, Event::Custom { name, body })) => {
                (channel, name, PyBytes::new(py, &body)).into_bound_py_any(py)
            }
            Some(Out::Event(channel, event)) => {
                (channel, format!("{event:?}"), PyBytes::new(py, &[])).into_bound_py_any(py)
            }
        }
    }

    /// Rows or records, and bytes of their buffers, returned so far.
    fn totals(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        self.environment.check_fork().map_err(|error| to_py(py, &error))?;
        Ok((self.counters.rows(), self.counters.bytes()))
    }
}

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct BufferReader {
    environment: Arc<ShuffleEnvironment>,
    gate: Arc<Gate>,
}

#[pymethods]
impl BufferReader {
    #[new]
    fn new(gate: &InputGate) -> Self {
        Self { environment: Arc::clone(&gate.environment), gate: Arc::clone(&gate.inner) }
    }

    /// `(channel, data type, bytes)`, or `None` at the end; the segment is free again at once.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<(usize, u8, Bound<'py, PyBytes>)>> {
        let received = blocking(py, |interrupt| {
            self.environment.check()?;
            self.gate.next(interrupt)
        })?;
        let Some(received) = received else {
            return Ok(None);
        };
        let bytes = PyBytes::new(py, received.buffer.as_slice());
        let (channel, data_type) = (received.channel, received.data_type as u8);
        released(py, || drop(received));
        Ok(Some((channel, data_type, bytes)))
    }
}
