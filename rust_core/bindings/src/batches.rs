//! Record batches of one schema on their way to pyarrow.

use std::sync::Arc;

use arrow_array::ffi::FFI_ArrowArray;
use arrow_array::{Array, RecordBatch, StructArray};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3_arrow::PySchema;

/// Imports batches whose schema pyarrow has already: what is read again and again is not described
/// again each time.
pub(crate) struct PyarrowBatches {
    /// `pyarrow.RecordBatch._import_from_c`.
    import: Py<PyAny>,
    schema: Py<PyAny>,
}

impl PyarrowBatches {
    pub(crate) fn new(py: Python<'_>, schema: &PySchema) -> PyResult<Self> {
        let batch = py.import("pyarrow")?.getattr("RecordBatch")?;
        let import = batch.getattr(intern!(py, "_import_from_c"))?.unbind();
        Ok(Self {
            import,
            schema: PySchema::new(Arc::new(schema.as_ref().clone())).into_pyarrow(py)?.unbind(),
        })
    }

    /// The batch as a `pyarrow.RecordBatch`, over the same memory.
    pub(crate) fn import<'py>(
        &self,
        py: Python<'py>,
        batch: RecordBatch,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut array = FFI_ArrowArray::new(&StructArray::from(batch).into_data());
        // pyarrow takes what the struct holds and marks it as released, so dropping it frees nothing.
        let address = (&raw mut array).expose_provenance();
        self.import.bind(py).call1((address, &self.schema))
    }
}
