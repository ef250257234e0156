//! Schemas and keys, from Python and back.

use std::sync::Arc;

use headgate_record::{PageSchema, hash, partition_ids};
use pyo3::prelude::*;
use pyo3_arrow::{PyArray, PyRecordBatch, PySchema};

use crate::errors::{of_hash, of_unsupported};
use crate::interrupt::released;

pub(crate) fn page_schema(py: Python<'_>, schema: PySchema) -> PyResult<Arc<PageSchema>> {
    let schema = PageSchema::try_new(schema.into_inner());
    schema.map(Arc::new).map_err(|error| of_unsupported(&error).into_py(py))
}

/// Raises for the first column that cannot travel in pages.
#[pyfunction]
pub(crate) fn check_schema(py: Python<'_>, schema: PySchema) -> PyResult<()> {
    page_schema(py, schema).map(drop)
}

/// The subpartition of each row, as Spark's hash partitioning by these columns places it.
#[pyfunction]
pub(crate) fn hash_partition_ids<'py>(
    py: Python<'py>,
    batch: PyRecordBatch,
    columns: Vec<String>,
    num_partitions: u32,
) -> PyResult<Bound<'py, PyAny>> {
    let batch = batch.into_inner();
    let ids = released(py, || {
        let columns = hash::resolve_columns(&batch.schema(), &columns)?;
        let mut ids = Vec::new();
        partition_ids(&batch, &columns, num_partitions, &mut ids)?;
        Ok(ids)
    });
    let ids = ids.map_err(|error| of_hash(&error).into_py(py))?;
    let array = PyArray::from_array_ref(Arc::new(arrow_array::UInt32Array::from(ids)));
    py.import("pyarrow")?.call_method1("array", (array,))
}
