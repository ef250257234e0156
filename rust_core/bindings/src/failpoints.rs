//! What tests set and count failpoints with; see `headgate_exchange::failpoint`.

use headgate_exchange::failpoint;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Replaces all rules; an empty text lets everything pass.
#[pyfunction]
pub(crate) fn set_failpoints(rules: &str) -> PyResult<()> {
    failpoint::configure(rules).map_err(PyValueError::new_err)
}

/// The points that were passed since the rules were set, and how often.
#[pyfunction]
pub(crate) fn failpoint_hits() -> Vec<(&'static str, u64)> {
    failpoint::hits()
}
