//! `ResultPartition`.

use std::path::PathBuf;
use std::sync::Arc;

use headgate_exchange::{ExchangeError, ResultPartition as Inner, ShuffleEnvironment};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::interrupt::{blocking, released, timeout_of};

/// A subpartition, the bytes of its data, and its index.
type Kept<'py> = (usize, u64, Bound<'py, PyBytes>);

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct ResultPartition {
    pub(crate) environment: Arc<ShuffleEnvironment>,
    pub(crate) inner: Arc<Inner>,
}

#[pymethods]
impl ResultPartition {
    #[getter]
    fn id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.inner.id().0)
    }

    #[getter]
    fn num_subpartitions(&self) -> usize {
        self.inner.num_subpartitions()
    }

    #[getter]
    fn is_released(&self, py: Python<'_>) -> PyResult<bool> {
        blocking(py, |_| {
            self.environment.check_fork()?;
            Ok(self.inner.is_released())
        })
    }

    fn release_subpartition(&self, py: Python<'_>, index: usize) -> PyResult<()> {
        if index >= self.inner.num_subpartitions() {
            return Err(PyIndexError::new_err(format!(
                "subpartition {index} of {}",
                self.inner.num_subpartitions()
            )));
        }
        blocking(py, |_| self.environment.check())?;
        released(py, || self.inner.release_subpartition(index));
        Ok(())
    }

    #[pyo3(signature = (timeout=None))]
    fn wait_consumed(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let timeout = timeout_of(timeout)?;
        blocking(py, |interrupt| {
            self.environment.check()?;
            self.inner.wait_consumed(timeout, interrupt)
        })
    }

    #[pyo3(signature = (timeout=None))]
    fn wait_all_data_processed(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let timeout = timeout_of(timeout)?;
        blocking(py, |interrupt| {
            self.environment.check()?;
            self.inner.wait_all_data_processed(timeout, interrupt)
        })
    }

    fn subscribe_task_event(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        blocking(py, |_| {
            self.environment.check()?;
            self.inner.task_events().subscribe(name)
        })
    }

    /// Takes no lock, because the writer calls it with each record.
    #[getter]
    fn has_task_events(&self) -> bool {
        self.inner.task_events().has_pending()
    }

    /// Returns `(subpartition, name, body)`, or `None`.
    fn take_task_event<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<(usize, String, Bound<'py, PyBytes>)>> {
        let event = blocking(py, |_| {
            self.environment.check_fork()?;
            Ok(self.inner.task_events().take())
        })?;
        Ok(event.map(|event| (event.subpartition, event.name, PyBytes::new(py, &event.body))))
    }

    /// Returns `(subpartition, bytes of its data, index)` for each one with rows, and whether the
    /// buffers are in the file, which has this name then. They follow each index if they have at most
    /// `inline_limit` bytes in all.
    fn keep<'py>(
        &self,
        py: Python<'py>,
        file: PathBuf,
        inline_limit: u64,
    ) -> PyResult<(Vec<Kept<'py>>, bool)> {
        let (kept, linked) = blocking(py, |_| {
            self.environment.check()?;
            let kept = self.inner.keep()?;
            let sizes = (0..kept.num_subpartitions()).map(|index| (index, kept.bytes(index)));
            let sizes: Vec<_> = sizes.filter(|(_, bytes)| *bytes > 0).collect();
            let linked = sizes.iter().map(|(_, bytes)| bytes).sum::<u64>() > inline_limit;
            if linked {
                kept.link(&file)?;
            }
            let index = |(index, bytes)| {
                let index_of = if linked { Ok(kept.index(index)) } else { kept.inline(index) };
                Ok((index, bytes, index_of?))
            };
            Ok((sizes.into_iter().map(index).collect::<Result<Vec<_>, ExchangeError>>()?, linked))
        })?;
        let kept =
            kept.into_iter().map(|(index, size, kept)| (index, size, PyBytes::new(py, &kept)));
        Ok((kept.collect(), linked))
    }

    fn fail(&self, py: Python<'_>, cause: String) -> PyResult<()> {
        blocking(py, |_| {
            self.environment.check()?;
            self.inner.fail(&ExchangeError::Aborted(cause));
            Ok(())
        })
    }

    fn close(&self, py: Python<'_>) {
        released(py, || self.environment.release_partition(self.inner.id()));
    }
}
