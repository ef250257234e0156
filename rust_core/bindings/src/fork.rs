//! Functions that Python calls around each fork, so that a child keeps the rows of its parent's batches.
//!
//! They keep the GIL, so that no other thread gets a batch between the copies and the fork. No thread
//! that holds the locks that they take waits for the GIL.

use headgate_exchange::{after_fork_in_child, after_fork_in_parent, before_fork};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyModule};
use pyo3::wrap_pyfunction;

#[pyfunction]
fn before() -> PyResult<()> {
    before_fork().map_err(|error| {
        let text = format!(
            "batches that this process keeps cannot be copied for a forked child ({error}): a child that \
             reads them ends by SIGSEGV. Raise the limit of memory or descriptors, or keep copies of them"
        );
        PyOSError::new_err(text)
    })
}

#[pyfunction]
fn in_parent() {
    after_fork_in_parent();
}

#[pyfunction]
fn in_child() {
    after_fork_in_child();
    headgate_trace::clear();
}

/// Makes Python call the functions in each `os.fork` of this process and its children.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let calls = [
        ("before", wrap_pyfunction!(before, module)?),
        ("after_in_parent", wrap_pyfunction!(in_parent, module)?),
        ("after_in_child", wrap_pyfunction!(in_child, module)?),
    ];
    let os = py.import("os")?;
    os.call_method("register_at_fork", (), Some(&calls.into_py_dict(py)?)).map(drop)
}
