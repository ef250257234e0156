//! Parts of Flink's exchange that nothing else here needs: several gates read as one. No other module imports this one.

mod union_gate;

pub use union_gate::UnionInputGate;

#[cfg(test)]
mod tests;
