//! The indexes of kept partitions in files, and small outputs that need none.

use std::path::PathBuf;

use headgate_exchange::{ExchangeError, KeptFile, SmallLimits};
use headgate_record::Selector;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3_arrow::PySchema;

use crate::arrays::Batch;
use crate::errors::of_hash;
use crate::interrupt::blocking;
use crate::schema::page_schema;

/// Writes the indexes of a producer to a file beside its pages.
#[pyfunction]
pub(crate) fn write_kept_indexes(
    py: Python<'_>,
    pages: PathBuf,
    has_pages: bool,
    indexes: Vec<(u32, Vec<u8>)>,
) -> PyResult<()> {
    if !indexes.is_sorted_by(|(one, _), (next, _)| one < next) {
        let text = "the subpartitions of kept indexes are in ascending order";
        return blocking(py, |_| Err(ExchangeError::State(text)));
    }
    blocking(py, |_| KeptFile::write(&pages, has_pages, &indexes).map(drop))
}

/// Returns the index of a subpartition, and the file of its pages if they have one; `None` if it has
/// no rows.
#[pyfunction]
pub(crate) fn read_kept_index<'py>(
    py: Python<'py>,
    indexes: PathBuf,
    subpartition: u32,
) -> PyResult<Option<(Bound<'py, PyBytes>, Option<PathBuf>)>> {
    let file = KeptFile::new(indexes);
    let found = blocking(py, |_| file.read(subpartition))?;
    Ok(found.map(|(index, pages)| (PyBytes::new(py, &index), pages)))
}

/// Number of the subpartition, its rows, bytes of its page, its index with the page behind it.
type Small<'py> = (u32, u64, u64, Bound<'py, PyBytes>);

/// Places the rows of a batch by the hash of columns. Returns one page for each subpartition that has
/// rows; `None` if all pages have more than `all_bytes` bytes and one of them has more than `page_bytes`.
#[pyfunction]
#[pyo3(signature = (schema, columns, batch, n, *, all_bytes, page_bytes, max_page_bytes))]
#[expect(clippy::too_many_arguments, reason = "what to keep, then its limits, one by one")]
pub(crate) fn keep_small<'py>(
    py: Python<'py>,
    schema: PySchema,
    columns: Vec<Vec<String>>,
    batch: Batch,
    n: u32,
    all_bytes: usize,
    page_bytes: usize,
    max_page_bytes: usize,
) -> PyResult<Option<Vec<Small<'py>>>> {
    let selector = Selector::hash_by_name(schema.as_ref(), &columns);
    let mut selector = selector.map_err(|error| of_hash(&error).into_py(py))?;
    let schema = page_schema(py, schema)?;
    let batch = batch.into_inner();
    let limits = SmallLimits { all: all_bytes, page: page_bytes, most: max_page_bytes };
    let kept =
        blocking(py, |_| headgate_exchange::keep_small(&schema, &mut selector, &batch, n, limits))?;
    Ok(kept.map(|kept| {
        let tuple = |it: headgate_exchange::SmallSubpartition| {
            (it.subpartition, it.rows, it.bytes, PyBytes::new(py, &it.index))
        };
        kept.into_iter().map(tuple).collect()
    }))
}
