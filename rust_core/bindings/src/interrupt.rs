//! Ctrl-C in blocking calls.

use std::sync::Mutex;

use headgate_exchange::{ExchangeError, Interrupt, Result};
use pyo3::prelude::*;

use crate::errors::to_py;

/// Runs `call` without the GIL; while it blocks, Python's signal handlers run, and what they raise
/// (a `KeyboardInterrupt`) ends it.
pub(crate) fn blocking<T: Send>(
    py: Python<'_>,
    call: impl FnOnce(Interrupt<'_>) -> Result<T> + Send,
) -> PyResult<T> {
    let raised = Mutex::new(None);
    let result = py.detach(|| {
        let check = || {
            Python::attach(|py| py.check_signals()).map_err(|error| {
                *raised.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
                ExchangeError::Interrupted
            })
        };
        call(&check)
    });
    result.map_err(|error| {
        let raised = raised.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        match (error, raised) {
            (ExchangeError::Interrupted, Some(raised)) => raised,
            (error, _) => to_py(py, &error),
        }
    })
}
