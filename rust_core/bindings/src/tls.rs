//! Certificates for TLS.

use pyo3::prelude::*;

use crate::errors::to_py;

/// Returns a certificate that its own key signs, and this key, both in PEM.
#[pyfunction]
pub(crate) fn self_signed_certificate(py: Python<'_>) -> PyResult<(String, String)> {
    headgate_exchange::self_signed_certificate().map_err(|error| to_py(py, &error))
}
