//! The size of buffers, smoothed over the last samples.

/// An exponential moving average of the wanted buffer size, in bytes.
#[derive(Clone, Debug)]
pub struct BufferSizeEma {
    min: u32,
    max: u32,
    alpha: f64,
    size: u32,
}

impl BufferSizeEma {
    /// Starts with `start` bytes and stays within `min..=max`. Mostly the last `samples` count.
    #[must_use]
    pub fn new(start: u32, min: u32, max: u32, samples: u32) -> Self {
        let min = min.min(max);
        let alpha = 2.0 / (f64::from(samples) + 1.0);
        Self { min, max, alpha, size: start.clamp(min, max) }
    }

    /// Adds a sample of `total` bytes in `buffers` buffers, at least 1, and returns the new size. A
    /// sample counts as at most twice the size, so that it grows no faster than it shrinks.
    pub fn add(&mut self, total: u64, buffers: u64) -> u32 {
        let (last, limit) = (self.size, 2 * u64::from(self.size));
        let wanted = (total / buffers.max(1)).min(limit);
        let moved = f64::from(last) + self.alpha * (wanted as f64 - f64::from(last));
        // A growth of less than a byte would be cut off every time, so at least one byte is added.
        let least = if wanted > u64::from(last) { last.saturating_add(1) } else { 0 };
        self.size = (moved as u32).max(least).clamp(self.min, self.max);
        self.size
    }

    /// The current size.
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// The lower limit.
    #[must_use]
    pub const fn min(&self) -> u32 {
        self.min
    }

    /// The upper limit.
    #[must_use]
    pub const fn max(&self) -> u32 {
        self.max
    }
}
