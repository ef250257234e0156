//! What writers of either kind ask of their partition.

use headgate_exchange::{ResultPartition, ShuffleEnvironment};
use pyo3::prelude::*;

use crate::interrupt::{blocking, timeout_of};

pub(crate) fn is_available(
    py: Python<'_>,
    environment: &ShuffleEnvironment,
    partition: &ResultPartition,
) -> PyResult<bool> {
    blocking(py, |_| {
        environment.check_fork()?;
        Ok(partition.is_available())
    })
}

pub(crate) fn wait_available(
    py: Python<'_>,
    environment: &ShuffleEnvironment,
    partition: &ResultPartition,
    timeout: Option<f64>,
) -> PyResult<bool> {
    let timeout = timeout_of(timeout)?;
    blocking(py, |interrupt| {
        environment.check()?;
        partition.wait_available(timeout, interrupt)
    })
}

pub(crate) fn back_pressured_ns(
    py: Python<'_>,
    environment: &ShuffleEnvironment,
    partition: &ResultPartition,
) -> PyResult<u64> {
    blocking(py, |_| {
        environment.check_fork()?;
        Ok(partition.back_pressured_ns())
    })
}
