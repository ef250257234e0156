//! `ControlKey` and `ControlHandshake`.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{handshake_to_py, to_py};
use crate::interrupt::released;

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct ControlKey {
    inner: headgate_exchange::Key,
    #[pyo3(get)]
    tls: bool,
}

#[pymethods]
impl ControlKey {
    #[new]
    #[pyo3(signature = (secret, exchange_id, tls = false))]
    fn new(secret: [u8; 32], exchange_id: [u8; 16], tls: bool) -> Self {
        Self { inner: headgate_exchange::Key::control(&secret, &exchange_id), tls }
    }
}

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct ControlHandshake {
    inner: Mutex<headgate_exchange::ControlHandshake>,
}

#[pymethods]
impl ControlHandshake {
    #[staticmethod]
    fn dial(
        py: Python<'_>,
        key: &ControlKey,
        exchange_id: [u8; 16],
        max_message: u32,
        binding: Option<[u8; 32]>,
    ) -> PyResult<Self> {
        let key = key.inner.clone();
        Self::of(py, || {
            headgate_exchange::ControlHandshake::dial(key, exchange_id, max_message, binding)
        })
    }

    #[staticmethod]
    fn accept(
        py: Python<'_>,
        key: &ControlKey,
        exchange_id: [u8; 16],
        max_message: u32,
        binding: Option<[u8; 32]>,
    ) -> PyResult<Self> {
        let key = key.inner.clone();
        Self::of(py, || {
            headgate_exchange::ControlHandshake::accept(key, exchange_id, max_message, binding)
        })
    }

    #[staticmethod]
    fn requested_exchange<'py>(
        py: Python<'py>,
        data: &[u8],
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let exchange = headgate_exchange::ControlHandshake::requested_exchange(data)
            .map_err(|error| handshake_to_py(py, error))?;
        Ok(exchange.map(|exchange| PyBytes::new(py, &exchange)))
    }

    fn handle(&self, py: Python<'_>, data: &[u8]) -> PyResult<usize> {
        let mut rest = data;
        self.with(py, |handshake| handshake.handle(&mut rest))
            .map_err(|error| handshake_to_py(py, error))?;
        Ok(data.len() - rest.len())
    }

    fn take_output<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let output = self.with(py, headgate_exchange::ControlHandshake::take_output);
        PyBytes::new(py, &output)
    }

    #[getter]
    fn session<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        let session = self.with(py, |handshake| handshake.session());
        session.map(|session| PyBytes::new(py, session.as_bytes()))
    }
}

impl ControlHandshake {
    fn of(
        py: Python<'_>,
        make: impl FnOnce() -> headgate_exchange::Result<headgate_exchange::ControlHandshake> + Send,
    ) -> PyResult<Self> {
        let inner = released(py, make).map_err(|error| to_py(py, &error))?;
        Ok(Self { inner: Mutex::new(inner) })
    }

    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut headgate_exchange::ControlHandshake) -> T + Send,
    ) -> T {
        released(py, || call(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
