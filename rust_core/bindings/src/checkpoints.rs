//! Checkpoints of a gate and its reader, as objects of `headgate.checkpoints`.

use bytes::Bytes;
use headgate_exchange::{
    Alignment, Barrier, ChannelRecord, ChannelStates, CheckpointId, CheckpointNotice,
    CheckpointOptions, DataInput, ShuffleEnvironment,
};
use pyo3::call::PyCallArgs;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3_arrow::PySchema;

use crate::batches::ToPyarrow;
use crate::interrupt::blocking;
use crate::schema::page_schema;

/// A `headgate.CheckpointBarrier`, which is a tuple.
pub(crate) type PyBarrier = (i64, i64, String, u64, Vec<u8>);

/// The alignment of a barrier with this timeout.
type OfTimeout = fn(u64) -> Alignment;

/// The alignments by the names that `headgate.CheckpointBarrier` has for them, each from its timeout.
const ALIGNMENTS: [(&str, OfTimeout); 4] = [
    ("aligned", |_| Alignment::Aligned),
    ("at_least_once", |_| Alignment::AtLeastOnce),
    ("timeoutable", |timeout| Alignment::Timeoutable { timeout }),
    ("unaligned", |_| Alignment::Unaligned),
];

pub(crate) fn barrier(barrier: PyBarrier) -> PyResult<Barrier> {
    let (id, timestamp, name, timeout, body) = barrier;
    let alignment = ALIGNMENTS.iter().find(|(known, _)| *known == name);
    let unknown = || PyValueError::new_err(format!("{name} is no alignment"));
    let alignment = alignment.ok_or_else(unknown)?.1(timeout);
    let options = CheckpointOptions { alignment, snapshot: Bytes::from(body) };
    Ok(Barrier { id: CheckpointId(id), timestamp, options })
}

/// Returns the object of `headgate.checkpoints` that says the same.
pub(crate) fn notice(py: Python<'_>, notice: CheckpointNotice) -> PyResult<Bound<'_, PyAny>> {
    match notice {
        CheckpointNotice::Trigger(barrier) => {
            let CheckpointOptions { alignment, snapshot } = barrier.options;
            let timeout = match alignment {
                Alignment::Timeoutable { timeout } => timeout,
                Alignment::Aligned | Alignment::AtLeastOnce | Alignment::Unaligned => 0,
            };
            let known = ALIGNMENTS.iter().find(|(_, of)| of(timeout) == alignment);
            let (name, _) = known.expect("each alignment has a name");
            let body = PyBytes::new(py, &snapshot);
            let fields = (barrier.id.0, barrier.timestamp, *name, timeout, body);
            new(py, "CheckpointBarrier", fields)
        }
        CheckpointNotice::Complete { checkpoint, metrics, bytes_in_alignment, persisted_bytes } => {
            let durations = (metrics.alignment_duration, metrics.start_delay);
            let fields =
                (checkpoint.0, durations.0, durations.1, bytes_in_alignment, persisted_bytes);
            new(py, "CheckpointComplete", fields)
        }
        CheckpointNotice::Aborted { checkpoint, reason } => {
            new(py, "CheckpointAborted", (checkpoint.0, reason))
        }
    }
}

fn new<'py>(
    py: Python<'py>,
    class: &str,
    fields: impl PyCallArgs<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import("headgate.checkpoints")?.getattr(class)?.call1(fields)
}

pub(crate) fn enable(
    py: Python<'_>,
    environment: &ShuffleEnvironment,
    input: &dyn DataInput,
    after_finish: bool,
) -> PyResult<()> {
    blocking(py, |_| {
        environment.check()?;
        input.enable_checkpointing(after_finish)
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
