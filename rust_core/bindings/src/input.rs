//! The input of a reader.

use std::sync::Arc;

use headgate_exchange::{DataInput, ShuffleEnvironment};
use pyo3::prelude::*;

use crate::gate::InputGate;
use crate::union::UnionInputGate;

/// A gate, or a union of several.
#[derive(FromPyObject)]
pub(crate) enum AnyGate<'py> {
    One(PyRef<'py, InputGate>),
    Union(PyRef<'py, UnionInputGate>),
}

impl AnyGate<'_> {
    pub(crate) fn environment(&self) -> &Arc<ShuffleEnvironment> {
        match self {
            Self::One(gate) => &gate.environment,
            Self::Union(gate) => &gate.environment,
        }
    }

    pub(crate) fn input(&self) -> Arc<dyn DataInput> {
        match self {
            Self::One(gate) => Arc::<headgate_exchange::InputGate>::clone(&gate.inner),
            Self::Union(gate) => Arc::<headgate_exchange::UnionInputGate>::clone(&gate.inner),
        }
    }
}
