//! Schemas, and the numbers computed from key columns.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::{Field, Schema};
use headgate_record::key_group::Key;
use headgate_record::{HashError, PageSchema, hash, partition_ids};
use pyo3::prelude::*;
use pyo3_arrow::{PyArray, PySchema};

use crate::arrays::{Batch, Column};
use crate::errors::{of_hash, of_unsupported};
use crate::interrupt::released;

pub(crate) fn page_schema(py: Python<'_>, schema: PySchema) -> PyResult<Arc<PageSchema>> {
    let schema = PageSchema::try_new(schema.into_inner());
    schema.map(Arc::new).map_err(|error| of_unsupported(&error).into_py(py))
}

/// Raises an error that names the first column that cannot travel in pages.
#[pyfunction]
pub(crate) fn check_schema(py: Python<'_>, schema: PySchema) -> PyResult<()> {
    page_schema(py, schema).map(drop)
}

/// Returns the subpartition of each row by Spark's hash partitioning.
#[pyfunction]
pub(crate) fn hash_partition_ids<'py>(
    py: Python<'py>,
    batch: Batch,
    columns: Vec<String>,
    num_partitions: u32,
) -> PyResult<Bound<'py, PyAny>> {
    let batch = batch.into_inner();
    let ids = released(py, || {
        let names: Vec<_> = columns.iter().map(std::slice::from_ref).collect();
        let columns = hash::resolve_columns(&batch.schema(), &names)?;
        let mut ids = Vec::new();
        partition_ids(&batch, &columns, num_partitions, &mut ids)?;
        Ok(ids)
    });
    numbers(py, ids)
}

/// Returns Flink's key group of each key.
#[pyfunction]
pub(crate) fn key_groups<'py>(
    py: Python<'py>,
    keys: Column,
    max_parallelism: u32,
) -> PyResult<Bound<'py, PyAny>> {
    let keys = keys.into_inner();
    let groups = released(py, || {
        let batch = one_column(keys);
        let mut groups = Vec::new();
        Key::flink(&batch.schema(), KEYS)?.groups(&batch, max_parallelism, &mut groups)?;
        Ok(groups)
    });
    numbers(py, groups)
}

/// Returns the key group of each row, whose key is all columns.
#[pyfunction]
pub(crate) fn key_groups_of_state<'py>(
    py: Python<'py>,
    keys: Batch,
    max_parallelism: u32,
) -> PyResult<Bound<'py, PyAny>> {
    let keys = keys.into_inner();
    let groups = released(py, || {
        let columns: Vec<_> = (0..keys.num_columns()).collect();
        let mut groups = Vec::new();
        Key::of_state(&keys.schema(), &columns)?.groups(&keys, max_parallelism, &mut groups)?;
        Ok(groups)
    });
    numbers(py, groups)
}

/// Name of the column in error texts.
const KEYS: &str = "keys";

fn one_column(keys: ArrayRef) -> RecordBatch {
    let schema = Schema::new(vec![Field::new(KEYS, keys.data_type().clone(), true)]);
    RecordBatch::try_new(Arc::new(schema), vec![keys]).expect("one column of the schema's type")
}

fn numbers(py: Python<'_>, numbers: Result<Vec<u32>, HashError>) -> PyResult<Bound<'_, PyAny>> {
    let numbers = numbers.map_err(|error| of_hash(&error).into_py(py))?;
    let array = PyArray::from_array_ref(Arc::new(UInt32Array::from(numbers)));
    py.import("pyarrow")?.call_method1("array", (array,))
}
