//! Conversion of record batches of one schema to and from pyarrow.
//!
//! Both sides know the schema, so batches travel without it. Describing it again would take longer than
//! the conversion of a small batch.

use std::sync::{Arc, Mutex};

use arrow_array::ffi::FFI_ArrowArray;
use arrow_array::{Array, RecordBatch, RecordBatchReader, StructArray};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3_arrow::{PyRecordBatchReader, PySchema};

use crate::arrays::{check_batch, check_buffers};

fn pyarrow_schema<'py>(py: Python<'py>, schema: &PySchema) -> PyResult<Bound<'py, PyAny>> {
    PySchema::new(Arc::new(schema.as_ref().clone())).into_pyarrow(py)
}

/// Imports batches into pyarrow.
pub(crate) struct ToPyarrow {
    /// `pyarrow.RecordBatch._import_from_c`.
    import: Py<PyAny>,
    schema: Py<PyAny>,
}

impl ToPyarrow {
    pub(crate) fn new(py: Python<'_>, schema: &PySchema) -> PyResult<Self> {
        let batch = py.import("pyarrow")?.getattr("RecordBatch")?;
        let import = batch.getattr(intern!(py, "_import_from_c"))?.unbind();
        Ok(Self { import, schema: pyarrow_schema(py, schema)?.unbind() })
    }

    /// Returns the batch as a `pyarrow.RecordBatch` over the same memory.
    pub(crate) fn import<'py>(
        &self,
        py: Python<'py>,
        batch: RecordBatch,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut array = FFI_ArrowArray::new(&StructArray::from(batch).into_data());
        // pyarrow moves the contents out and marks the struct released, so its drop frees nothing.
        let address = (&raw mut array).expose_provenance();
        self.import.bind(py).call1((address, &self.schema))
    }
}

/// Takes batches from pyarrow through one open Arrow stream over a queue: a batch appended to the queue
/// is the stream's next batch.
pub(crate) struct FromPyarrow {
    /// `pyarrow.RecordBatch`.
    batch: Py<PyAny>,
    schema: Py<PyAny>,
    /// Appends a batch to the queue.
    append: Py<PyAny>,
    stream: Mutex<Box<dyn RecordBatchReader + Send>>,
}

impl FromPyarrow {
    pub(crate) fn new(py: Python<'_>, schema: &PySchema) -> PyResult<Self> {
        let pyarrow = py.import("pyarrow")?;
        let schema = pyarrow_schema(py, schema)?;
        let queue = py.import("collections")?.getattr("deque")?.call0()?;
        let iter = py.import("builtins")?.getattr("iter")?;
        let batches = iter.call1((queue.getattr("popleft")?, py.None()))?;
        let stream = pyarrow
            .getattr("RecordBatchReader")?
            .call_method1("from_batches", (&schema, batches))?;
        Ok(Self {
            batch: pyarrow.getattr("RecordBatch")?.unbind(),
            schema: schema.unbind(),
            append: queue.getattr("append")?.unbind(),
            stream: Mutex::new(stream.extract::<PyRecordBatchReader>()?.into_reader()?),
        })
    }

    /// Returns the batch over the same memory, or `None` if it is not pyarrow's or has another schema.
    pub(crate) fn take(
        &self,
        py: Python<'_>,
        batch: &Bound<'_, PyAny>,
    ) -> PyResult<Option<RecordBatch>> {
        if !batch.get_type().is(&self.batch) {
            return Ok(None);
        }
        let schema = batch.getattr(intern!(py, "schema"))?;
        if !schema.call_method1(intern!(py, "equals"), (&self.schema,))?.is_truthy()? {
            return Ok(None);
        }
        let Ok(mut stream) = self.stream.try_lock() else {
            return Ok(None); // another thread emits, and may be waiting for the GIL
        };
        check_buffers(batch)?;
        self.append.call1(py, (batch,))?;
        let batch = stream.next().transpose();
        let batch = batch.map_err(|error| PyTypeError::new_err(error.to_string()))?;
        batch.iter().try_for_each(|batch| check_batch(py, batch))?;
        Ok(batch)
    }
}

/// Returns the bytes of all memory that a pyarrow batch keeps alive; 0 for other producers.
pub(crate) fn pinned(batch: &Bound<'_, PyAny>) -> PyResult<u64> {
    match batch.getattr_opt(intern!(batch.py(), "get_total_buffer_size"))? {
        Some(size) => size.call0()?.extract(),
        None => Ok(0),
    }
}
