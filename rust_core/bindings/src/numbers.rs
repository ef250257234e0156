//! Numbers of rows, slots and positions: int64, from numpy or Arrow arrays, and to Arrow arrays.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, Int64Array};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::arrays::{Column, ToArray};
use crate::interrupt::released;

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

/// Returns the rows in the order of their groups, and of each its place in its group: see `by_group`.
#[pyfunction]
#[pyo3(signature = (groups, numbers=None, nulls=None))]
pub(crate) fn rows_by_group(
    py: Python<'_>,
    groups: Numbers,
    numbers: Option<Numbers>,
    nulls: Option<PyBuffer<u8>>,
) -> PyResult<[Bound<'_, PyAny>; 2]> {
    let numbers = numbers.as_ref().map_or(&[][..], Numbers::values);
    let nulls = nulls.map(|nulls| nulls.to_vec(py)).transpose()?.unwrap_or_default();
    let sorted = released(py, || headgate_state::by_group(groups.values(), numbers, &nulls));
    let (order, places) = sorted.map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok([to_arrow(py, order)?, to_arrow(py, places)?])
}

/// Returns the number of each interval's joint one, and of these the first interval and the end: see `JointIntervals`.
#[pyfunction]
pub(crate) fn join_intervals(
    py: Python<'_>,
    keys: Numbers,
    starts: Numbers,
    ends: Numbers,
) -> PyResult<[Bound<'_, PyAny>; 3]> {
    let (keys, starts, ends) = (keys.values(), starts.values(), ends.values());
    let joint = released(py, || headgate_state::join_intervals(keys, starts, ends));
    let joint = joint.map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok([to_arrow(py, joint.numbers)?, to_arrow(py, joint.first)?, to_arrow(py, joint.ends)?])
}
