//! The event codec.

use headgate_record::{Event, EventError};

/// Checks that an event is encoded as the bytes it was decoded from.
#[expect(clippy::missing_panics_doc, reason = "a finding is a panic")]
pub fn events(data: &[u8]) {
    match Event::decode(data) {
        Ok(event) => {
            let bytes = event.encode().expect("a decoded event can be encoded");
            assert!(data.starts_with(&bytes), "{event:?} is encoded as other bytes");
            assert_eq!(Event::decode(&bytes), Ok(event));
        }
        Err(EventError::Incomplete { at, needed, got }) => {
            assert_eq!(got, data.len());
            assert!(at <= got && needed > 0);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
