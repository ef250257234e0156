//! Numbers of rows, slots and positions: int64, from numpy or Arrow arrays, and to Arrow arrays.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, Int64Array};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::arrays::{Column, ToArray};

/// Numbers of a caller.
pub(crate) enum Numbers {
    /// Of a numpy array: a copy, which costs less than to describe it as an Arrow array.
    Copied(Vec<i64>),
    Shared(Int64Array),
}

impl Numbers {
    pub(crate) fn values(&self) -> &[i64] {
        match self {
            Self::Copied(values) => values,
            Self::Shared(array) => array.values(),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Numbers {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(buffer) = PyBuffer::<i64>::get(&given) {
            return Ok(Self::Copied(buffer.to_vec(given.py())?));
        }
        let array = given.extract::<Column>()?.into_inner();
        let array = array.as_primitive_opt::<Int64Type>().filter(|array| array.null_count() == 0);
        let array = array.ok_or_else(|| PyTypeError::new_err("numbers are int64 without nulls"))?;
        Ok(Self::Shared(array.clone()))
    }
}

/// Returns numbers as a pyarrow array.
pub(crate) fn to_arrow(py: Python<'_>, numbers: Vec<i64>) -> PyResult<Bound<'_, PyAny>> {
    static TO: PyOnceLock<ToArray> = PyOnceLock::new();
    let of_int64 = || ToArray::new(&py.import("pyarrow")?.call_method0("int64")?);
    TO.get_or_try_init(py, of_int64)?.import(py, &Int64Array::from(numbers))
}
