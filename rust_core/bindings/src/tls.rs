//! `TlsEndpoint`, `TlsSession`, and certificates.

use std::io;
use std::sync::{Mutex, PoisonError};

use headgate_exchange::Tls;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{Report, to_py};
use crate::interrupt::released;

/// Returns a certificate that its own key signs, and this key, both in PEM.
#[pyfunction]
pub(crate) fn self_signed_certificate(py: Python<'_>) -> PyResult<(String, String)> {
    headgate_exchange::self_signed_certificate().map_err(|error| to_py(py, &error.into()))
}

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct TlsEndpoint {
    inner: Tls,
}

#[pymethods]
impl TlsEndpoint {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        let inner = released(py, Tls::ephemeral).map_err(|error| to_py(py, &error.into()))?;
        Ok(Self { inner })
    }

    fn dial(&self, py: Python<'_>) -> PyResult<TlsSession> {
        TlsSession::of(py, || headgate_exchange::TlsSession::dial(&self.inner))
    }

    fn accept(&self, py: Python<'_>) -> PyResult<TlsSession> {
        TlsSession::of(py, || headgate_exchange::TlsSession::accept(&self.inner))
    }
}

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct TlsSession {
    /// None once a thread of heartbeats has it.
    inner: Mutex<Option<headgate_exchange::TlsSession>>,
}

#[pymethods]
impl TlsSession {
    fn receive<'py>(&self, py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let clear = self.with(py, |session| session.receive(data))?;
        Ok(PyBytes::new(py, &clear.map_err(|error| broken(py, &error))?))
    }

    fn send(&self, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        self.with(py, |session| session.send(data))?.map_err(|error| broken(py, &error))
    }

    fn take_output<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let output = self.with(py, headgate_exchange::TlsSession::take_output)?;
        Ok(PyBytes::new(py, &output))
    }

    #[getter]
    fn binding<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let binding = self.with(py, |session| session.binding())?;
        Ok(binding.map(|binding| PyBytes::new(py, &binding)))
    }
}

impl TlsSession {
    fn of(
        py: Python<'_>,
        make: impl FnOnce() -> io::Result<headgate_exchange::TlsSession> + Send,
    ) -> PyResult<Self> {
        let inner = released(py, make).map_err(|error| broken(py, &error))?;
        Ok(Self { inner: Mutex::new(Some(inner)) })
    }

    /// Takes the session away; this object has none from then on.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<headgate_exchange::TlsSession> {
        let taken = released(py, || self.locked().take());
        taken.ok_or_else(gone)
    }

    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut headgate_exchange::TlsSession) -> T + Send,
    ) -> PyResult<T> {
        released(py, || self.locked().as_mut().map(call)).ok_or_else(gone)
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Option<headgate_exchange::TlsSession>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn broken(py: Python<'_>, error: &io::Error) -> PyErr {
    Report::new(3010, format_args!("TLS of a control connection failed: {error}")).into_py(py)
}

fn gone() -> PyErr {
    PyRuntimeError::new_err("the session belongs to a thread of heartbeats")
}
