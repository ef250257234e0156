//! Parts of Flink's gates that the Spark path never calls: several gates read as one, and the
//! supersteps of iterations.

pub(super) mod superstep_input;
pub(super) mod supersteps;
pub(super) mod union_gate;
