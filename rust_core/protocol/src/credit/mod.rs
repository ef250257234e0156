//! Credit of a channel: the permission to send one data buffer for each segment that is free for it.

mod receive;
mod send;

pub use receive::{BufferKind, NoCredit, ReceiveLedger};
pub use send::{CreditError, SendCredit};
