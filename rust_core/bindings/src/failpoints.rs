//! Failpoints for tests; see `headgate_failpoint`.

use headgate_exchange::failpoint;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Replaces all rules; an empty text removes them.
#[pyfunction]
pub(crate) fn set_failpoints(rules: &str) -> PyResult<()> {
    failpoint::configure(rules).map_err(PyValueError::new_err)
}

/// Returns the failpoints reached since the rules were set, with their counts.
#[pyfunction]
pub(crate) fn failpoint_hits() -> Vec<(&'static str, u64)> {
    failpoint::hits()
}
