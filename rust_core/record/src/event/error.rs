//! Errors of control messages.

/// Failures of writing or reading an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// The options of a checkpoint contradict each other.
    #[error("the options of a checkpoint contradict each other: {0}")]
    Contradiction(&'static str),
    /// The bytes end inside the event.
    #[error("an event of {got} bytes is incomplete: {needed} more are needed at {at}")]
    Incomplete {
        /// Offset of the missing field.
        at: usize,
        /// Number of missing bytes.
        needed: usize,
        /// Number of bytes available.
        got: usize,
    },
    /// A length is negative, or exceeds the range of its field.
    #[error("{field} has the invalid length {length}")]
    InvalidLength {
        /// Name of the field.
        field: &'static str,
        /// Invalid length.
        length: i64,
    },
    /// The name of a custom event is not UTF-8.
    #[error("the name of a custom event is not UTF-8")]
    InvalidName,
    /// An announcement contains an announcement.
    #[error("an announcement cannot announce an announcement")]
    NestedAnnouncement,
    /// A code is unknown.
    #[error("{field} has the unknown code {code}")]
    UnknownCode {
        /// Name of the field.
        field: &'static str,
        /// Unknown code.
        code: i32,
    },
}
