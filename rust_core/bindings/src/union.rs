//! `UnionInputGate`, for `headgate.flink`.

use std::sync::Arc;

use headgate_exchange::{ExchangeError, ShuffleEnvironment, UnionInputGate as Inner};
use pyo3::prelude::*;

use crate::checkpoints;
use crate::gate::{InputGate, num_ended, status};
use crate::interrupt::{blocking, released};

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct UnionInputGate {
    pub(crate) environment: Arc<ShuffleEnvironment>,
    pub(crate) inner: Arc<Inner>,
}

#[pymethods]
impl UnionInputGate {
    #[new]
    fn new(py: Python<'_>, gates: Vec<PyRef<'_, InputGate>>) -> PyResult<Self> {
        let inner: Vec<_> = gates.iter().map(|gate| Arc::clone(&gate.inner)).collect();
        let environments: Vec<_> = gates.iter().map(|gate| Arc::clone(&gate.environment)).collect();
        blocking(py, |_| {
            let inner = Arc::new(Inner::new(inner)?);
            let environment = Arc::clone(&environments[0]);
            if environments.iter().any(|other| !Arc::ptr_eq(other, &environment)) {
                return Err(ExchangeError::State("the gates of a union are of one environment"));
            }
            environment.check()?;
            Ok(Self { environment, inner })
        })
    }

    #[getter]
    fn num_channels(&self) -> usize {
        self.inner.num_channels()
    }

    fn num_ended_channels(&self, py: Python<'_>) -> PyResult<usize> {
        num_ended(py, &self.environment, &*self.inner)
    }

    fn end_of_data_status(&self, py: Python<'_>) -> PyResult<u8> {
        blocking(py, |_| {
            self.environment.check_fork()?;
            Ok(status(&*self.inner))
        })
    }

    fn enable_checkpointing(&self, py: Python<'_>, after_finish: bool) -> PyResult<()> {
        checkpoints::enable(py, &self.environment, &*self.inner, after_finish)
    }

    fn abort_checkpoint(&self, py: Python<'_>, checkpoint: i64, reason: String) -> PyResult<()> {
        checkpoints::abort(py, &self.environment, &*self.inner, checkpoint, reason)
    }

    fn close(&self, py: Python<'_>) {
        released(py, || {
            if self.environment.check_open().is_ok() {
                self.inner.close();
            }
        });
    }
}
