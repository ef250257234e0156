//! `InputGate`.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use headgate_exchange::{
    Address, CheckpointedInput, DataInput, EndOfDataStatus, ExchangeError, InputGate as Inner,
    PartitionId, Sequence, ShuffleEnvironment,
};
use pyo3::prelude::*;
use pyo3_arrow::PySchema;

use crate::checkpoints;
use crate::interrupt::{blocking, released};
use crate::schema::page_schema;

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct InputGate {
    pub(crate) environment: Arc<ShuffleEnvironment>,
    pub(crate) inner: Arc<Inner>,
}

fn schema_hash(py: Python<'_>, schema: Option<PySchema>) -> PyResult<[u8; 32]> {
    let schema = schema.map(|schema| page_schema(py, schema)).transpose()?;
    Ok(schema.map_or([0; 32], |schema| schema.hash()))
}

/// Returns the number of the status in `headgate.EndOfDataStatus`.
pub(crate) fn status(input: &dyn DataInput) -> u8 {
    match input.end_of_data_status() {
        EndOfDataStatus::NotEndOfData => 0,
        EndOfDataStatus::Drained => 1,
        EndOfDataStatus::Stopped => 2,
    }
}

pub(crate) fn num_ended(
    py: Python<'_>,
    environment: &ShuffleEnvironment,
    input: &dyn DataInput,
) -> PyResult<usize> {
    blocking(py, |_| {
        environment.check_fork()?;
        Ok(input.checkpointed_channels()?.ended.len())
    })
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
    ) -> PyResult<usize> {
        let hash = schema_hash(py, schema)?;
        let partition = PartitionId(partition);
        let address = Address { host, port, process, partition, subpartition };
        blocking(py, |_| self.environment.add_channel(&self.inner, &address, hash))
    }

    #[pyo3(signature = (kept, file=None))]
    fn add_kept_channel(
        &self,
        py: Python<'_>,
        kept: &[u8],
        file: Option<PathBuf>,
    ) -> PyResult<usize> {
        blocking(py, |_| self.environment.add_kept_channel(&self.inner, kept, file))
    }

    fn add_unknown_channel(&self, py: Python<'_>) -> PyResult<usize> {
        blocking(py, |_| {
            self.environment.check()?;
            self.inner.add_unknown_channel()
        })
    }

    #[pyo3(signature = (channel, host, port, process, partition, subpartition, schema=None))]
    #[expect(clippy::too_many_arguments, reason = "the fields of an address, one by one")]
    fn update_channel(
        &self,
        py: Python<'_>,
        channel: usize,
        host: String,
        port: u16,
        process: [u8; 16],
        partition: [u8; 16],
        subpartition: u32,
        schema: Option<PySchema>,
    ) -> PyResult<bool> {
        let hash = schema_hash(py, schema)?;
        let partition = PartitionId(partition);
        let address = Address { host, port, process, partition, subpartition };
        blocking(py, |_| self.environment.update_channel(&self.inner, channel, &address, hash))
    }

    fn is_unknown(&self, py: Python<'_>, channel: usize) -> PyResult<bool> {
        blocking(py, |_| {
            self.environment.check()?;
            self.inner.is_unknown(channel)
        })
    }

    fn end_of_data_status(&self, py: Python<'_>) -> PyResult<u8> {
        blocking(py, |_| {
            self.environment.check_fork()?;
            Ok(status(&*self.inner))
        })
    }

    #[getter]
    fn num_channels(&self, py: Python<'_>) -> PyResult<usize> {
        blocking(py, |_| {
            self.environment.check_fork()?;
            Ok(self.inner.num_channels())
        })
    }

    /// Counts the channels that have ended, of a gate to which none can be added.
    fn num_ended_channels(&self, py: Python<'_>) -> PyResult<usize> {
        num_ended(py, &self.environment, &*self.inner)
    }

    fn send_task_event(&self, py: Python<'_>, name: String, body: Vec<u8>) -> PyResult<()> {
        blocking(py, |_| {
            self.environment.check()?;
            self.inner.send_task_event(&name, Bytes::from(body))
        })
    }

    fn announce_buffer_size(&self, py: Python<'_>, size: NonZeroU32) -> PyResult<()> {
        blocking(py, |_| {
            self.environment.check()?;
            self.inner.announce_buffer_size(size);
            Ok(())
        })
    }

    fn resume_consumption(&self, py: Python<'_>, channel: usize) -> PyResult<()> {
        blocking(py, |_| {
            self.environment.check()?;
            self.inner.resume_consumption(channel)
        })
    }

    fn convert_to_priority(&self, py: Python<'_>, channel: usize, sequence: u32) -> PyResult<bool> {
        blocking(py, |_| {
            self.environment.check()?;
            self.inner.convert_to_priority(channel, Sequence(sequence))
        })
    }

    fn acknowledge_all_records_processed(&self, py: Python<'_>, channel: usize) -> PyResult<()> {
        blocking(py, |_| {
            self.environment.check()?;
            self.inner.acknowledge_all_records_processed(channel)
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
