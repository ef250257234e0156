//! Segments straight from the global pool, for readers that no redistribution may touch (spec 1.3).

use std::time::{Duration, Instant};

use crate::error::UnpooledError;
use crate::local::Local;
use crate::pool::GlobalPool;
use crate::pooled_segment::PooledSegment;

/// How long a request sleeps before it asks whether to go on.
const INTERRUPT_PERIOD: Duration = Duration::from_millis(50);

impl GlobalPool {
    /// Waits up to `timeout` for `count` segments that belong to no local pool. They are promised
    /// from the start, so that others give back what they borrowed, and until each is recycled or
    /// pinned. `interrupted` is asked every so often; true ends the wait.
    ///
    /// # Errors
    /// [`UnpooledError`]; what was collected until then is given back, and nothing promised.
    pub fn request_unpooled(
        &self,
        count: usize,
        timeout: Duration,
        interrupted: impl Fn() -> bool,
    ) -> Result<Vec<PooledSegment>, UnpooledError> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut account = self.insert(Local::unpooled(count))?;
        let deadline = Instant::now().checked_add(timeout);
        let mut segments = Vec::with_capacity(count);
        while segments.len() < count {
            let left = deadline.map_or(INTERRUPT_PERIOD, |deadline| {
                deadline.saturating_duration_since(Instant::now()).min(INTERRUPT_PERIOD)
            });
            match account.request(left)? {
                Some(segment) => segments.push(segment),
                None if left < INTERRUPT_PERIOD => {
                    let collected = segments.len();
                    return Err(UnpooledError::TimedOut { requested: count, collected, timeout });
                }
                None if interrupted() => return Err(UnpooledError::Interrupted),
                None => {}
            }
        }
        account.detach();
        Ok(segments)
    }
}
