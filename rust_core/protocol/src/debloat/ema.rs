//! The size of buffers, smoothed over the last samples.

/// An exponential moving average of what buffers should hold, in bytes.
#[derive(Clone, Debug)]
pub struct BufferSizeEma {
    min: u32,
    max: u32,
    alpha: f64,
    size: u32,
}

impl BufferSizeEma {
    /// Starts with `start` bytes, never leaves `min..=max`, and is mostly made of the last `samples`.
    #[must_use]
    pub fn new(start: u32, min: u32, max: u32, samples: u32) -> Self {
        let min = min.min(max);
        let alpha = 2.0 / (f64::from(samples) + 1.0);
        Self { min, max, alpha, size: start.clamp(min, max) }
    }

    /// Adds a sample, `total` bytes in so many buffers, at least 1; returns the size now. A sample
    /// counts as twice the size at most, so that growing is no faster than shrinking.
    pub fn add(&mut self, total: u64, buffers: u64) -> u32 {
        let (last, limit) = (self.size, 2 * u64::from(self.size));
        let wanted = (total / buffers.max(1)).min(limit);
        let moved = f64::from(last) + self.alpha * (wanted as f64 - f64::from(last));
        // The fraction that is cut off may be all that it grows by: then it would never grow.
        let least = if wanted > u64::from(last) { last.saturating_add(1) } else { 0 };
        self.size = (moved as u32).max(least).clamp(self.min, self.max);
        self.size
    }

    /// The size now.
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// It is never less.
    #[must_use]
    pub const fn min(&self) -> u32 {
        self.min
    }

    /// It is never more.
    #[must_use]
    pub const fn max(&self) -> u32 {
        self.max
    }
}
