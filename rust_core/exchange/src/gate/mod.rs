//! The consumer's input: all channels of one gate, read fairly (spec 8.1 to 8.4).
//!
//! | file | is |
//! |---|---|
//! | `input_gate` | [`InputGate`]: the parts below as one |
//! | `queue`, `slot`, `wake`, `wait` | which channel is read next, and who is woken |
//! | `channel`, `local`, `remote`, `kept` | one channel: its interface, and the three kinds of it |
//! | `pool` | segments of the remote channels |
//! | `upstream`, `debloat` | messages to the producers; the buffer size among them |
//! | `announcement`, `decompression` | barriers that may overtake; compressed buffers |
//! | `checkpointing`, `persisting` | what the owner asks of the reader's checkpoints; their data in flight |

mod announcement;
mod channel;
mod checkpointing;
mod data_input;
mod debloat;
mod decompression;
mod input_gate;
mod kept;
mod local;
mod persisting;
mod pool;
mod queue;
mod remote;
mod slot;
mod upstream;
mod wait;
mod wake;

pub use checkpointing::{
    CheckpointedChannel, CheckpointedChannels, CheckpointedInput, Checkpointing,
};
pub use data_input::{AvailabilityListener, DataInput, EndOfDataStatus, Received};
pub(crate) use debloat::Debloating;
pub use input_gate::InputGate;
pub(crate) use input_gate::Place;
pub(crate) use kept::KeptChannel;
pub(crate) use local::{LocalChannel, LocalRequest};
pub(crate) use pool::GatePool;
pub(crate) use remote::RemoteChannel;
pub(crate) use wait::{wait_for, wait_until};
pub(crate) use wake::{Listeners, Wake};

#[cfg(test)]
pub(crate) mod tests;
