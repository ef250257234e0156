//! Keyed state: the index of keys, chains of nodes, numbers by time.

use std::os::fd::IntoRawFd;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use arrow_array::ArrayRef;
use headgate_state::{ChainError, IndexError, Resolved};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3_arrow::{PyArray, PySchema};

use crate::arrays::Column;
use crate::errors::Report;
use crate::interrupt::released;
use crate::numbers::{Numbers, to_arrow};

fn of_index(py: Python<'_>, error: &IndexError) -> PyErr {
    match error {
        IndexError::Columns(_) => Report::new(4002, error).into_py(py),
        IndexError::Full => Report::new(5001, error).into_py(py),
        IndexError::NoKey(_) => Report::new(9001, error).into_py(py),
        IndexError::NoRoom(_) => no_room(py, error),
    }
}

fn of_chains(py: Python<'_>, error: &ChainError) -> PyErr {
    match error {
        ChainError::BadNumber(_) => PyValueError::new_err(error.to_string()),
        ChainError::NoRoom(_) => no_room(py, error),
    }
}

pub(crate) fn no_room(py: Python<'_>, error: impl ToString) -> PyErr {
    Report::new(5003, error).remedy(MORE_ROOM).into_py(py)
}

const MORE_ROOM: &str = "temp_directories on a disk with room · a larger state_memory";

fn arrow(py: Python<'_>, array: ArrayRef) -> PyResult<Bound<'_, PyAny>> {
    let array = PyArray::from_array_ref(array);
    py.import("pyarrow")?.call_method1("array", (array,))
}

fn columns(columns: Vec<Column>) -> Vec<ArrayRef> {
    columns.into_iter().map(Column::into_inner).collect()
}

/// Takes a lock without the GIL held: its holder may be another thread of the operator, which writes a snapshot.
///
/// # Panics
/// An earlier call did: what it left half changed is never used.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("an earlier call of this state panicked")
}

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct StateMemory(headgate_state::StateMemory);

#[pymethods]
impl StateMemory {
    #[new]
    fn new(limit: Option<usize>, directories: Vec<PathBuf>) -> Self {
        Self(headgate_state::StateMemory::new(limit, directories))
    }

    /// Returns a memory under the same limit that counts its own blocks.
    fn share(&self) -> Self {
        Self(self.0.share())
    }

    /// Makes a file without a name; returns its descriptor, which is the caller's.
    fn file(&self, py: Python<'_>, size: usize) -> PyResult<i32> {
        let file = released(py, || self.0.file(size));
        let text = |error| format!("there is no room for more state: {error}");
        Ok(file.map_err(|error| no_room(py, text(error)))?.into_raw_fd())
    }

    /// Counts bytes; returns true if they may be memory of the process, and false if they are to be a file.
    fn reserve(&self, size: usize) -> bool {
        self.0.reserve(size)
    }

    /// Counts reserved bytes no more.
    fn release(&self, size: usize, in_memory: bool) {
        self.0.release(size, in_memory);
    }

    /// Has the kernel begin to read the values at some positions of a file that is mapped at an address.
    fn want(&self, py: Python<'_>, start: usize, width: usize, places: Numbers) {
        let places = places.values().iter().filter_map(|&place| usize::try_from(place).ok());
        released(py, || self.0.want_pages(start, width, places));
    }

    /// Returns bytes in memory and bytes in files.
    #[getter]
    fn usage(&self) -> (usize, usize) {
        let usage = self.0.usage();
        (usage.in_memory, usage.in_files)
    }
}

/// The memory of a structure; that of the process if there is none.
pub(crate) fn memory_of(memory: Option<&Bound<'_, StateMemory>>) -> headgate_state::StateMemory {
    memory.map_or_else(Default::default, |memory| memory.get().0.clone())
}

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct KeyIndex(Mutex<headgate_state::KeyIndex>);

#[pymethods]
impl KeyIndex {
    #[new]
    #[pyo3(signature = (schema, memory=None))]
    fn new(
        py: Python<'_>,
        schema: PySchema,
        memory: Option<&Bound<'_, StateMemory>>,
    ) -> PyResult<Self> {
        let schema = schema.into_inner();
        let types: Vec<_> = schema.fields().iter().map(|field| field.data_type().clone()).collect();
        let index = headgate_state::KeyIndex::try_new(&types, &memory_of(memory));
        index.map(|index| Self(Mutex::new(index))).map_err(|error| of_index(py, &error))
    }

    /// Returns rows, slots, first rows and the new keys: see `Resolved`.
    fn resolve<'py>(&self, py: Python<'py>, of: Vec<Column>) -> PyResult<[Bound<'py, PyAny>; 4]> {
        let of = columns(of);
        let found = released(py, || lock(&self.0).resolve(&of));
        let Resolved { rows, slots, first, new } = found.map_err(|error| of_index(py, &error))?;
        Ok([to_arrow(py, rows)?, to_arrow(py, slots)?, to_arrow(py, first)?, to_arrow(py, new)?])
    }

    fn reserve(&self, py: Python<'_>, keys: usize) -> PyResult<()> {
        let reserved = released(py, || lock(&self.0).reserve(keys));
        reserved.map_err(|error| of_index(py, &error))
    }

    fn find<'py>(&self, py: Python<'py>, of: Vec<Column>) -> PyResult<Bound<'py, PyAny>> {
        let of = columns(of);
        let slots = released(py, || lock(&self.0).find(&of));
        to_arrow(py, slots.map_err(|error| of_index(py, &error))?)
    }

    fn keys<'py>(&self, py: Python<'py>, slots: Numbers) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let keys = released(py, || lock(&self.0).keys(slots.values()));
        let keys = keys.map_err(|error| of_index(py, &error))?;
        keys.into_iter().map(|column| arrow(py, column)).collect()
    }

    fn remove(&self, py: Python<'_>, slots: Numbers) -> PyResult<()> {
        let removed = released(py, || lock(&self.0).remove(slots.values()));
        removed.map_err(|error| of_index(py, &error))
    }

    #[getter]
    fn num_keys(&self, py: Python<'_>) -> usize {
        released(py, || lock(&self.0).len())
    }
}

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct Chains(Mutex<headgate_state::Chains>);

#[pymethods]
impl Chains {
    #[new]
    #[pyo3(signature = (memory=None))]
    fn new(memory: Option<&Bound<'_, StateMemory>>) -> Self {
        Self(Mutex::new(headgate_state::Chains::new(&memory_of(memory))))
    }

    /// Returns nodes that are in no chain.
    fn take<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Bound<'py, PyAny>> {
        let nodes = released(py, || lock(&self.0).take(count));
        to_arrow(py, nodes.map_err(|error| of_chains(py, &error))?)
    }

    fn give_back(&self, py: Python<'_>, nodes: Numbers) -> PyResult<()> {
        let back = released(py, || lock(&self.0).give_back(nodes.values()));
        back.map_err(|error| of_chains(py, &error))
    }

    fn append(&self, py: Python<'_>, owners: Numbers, nodes: Numbers) -> PyResult<()> {
        let appended = released(py, || lock(&self.0).append(owners.values(), nodes.values()));
        appended.map_err(|error| of_chains(py, &error))
    }

    fn remove(&self, py: Python<'_>, owners: Numbers, nodes: Numbers) -> PyResult<()> {
        let removed = released(py, || lock(&self.0).remove(owners.values(), nodes.values()));
        removed.map_err(|error| of_chains(py, &error))
    }

    /// Returns the length of each owner's chain, and all nodes.
    fn collect<'py>(&self, py: Python<'py>, owners: Numbers) -> PyResult<[Bound<'py, PyAny>; 2]> {
        let (lengths, nodes) = released(py, || lock(&self.0).collect(owners.values()));
        Ok([to_arrow(py, lengths)?, to_arrow(py, nodes)?])
    }

    fn clear(&self, py: Python<'_>, owners: Numbers) -> PyResult<()> {
        released(py, || lock(&self.0).clear(owners.values()));
        Ok(())
    }
}

#[pyclass(frozen, module = "headgate._native")]
pub(crate) struct TimeQueue(Mutex<headgate_state::TimeQueue>);

#[pymethods]
impl TimeQueue {
    #[new]
    #[pyo3(signature = (memory=None))]
    fn new(memory: Option<&Bound<'_, StateMemory>>) -> Self {
        Self(Mutex::new(headgate_state::TimeQueue::new(&memory_of(memory))))
    }

    fn push(&self, py: Python<'_>, times: Numbers, numbers: Numbers) -> PyResult<()> {
        let pushed = released(py, || lock(&self.0).push(times.values(), numbers.values()));
        pushed.map_err(|error| no_room(py, error))
    }

    fn until<'py>(&self, py: Python<'py>, time: i64) -> PyResult<[Bound<'py, PyAny>; 2]> {
        let (times, numbers) = released(py, || lock(&self.0).until(time));
        Ok([to_arrow(py, times)?, to_arrow(py, numbers)?])
    }

    fn pop<'py>(&self, py: Python<'py>, until: i64) -> PyResult<[Bound<'py, PyAny>; 2]> {
        let (times, numbers) = released(py, || lock(&self.0).pop(until));
        Ok([to_arrow(py, times)?, to_arrow(py, numbers)?])
    }

    #[getter]
    fn first(&self, py: Python<'_>) -> Option<i64> {
        released(py, || lock(&self.0).first())
    }

    fn first_after(&self, py: Python<'_>, time: i64) -> Option<i64> {
        released(py, || lock(&self.0).first_after(time))
    }

    fn clear(&self, py: Python<'_>) {
        released(py, || lock(&self.0).clear());
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        released(py, || lock(&self.0).len())
    }
}
