//! The event codec.

use headgate_record::{Event, EventError};

/// An event that can be read is written as the bytes it was read from, and read again.
#[expect(clippy::missing_panics_doc, reason = "a finding is a panic")]
pub fn events(data: &[u8]) {
    match Event::decode(data) {
        Ok(event) => {
            let bytes = event.encode().expect("what can be read can be written");
            assert!(data.starts_with(&bytes), "{event:?} was read from other bytes");
            assert_eq!(Event::decode(&bytes), Ok(event));
        }
        Err(EventError::Incomplete { at, needed, got }) => {
            assert_eq!(got, data.len());
            assert!(at <= got && needed > 0);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
