//! An iterator whose errors are prepared for the reader of a traceback, without a frame of its own.

use pyo3::prelude::*;
use pyo3::types::PyIterator;

/// Iterates over what a task yields. Of an error it raises what `shown` returns for it.
///
/// It is native because each Python frame that an exception leaves is added to its traceback again.
#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct OwnFrames {
    iterator: Py<PyIterator>,
    shown: Py<PyAny>,
}

#[pymethods]
impl OwnFrames {
    #[new]
    fn new(iterator: &Bound<'_, PyAny>, shown: Py<PyAny>) -> PyResult<Self> {
        Ok(Self { iterator: iterator.try_iter()?.unbind(), shown })
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut iterator = self.iterator.bind(py).clone();
        iterator.next().transpose().map_err(|error| {
            let shown = self.shown.bind(py).call1((error.into_value(py),));
            shown.map_or_else(|failure| failure, PyErr::from_value)
        })
    }
}
