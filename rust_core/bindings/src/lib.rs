//! The Python face of Headgate: classes, capsules and errors; no logic.

use pyo3::prelude::*;

#[pymodule]
mod _native {}
