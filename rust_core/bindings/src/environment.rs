//! `Environment`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headgate_exchange::{
    Codec, ExchangeError, KeptFile, PartitionId, PartitionKind, PartitionOptions,
    ShuffleEnvironment, Tls,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::gate::InputGate;
use crate::interrupt::{blocking, released};
use crate::options::Options;
use crate::partition::ResultPartition;
use crate::stats::stats_dict;

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct Environment {
    inner: Arc<ShuffleEnvironment>,
}

#[pymethods]
impl Environment {
    #[new]
    #[pyo3(signature = (options, *, secret, exchange, run, epoch, process=None))]
    fn new(
        py: Python<'_>,
        options: &Bound<'_, PyAny>,
        secret: [u8; 32],
        exchange: [u8; 16],
        run: u32,
        epoch: u32,
        process: Option<[u8; 16]>,
    ) -> PyResult<Self> {
        let config = Options(options).config(secret, exchange, run, epoch, process)?;
        crate::trace::set(&options.get_item("trace")?.extract::<String>()?);
        let inner = blocking(py, |_| ShuffleEnvironment::new(config))?;
        Ok(Self { inner: Arc::new(inner) })
    }

    #[getter]
    fn process_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.inner.process())
    }

    fn address(&self, py: Python<'_>) -> PyResult<(String, u16)> {
        let address = blocking(py, |_| self.inner.address())?;
        Ok((address.ip().to_string(), address.port()))
    }

    #[pyo3(signature = (
        wanted, lost_consumer_timeout, kind, compression, max_spill_size, partition_id=None,
        task_events=vec![]
    ))]
    #[expect(clippy::too_many_arguments, reason = "the options, one by one")]
    fn create_result_partition(
        &self,
        py: Python<'_>,
        wanted: Vec<bool>,
        lost_consumer_timeout: f64,
        kind: &str,
        compression: &str,
        max_spill_size: u64,
        partition_id: Option<[u8; 16]>,
        task_events: Vec<String>,
    ) -> PyResult<ResultPartition> {
        let lost_consumer_timeout =
            Duration::try_from_secs_f64(lost_consumer_timeout).unwrap_or(Duration::MAX);
        let options = PartitionOptions {
            wanted,
            id: partition_id.map(PartitionId),
            task_events,
            lost_consumer_timeout,
            kind: partition_kind(kind)?,
            max_spill_size,
            compression: codec(compression)?,
        };
        let inner = blocking(py, |_| self.inner.create_result_partition(&options))?;
        Ok(ResultPartition { environment: Arc::clone(&self.inner), inner })
    }

    fn create_input_gate(&self, py: Python<'_>) -> PyResult<InputGate> {
        let inner = blocking(py, |_| self.inner.create_input_gate())?;
        Ok(InputGate { environment: Arc::clone(&self.inner), inner })
    }

    fn serve(&self, py: Python<'_>, partition_id: [u8; 16], indexes: PathBuf) -> PyResult<()> {
        blocking(py, |_| self.inner.serve(PartitionId(partition_id), KeptFile::new(indexes)))
    }

    fn take_damaged<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        let damaged = released(py, || self.inner.take_damaged());
        damaged.iter().map(|id| PyBytes::new(py, &id.0)).collect()
    }

    fn take_tls_refusal(&self, py: Python<'_>) -> PyResult<Option<String>> {
        blocking(py, |_| {
            self.inner.check_fork()?;
            let refusal = self.inner.config().tls.as_ref().and_then(Tls::take_refusal);
            Ok(refusal.map(|error| error.to_string()))
        })
    }

    fn withdraw(&self, py: Python<'_>, partition_id: [u8; 16]) -> bool {
        released(py, || self.inner.withdraw(PartitionId(partition_id)))
    }

    fn abort(&self, py: Python<'_>, cause: String) {
        released(py, || self.inner.abort(&ExchangeError::Aborted(cause)));
    }

    fn close(&self, py: Python<'_>) {
        released(py, || self.inner.close());
    }

    /// Ns of waits for files, for memory and for the network, and of the I/O thread's work.
    fn waits(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u64)> {
        blocking(py, |_| {
            self.inner.check_fork()?;
            let waits = self.inner.waits();
            Ok((waits.disk_ns, waits.memory_ns, waits.link_ns, waits.io_ns))
        })
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = blocking(py, |_| {
            self.inner.check_fork()?;
            Ok(self.inner.stats())
        })?;
        stats_dict(py, &stats)
    }
}

fn partition_kind(name: &str) -> PyResult<PartitionKind> {
    match name {
        "pipelined" => Ok(PartitionKind::Pipelined),
        "pipelined_bounded" => Ok(PartitionKind::PipelinedBounded),
        "blocking" => Ok(PartitionKind::Blocking),
        "hybrid" => Ok(PartitionKind::Hybrid),
        // `headgate.environment` refuses other names first, with a text for users.
        other => Err(PyValueError::new_err(format!("kind {other:?}"))),
    }
}

fn codec(name: &str) -> PyResult<Option<Codec>> {
    match name {
        "none" => Ok(None),
        "lz4" => Ok(Some(Codec::Lz4)),
        "zstd" => Ok(Some(Codec::Zstd)),
        other => Err(PyValueError::new_err(format!("compression {other:?}"))),
    }
}
