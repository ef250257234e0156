//! Checkpoints: when a task takes its snapshot, and what belongs to it.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "../support/exhaust.rs"]
mod exhaust;

mod aligned;
mod alternating;
mod finished;
mod model;
mod persister;
mod search;
mod simulator;
mod task;
mod tracker;
mod unaligned;
mod writer;
