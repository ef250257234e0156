//! The Python bindings of Headgate: classes, capsules and errors, without logic of their own.
//!
//! One file per class. Blocking calls release the GIL and check for signals while they wait. No
//! blocking lock is taken while the GIL is held.

mod arrays;
mod batches;
mod checkpoints;
mod control;
mod environment;
mod errors;
mod exclusive;
#[cfg(feature = "failpoints")]
mod failpoints;
mod fork;
mod gate;
mod heartbeat;
mod input;
mod interrupt;
mod kept;
mod numbers;
mod options;
mod own_frames;
mod partition;
mod reader;
mod readiness;
mod schema;
mod state;
mod stats;
mod tls;
mod trace;
mod union;
mod values;
mod writer;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::checkpoints::decode_channel_state;
    #[pymodule_export]
    use crate::control::{ControlHandshake, ControlKey};
    #[pymodule_export]
    use crate::environment::Environment;
    #[cfg(feature = "failpoints")]
    #[pymodule_export]
    use crate::failpoints::{failpoint_hits, set_failpoints};
    #[pymodule_export]
    use crate::gate::InputGate;
    #[pymodule_export]
    use crate::heartbeat::HeartbeatManager;
    #[pymodule_export]
    use crate::kept::{keep_small, read_kept_index, write_kept_indexes};
    #[pymodule_export]
    use crate::numbers::{join_intervals, rows_by_group};
    #[pymodule_export]
    use crate::own_frames::OwnFrames;
    #[pymodule_export]
    use crate::partition::ResultPartition;
    #[pymodule_export]
    use crate::reader::{BufferReader, RecordReader};
    #[pymodule_export]
    use crate::schema::{check_schema, hash_partition_ids, key_groups, key_groups_of_state};
    #[pymodule_export]
    use crate::state::{Chains, KeyIndex, StateMemory, TimeQueue};
    #[pymodule_export]
    use crate::tls::{TlsEndpoint, TlsSession, self_signed_certificate};
    #[pymodule_export]
    use crate::trace::trace_events;
    #[pymodule_export]
    use crate::union::UnionInputGate;
    #[pymodule_export]
    use crate::values::{ArrowValues, FrozenValues};
    #[pymodule_export]
    use crate::writer::{RecordWriter, is_reserved_event};

    use super::{Bound, PyModule, PyResult};
    use pyo3::types::{PyAnyMethods, PyModuleMethods};
    use pyo3::wrap_pyfunction;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let exiting = wrap_pyfunction!(crate::interrupt::exiting, module)?;
        module.py().import("atexit")?.call_method1("register", (exiting,))?;
        crate::fork::register(module)?;
        crate::errors::make_panics_errors(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("__debug_build__", cfg!(debug_assertions))
    }
}
