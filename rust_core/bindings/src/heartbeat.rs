//! `HeartbeatManager`.

use std::os::fd::{IntoRawFd, RawFd};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::to_py;
use crate::interrupt::released;
use crate::tls::TlsSession;

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct HeartbeatManager {
    inner: headgate_exchange::HeartbeatManager,
}

#[pymethods]
impl HeartbeatManager {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        let inner = released(py, headgate_exchange::HeartbeatManager::new);
        Ok(Self { inner: inner.map_err(|error| to_py(py, &error))? })
    }

    fn door(&self) -> PyResult<RawFd> {
        Ok(self.inner.door()?.into_raw_fd())
    }

    #[pyo3(signature = (timeout, tls = None))]
    fn monitor(&self, py: Python<'_>, timeout: f64, tls: Option<&TlsSession>) -> PyResult<u64> {
        let tls = tls.map(|session| session.take(py)).transpose()?;
        let timeout = Duration::try_from_secs_f64(timeout)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(released(py, || self.inner.monitor(timeout, tls))?)
    }

    fn unmonitor(&self, py: Python<'_>, target: u64) -> PyResult<()> {
        Ok(released(py, || self.inner.unmonitor(target))?)
    }

    #[getter]
    fn num_silent(&self) -> usize {
        self.inner.num_silent()
    }

    fn silence(&self, py: Python<'_>, target: u64) -> PyResult<Option<f64>> {
        let silence = released(py, || self.inner.silence(target))?;
        Ok(silence.map(|silence| silence.as_secs_f64()))
    }

    fn close(&self, py: Python<'_>) {
        released(py, || self.inner.close());
    }
}
