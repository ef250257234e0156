//! The indexes of kept partitions in files.

use std::path::PathBuf;

use headgate_exchange::{ExchangeError, KeptFile};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::interrupt::blocking;

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
