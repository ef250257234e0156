//! Parts of Flink's gates that the Spark path never calls: several gates read as one, and the
//! supersteps of iterations.

mod superstep_input;
mod supersteps;
mod union_gate;

pub use superstep_input::SuperstepInput;
pub(super) use supersteps::Supersteps;
pub use union_gate::UnionInputGate;
