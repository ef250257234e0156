//! `Environment`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headgate_exchange::{
    BufferDebloatOptions, BufferOptions, Codec, Config, PartitionId, PartitionKind,
    PartitionOptions, ShuffleEnvironment,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::gate::InputGate;
use crate::interrupt::{blocking, released};
use crate::partition::ResultPartition;
use crate::stats::stats_dict;

/// The options of the same names, durations in seconds and sizes in bytes.
#[derive(FromPyObject)]
struct BufferDebloat {
    #[pyo3(item)]
    target: f64,
    #[pyo3(item)]
    period: f64,
    #[pyo3(item)]
    samples: u32,
    #[pyo3(item)]
    threshold_percentages: u32,
    #[pyo3(item)]
    min_segment_size: usize,
    #[pyo3(item)]
    starting_segment_size: usize,
}

impl From<BufferDebloat> for BufferDebloatOptions {
    fn from(options: BufferDebloat) -> Self {
        Self {
            target: Duration::from_secs_f64(options.target),
            period: Duration::from_secs_f64(options.period),
            samples: options.samples,
            threshold_percentages: options.threshold_percentages,
            min_segment_size: options.min_segment_size,
            starting_segment_size: options.starting_segment_size,
        }
    }
}

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct Environment {
    inner: Arc<ShuffleEnvironment>,
}

#[pymethods]
impl Environment {
    #[new]
    #[pyo3(signature = (
        *, memory, segment_size, max_record_size, buffers_per_channel, floating_buffers_per_gate,
        max_buffers_per_channel, max_overdraft_buffers, spill_threshold, temp_directories, listen,
        partition_request_timeout, idle_timeout, same_host_link, secret, exchange, run, epoch, buffer_debloat=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "the options, one by one")]
    fn new(
        py: Python<'_>,
        memory: usize,
        segment_size: usize,
        max_record_size: usize,
        buffers_per_channel: usize,
        floating_buffers_per_gate: usize,
        max_buffers_per_channel: usize,
        max_overdraft_buffers: usize,
        spill_threshold: usize,
        temp_directories: Vec<PathBuf>,
        listen: String,
        partition_request_timeout: f64,
        idle_timeout: f64,
        same_host_link: &str,
        secret: [u8; 32],
        exchange: [u8; 16],
        run: u32,
        epoch: u32,
        buffer_debloat: Option<BufferDebloat>,
    ) -> PyResult<Self> {
        let buffers = BufferOptions {
            buffers_per_channel,
            floating_buffers_per_gate,
            max_buffers_per_channel,
            max_overdraft_buffers,
        };
        let config = Config {
            memory,
            segment_size,
            max_record_size,
            listen,
            secret,
            exchange,
            run,
            epoch,
            buffers,
            spill_threshold,
            temp_directories,
            partition_request_timeout: Duration::from_secs_f64(partition_request_timeout),
            idle_timeout: Duration::from_secs_f64(idle_timeout),
            same_host_link: same_host_link == "auto",
            buffer_debloat: buffer_debloat.map(BufferDebloatOptions::from),
        };
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

    fn abort(&self, py: Python<'_>, cause: String) {
        released(py, || self.inner.abort(&headgate_exchange::ExchangeError::Aborted(cause)));
    }

    fn close(&self, py: Python<'_>) {
        released(py, || self.inner.close());
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
        // The Python side has checked it, with a better text.
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
