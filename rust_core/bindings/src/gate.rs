//! `InputGate`.

use std::sync::Arc;

use headgate_exchange::{
    Address, ExchangeError, InputGate as Inner, PartitionId, ShuffleEnvironment,
};
use headgate_record::PageSchema;
use pyo3::prelude::*;
use pyo3_arrow::PySchema;

use crate::interrupt::{blocking, released};
use crate::schema::page_schema;

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct InputGate {
    pub(crate) environment: Arc<ShuffleEnvironment>,
    pub(crate) inner: Arc<Inner>,
}

#[pymethods]
impl InputGate {
    #[pyo3(signature = (host, port, process, partition, subpartition, schema=None))]
    #[expect(clippy::too_many_arguments, reason = "the fields of an address, one by one")]
    fn add_channel(
        &self,
        py: Python<'_>,
        host: String,
        port: u16,
        process: [u8; 16],
        partition: [u8; 16],
        subpartition: u32,
        schema: Option<PySchema>,
    ) -> PyResult<()> {
        let schema: Option<Arc<PageSchema>> =
            schema.map(|schema| page_schema(py, schema)).transpose()?;
        let hash = schema.map_or([0; 32], |schema| schema.hash());
        let partition = PartitionId(partition);
        let address = Address { host, port, process, partition, subpartition };
        blocking(py, |interrupt| {
            self.environment.add_channel(&self.inner, &address, hash, interrupt)
        })
    }

    #[getter]
    fn num_channels(&self, py: Python<'_>) -> PyResult<usize> {
        blocking(py, |_| {
            self.environment.check_fork()?;
            Ok(self.inner.num_channels())
        })
    }

    fn seal(&self, py: Python<'_>) -> PyResult<()> {
        blocking(py, |_| {
            self.environment.check()?;
            self.inner.seal();
            Ok(())
        })
    }

    fn fail(&self, py: Python<'_>, cause: String) -> PyResult<()> {
        blocking(py, |_| {
            self.environment.check()?;
            self.inner.fail(ExchangeError::Aborted(cause));
            Ok(())
        })
    }

    fn close(&self, py: Python<'_>) {
        released(py, || {
            if self.environment.check_open().is_ok() {
                self.inner.close();
            }
        });
    }
}
