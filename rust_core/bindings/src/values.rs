//! Arrow values by position, of keyed state.

use std::sync::{Arc, Mutex, MutexGuard};

use headgate_state::{Values, ValuesError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3_arrow::PySchema;

use crate::arrays::{Batch, ToArray};
use crate::batches::FromPyarrow;
use crate::errors::Report;
use crate::interrupt::released;
use crate::numbers::Numbers;
use crate::state::{StateMemory, memory_of, no_room};

fn of_values(py: Python<'_>, error: &ValuesError) -> PyErr {
    match error {
        ValuesError::Arrow(_) => PyValueError::new_err(error.to_string()),
        ValuesError::NoRoom(_) => no_room(py, error),
        ValuesError::NoValue(_) => Report::new(9001, error).into_py(py),
    }
}

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct ArrowValues {
    values: Mutex<Values>,
    from: FromPyarrow,
    to: Arc<ToArray>,
}

impl ArrowValues {
    fn of(
        schema: &Bound<'_, PyAny>,
        values: impl FnOnce(&PySchema) -> PyResult<Values>,
    ) -> PyResult<Self> {
        let py = schema.py();
        let field = schema.call_method1("field", (0,))?;
        let to = ToArray::new(&field.getattr("type")?)?;
        let schema = schema.extract::<PySchema>()?;
        let values = Mutex::new(values(&schema)?);
        Ok(Self { values, from: FromPyarrow::new(py, &schema)?, to: Arc::new(to) })
    }

    /// # Panics
    /// An earlier call did: what it left half changed is never used.
    fn lock(&self) -> MutexGuard<'_, Values> {
        self.values.lock().expect("an earlier call of these values panicked")
    }
}

#[pymethods]
impl ArrowValues {
    #[new]
    #[pyo3(signature = (schema, memory=None))]
    fn new(schema: &Bound<'_, PyAny>, memory: Option<&Bound<'_, StateMemory>>) -> PyResult<Self> {
        Self::of(schema, |schema| {
            Ok(Values::new(schema.as_ref().field(0).data_type(), &memory_of(memory)))
        })
    }

    /// Returns the same values as structs with more fields.
    fn evolved(&self, schema: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = schema.py();
        Self::of(schema, |schema| {
            let data_type = schema.as_ref().field(0).data_type();
            let evolved = released(py, || self.lock().evolved(data_type));
            evolved.map_err(|error| of_values(py, &error))
        })
    }

    /// Drops values, stores those of a batch's column, and returns the position of the first.
    fn put(&self, batch: &Bound<'_, PyAny>, replaced: Numbers) -> PyResult<i64> {
        let py = batch.py();
        let batch = match self.from.take(py, batch)? {
            Some(batch) => batch,
            None => batch.extract::<Batch>()?.into_inner(),
        };
        let first = released(py, move || self.lock().put(batch.column(0), replaced.values()));
        first.map_err(|error| of_values(py, &error))
    }

    fn drop(&self, py: Python<'_>, positions: Numbers) -> PyResult<()> {
        let dropped = released(py, || self.lock().drop_at(positions.values()));
        dropped.map_err(|error| of_values(py, &error))
    }

    fn freeze(&self, py: Python<'_>) -> FrozenValues {
        FrozenValues { values: released(py, || self.lock().freeze()), to: self.to.clone() }
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        released(py, || self.lock().len())
    }
}

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct FrozenValues {
    values: headgate_state::FrozenValues,
    to: Arc<ToArray>,
}

#[pymethods]
impl FrozenValues {
    /// Returns the values at positions, null for 0.
    fn take<'py>(&self, py: Python<'py>, positions: Numbers) -> PyResult<Bound<'py, PyAny>> {
        let taken = released(py, || self.values.take(positions.values()));
        self.to.import(py, &taken.map_err(|error| of_values(py, &error))?)
    }
}
