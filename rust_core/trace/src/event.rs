//! The events, and the line that each of them is for a person.

use std::fmt;
use std::net::SocketAddr;

/// Most bytes of a text in an event.
const LONGEST: usize = 200;

/// A kind of events. Each can be recorded without the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Connections, credit and backlog.
    Net = 1,
    /// Readers of gates, and the barriers that they read.
    Gate = 2,
    /// Pages in files.
    Kept = 4,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Net, Self::Gate, Self::Kept];

    /// The kind's name in the option `trace`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Net => "net",
            Self::Gate => "gate",
            Self::Kept => "kept",
        }
    }
}

/// Connections have numbers within their environment, and channels those that the consumer gave them. Gates have numbers
/// within the process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the line that `Display` writes says what each field is")]
pub enum Event {
    /// This process begins to connect to a producer.
    Dialed { connection: usize, peer: SocketAddr },
    /// A peer connects to this process.
    Accepted { connection: usize, peer: SocketAddr },
    /// The peer has proved itself.
    Opened { connection: usize, peer: SocketAddr, same_host: bool },
    /// The connection ended with a goodbye.
    Closed { connection: usize, peer: SocketAddr },
    /// The connection ended without one.
    Lost { connection: usize, peer: SocketAddr, cause: Box<str> },
    /// The connection ended before the peer proved itself, and is tried again.
    DialedAgain { connection: usize, peer: SocketAddr, cause: Box<str> },
    /// The consumer grants credits.
    Granted { channel: u32, credits: u32 },
    /// The producer is granted credits.
    Credited { connection: usize, channel: u32, credits: u32, backlog: u32 },
    /// The producer announces buffers that no credit lets it send.
    Backlog { channel: u32, buffers: u32 },

    /// The reader of a gate finds nothing.
    Waits { gate: u64 },
    /// There is something to read again.
    GoesOn { gate: u64 },
    /// A gate failed.
    Failed { gate: u64, cause: Box<str> },
    /// A reader reads a barrier, which blocks the channel if it is to be aligned.
    Barrier { channel: usize, checkpoint: i64 },
    /// The channel goes on behind its barrier.
    Resumed { channel: usize },
    /// All barriers have arrived.
    Aligned { checkpoint: i64 },
    /// A checkpoint is given up.
    Aborted { checkpoint: i64, reason: Box<str> },

    /// Pages are written to a file of a partition.
    Spilled { pages: usize, bytes: usize },
    /// A partition's file gets its name.
    Kept { file: Box<str> },
    /// A part of a kept file is opened to be read.
    Mapped { file: Box<str>, offset: u64, bytes: u64 },
    /// A kept file cannot be read.
    Unreadable { file: Box<str>, cause: Box<str> },
}

/// Returns what a value says, cut to the length that an event holds.
pub fn text(value: impl fmt::Display) -> Box<str> {
    let mut text = value.to_string();
    if text.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
    }
    text.into()
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dialed { connection, peer } => {
                write!(f, "connection {connection} to {peer}: dialed")
            }
            Self::Accepted { connection, peer } => {
                write!(f, "connection {connection} from {peer}: accepted")
            }
            Self::Opened { connection, peer, same_host } => {
                let link = if *same_host { "in shared memory" } else { "over TCP" };
                write!(f, "connection {connection} with {peer}: opened {link}")
            }
            Self::Closed { connection, peer } => {
                write!(f, "connection {connection} with {peer}: closed")
            }
            Self::Lost { connection, peer, cause } => {
                write!(f, "connection {connection} with {peer}: lost: {cause}")
            }
            Self::DialedAgain { connection, peer, cause } => {
                write!(f, "connection {connection} to {peer}: will be dialed again: {cause}")
            }
            Self::Granted { channel, credits } => {
                write!(f, "channel {channel}: granted {credits} credits to its producer")
            }
            Self::Credited { connection, channel, credits, backlog } => write!(
                f,
                "connection {connection}, channel {channel}: got {credits} credits for a backlog of {backlog} buffers"
            ),
            Self::Backlog { channel, buffers } => {
                write!(
                    f,
                    "channel {channel}: its producer announces a backlog of {buffers} buffers"
                )
            }
            Self::Waits { gate } => write!(f, "gate {gate}: blocked, nothing to read"),
            Self::GoesOn { gate } => write!(f, "gate {gate}: unblocked"),
            Self::Failed { gate, cause } => write!(f, "gate {gate}: failed: {cause}"),
            Self::Barrier { channel, checkpoint } => {
                write!(f, "checkpoint {checkpoint}: the barrier of channel {channel} arrived")
            }
            Self::Resumed { channel } => write!(f, "channel {channel} goes on behind its barrier"),
            Self::Aligned { checkpoint } => write!(f, "checkpoint {checkpoint}: aligned"),
            Self::Aborted { checkpoint, reason } => {
                write!(f, "checkpoint {checkpoint}: aborted: {reason}")
            }
            Self::Spilled { pages, bytes } => write!(f, "{pages} pages of {bytes} bytes written"),
            Self::Kept { file } => write!(f, "{file}: complete"),
            Self::Mapped { file, offset, bytes } => {
                write!(f, "{file}: {bytes} bytes opened at offset {offset}")
            }
            Self::Unreadable { file, cause } => write!(f, "{file}: cannot be read: {cause}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(&*text("short"), "short");
        let long = "é".repeat(LONGEST);
        assert_eq!(&*text(&long), "é".repeat(LONGEST / 2));
    }

    #[test]
    fn an_event_is_a_line() {
        let peer = SocketAddr::from(([10, 0, 0, 7], 4000));
        let lost = Event::Lost { connection: 3, peer, cause: text("no sign of life for 10 s") };
        let line = "connection 3 with 10.0.0.7:4000: lost: no sign of life for 10 s";
        assert_eq!(lost.to_string(), line);
        let missing = Event::Unreadable { file: text("/tmp/kept-1"), cause: text("no such file") };
        assert_eq!(missing.to_string(), "/tmp/kept-1: cannot be read: no such file");
    }
}
