//! The clock that stamps barriers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Time until a moment in milliseconds since 1970; zero if it has passed.
pub(crate) fn until(at: i64) -> Duration {
    Duration::from_millis(u64::try_from(at.saturating_sub(now())).unwrap_or(0))
}
