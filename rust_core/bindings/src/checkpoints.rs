//! Checkpoints of a gate and its reader, as tuples for `headgate.checkpoints`.

use bytes::Bytes;
use headgate_exchange::{
    Alignment, Barrier, ChannelRecord, ChannelStates, CheckpointId, CheckpointNotice,
    CheckpointOptions, CheckpointingMode, CheckpointingOptions, DataInput, ShuffleEnvironment,
};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3_arrow::PySchema;

use crate::batches::ToPyarrow;
use crate::interrupt::blocking;
use crate::schema::page_schema;

/// The fields of `headgate.CheckpointBarrier`, in their order.
pub(crate) type Fields = (i64, i64, String, u64, Vec<u8>);

pub(crate) fn barrier(fields: Fields) -> PyResult<Barrier> {
    let (id, timestamp, alignment, timeout, body) = fields;
    let alignment = match alignment.as_str() {
        "aligned" => Alignment::Aligned,
        "timeoutable" => Alignment::Timeoutable { timeout },
        "unaligned" => Alignment::Unaligned,
        "at_least_once" => Alignment::AtLeastOnce,
        other => return Err(PyValueError::new_err(format!("{other} is no alignment"))),
    };
    let options = CheckpointOptions { alignment, snapshot: Bytes::from(body) };
    Ok(Barrier { id: CheckpointId(id), timestamp, options })
}

/// Returns a tuple whose first field is the kind of notice. The tuple of an event begins with a number.
pub(crate) fn notice_tuple(py: Python<'_>, notice: CheckpointNotice) -> PyResult<Bound<'_, PyAny>> {
    match notice {
        CheckpointNotice::Trigger(barrier) => {
            let (alignment, timeout) = match barrier.options.alignment {
                Alignment::Aligned => ("aligned", 0),
                Alignment::Timeoutable { timeout } => ("timeoutable", timeout),
                Alignment::Unaligned => ("unaligned", 0),
                Alignment::AtLeastOnce => ("at_least_once", 0),
            };
            let body = PyBytes::new(py, &barrier.options.snapshot);
            ("trigger", barrier.id.0, barrier.timestamp, alignment, timeout, body)
                .into_bound_py_any(py)
        }
        CheckpointNotice::Complete { checkpoint, metrics, bytes_in_alignment, persisted_bytes } => {
            let durations = (metrics.alignment_duration, metrics.start_delay);
            (
                "complete",
                checkpoint.0,
                durations.0,
                durations.1,
                bytes_in_alignment,
                persisted_bytes,
            )
                .into_bound_py_any(py)
        }
        CheckpointNotice::Aborted { checkpoint, reason } => {
            ("aborted", checkpoint.0, reason).into_bound_py_any(py)
        }
    }
}

pub(crate) fn enable(
    py: Python<'_>,
    environment: &ShuffleEnvironment,
    input: &dyn DataInput,
    (at_least_once, after_finish): (bool, bool),
) -> PyResult<()> {
    let mode =
        if at_least_once { CheckpointingMode::AtLeastOnce } else { CheckpointingMode::ExactlyOnce };
    blocking(py, |_| {
        environment.check()?;
        input.enable_checkpointing(CheckpointingOptions { mode, after_finish })
    })
}

pub(crate) fn abort(
    py: Python<'_>,
    environment: &ShuffleEnvironment,
    input: &dyn DataInput,
    checkpoint: i64,
    reason: String,
) -> PyResult<()> {
    blocking(py, |_| {
        environment.check()?;
        input.abort_checkpoint(CheckpointId(checkpoint), reason)
    })
}

/// Channel states, by the index of the channel or subpartition.
pub(crate) type PyStates<'py> = Vec<(usize, Bound<'py, PyBytes>)>;

pub(crate) fn to_python<'py>(py: Python<'py>, states: &ChannelStates) -> PyStates<'py> {
    states.iter().map(|(index, state)| (*index, PyBytes::new(py, state))).collect()
}

/// Returns the records of one channel's state: batches of the schema, or bytes without one.
#[pyfunction]
#[pyo3(signature = (parts, schema=None))]
pub(crate) fn decode_channel_state<'py>(
    py: Python<'py>,
    parts: &[u8],
    schema: Option<PySchema>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let batches = schema.as_ref().map(|schema| ToPyarrow::new(py, schema)).transpose()?;
    let schema = schema.map(|schema| page_schema(py, schema)).transpose()?;
    let records =
        blocking(py, |_| headgate_exchange::decode_channel_state(parts, schema.as_deref()))?;
    let record = |record| match record {
        ChannelRecord::Batch(batch) => {
            batches.as_ref().expect("pages are read with a schema only").import(py, batch)
        }
        ChannelRecord::Bytes(bytes) => Ok(PyBytes::new(py, &bytes).into_any()),
    };
    records.into_iter().map(record).collect()
}
