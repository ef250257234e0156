//! The alignment of a checkpoint's barriers on the wire.

use headgate_protocol::Alignment;

use super::error::EventError;

/// Timeout of a checkpoint that never becomes unaligned.
const NEVER: i64 = i64::MAX;

/// Returns the code of an alignment, and the milliseconds after which barriers overtake records.
pub(super) fn fields(alignment: Alignment) -> Result<(u8, i64), EventError> {
    let fields = match alignment {
        Alignment::AtLeastOnce => (0, NEVER),
        Alignment::Aligned => (1, NEVER),
        Alignment::Timeoutable { timeout } => (1, i64::try_from(timeout).unwrap_or(NEVER)),
        Alignment::Unaligned => (2, NEVER),
    };
    if self::alignment(fields.0, fields.1)? == alignment {
        Ok(fields)
    } else {
        Err(EventError::Contradiction("a timeout has from 1 ms to 2^63 - 2 ms"))
    }
}

/// Returns the alignment of these fields.
pub(super) fn alignment(code: u8, timeout: i64) -> Result<Alignment, EventError> {
    match (code, timeout) {
        (0, NEVER) => Ok(Alignment::AtLeastOnce),
        (1, NEVER) => Ok(Alignment::Aligned),
        (1, 1..) => Ok(Alignment::Timeoutable { timeout: timeout.unsigned_abs() }),
        (2, NEVER) => Ok(Alignment::Unaligned),
        (0..=2, _) => {
            Err(EventError::Contradiction("only aligned barriers have a timeout, of 1 ms or more"))
        }
        _ => Err(EventError::UnknownCode { field: "alignment type", code: code.into() }),
    }
}
