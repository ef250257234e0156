//! Arrays and batches of callers, checked before anything follows their offsets; arrays for them.

use arrow_array::ffi::FFI_ArrowArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use headgate_record::check_bounds;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;
use pyo3_arrow::input::AnyRecordBatch;
use pyo3_arrow::{PyArray, PyRecordBatch};

use crate::errors::Report;

/// A column of a caller.
pub(crate) struct Column(ArrayRef);

impl Column {
    pub(crate) fn into_inner(self) -> ArrayRef {
        self.0
    }
}

impl<'py> FromPyObject<'_, 'py> for Column {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        check_buffers(&given)?;
        let (array, _) = given.extract::<PyArray>()?.into_inner();
        check(given.py(), [&array])?;
        Ok(Self(array))
    }
}

/// Imports arrays of one type into pyarrow. The arrays travel without the type: to describe it would take longer than the
/// conversion of a small array.
pub(crate) struct ToArray {
    /// `pyarrow.Array._import_from_c`.
    import: Py<PyAny>,
    data_type: Py<PyAny>,
}

impl ToArray {
    /// `data_type` is one of pyarrow.
    pub(crate) fn new(data_type: &Bound<'_, PyAny>) -> PyResult<Self> {
        let array = data_type.py().import("pyarrow")?.getattr("Array")?;
        let import = array.getattr("_import_from_c")?.unbind();
        Ok(Self { import, data_type: data_type.clone().unbind() })
    }

    /// Returns an array as one of pyarrow over the same memory.
    pub(crate) fn import<'py>(
        &self,
        py: Python<'py>,
        array: &dyn Array,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut array = FFI_ArrowArray::new(&array.to_data());
        // pyarrow moves the contents out and marks the struct released, so its drop frees nothing.
        let address = (&raw mut array).expose_provenance();
        self.import.bind(py).call1((address, &self.data_type))
    }
}

/// A batch of a caller.
pub(crate) struct Batch(RecordBatch);

impl Batch {
    pub(crate) fn into_inner(self) -> RecordBatch {
        self.0
    }
}

impl<'py> FromPyObject<'_, 'py> for Batch {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        check_buffers(&given)?;
        let batch = given.extract::<PyRecordBatch>()?.into_inner();
        check_batch(given.py(), &batch)?;
        Ok(Self(batch))
    }
}

/// A batch, or a stream of them, of a caller. The batches of a stream are not checked yet.
pub(crate) fn batches(given: &Bound<'_, PyAny>) -> PyResult<AnyRecordBatch> {
    check_buffers(given)?;
    let batches = given.extract::<AnyRecordBatch>()?;
    if let AnyRecordBatch::RecordBatch(batch) = &batches {
        check_batch(given.py(), batch.as_ref())?;
    }
    Ok(batches)
}

/// Checks the columns of a batch.
pub(crate) fn check_batch(py: Python<'_>, batch: &RecordBatch) -> PyResult<()> {
    check(py, batch.columns())
}

fn check<'a>(py: Python<'_>, arrays: impl IntoIterator<Item = &'a ArrayRef>) -> PyResult<()> {
    let checked = arrays.into_iter().try_for_each(|array| check_bounds(array));
    checked.map_err(|error| damaged(py, error))
}

/// Compares the lengths of pyarrow's buffers with what is to be read from them. The C interface does not tell them.
pub(crate) fn check_buffers(given: &Bound<'_, PyAny>) -> PyResult<()> {
    static KINDS: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();
    let py = given.py();
    let kinds = KINDS.get_or_try_init(py, || {
        let pyarrow = py.import("pyarrow")?;
        let kinds = ["RecordBatch", "Table", "Array", "ChunkedArray"];
        let kinds = kinds.into_iter().map(|name| pyarrow.getattr(name));
        PyTuple::new(py, kinds.collect::<PyResult<Vec<_>>>()?).map(Bound::unbind)
    })?;
    if given.is_instance(kinds.bind(py))? {
        let checked = given.call_method0(intern!(py, "validate"));
        checked.map_err(|error| damaged(py, error.value(py)))?;
    }
    Ok(())
}

fn damaged(py: Python<'_>, error: impl ToString) -> PyErr {
    Report::new(4003, format!("an array is damaged: {}", error.to_string()))
        .remedy("batch.validate(full=True) of pyarrow finds the column · build it anew")
        .into_py(py)
}
