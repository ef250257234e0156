//! One fixed-size block of memory with one owner.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::asan;
use crate::region::{Region, RegionFile};

/// Segments start on a multiple of this, so that 64-byte aligned page bodies are aligned in memory.
pub const SEGMENT_ALIGNMENT: usize = 64;

/// `len` usable bytes of a region, which lives as long as its last segment.
///
/// A segment costs nothing before it is used, and every byte of it is initialised from the start
/// (invariant M1).
#[derive(Debug)]
pub(crate) struct Segment {
    start: NonNull<u8>,
    len: usize,
    region: Arc<Region>,
    offset: usize,
}

// SAFETY: M2, a segment has one owner; moving that owner to another thread moves all access.
unsafe impl Send for Segment {}
// SAFETY: M2, who has the owner by `&` only reads.
unsafe impl Sync for Segment {}

impl Segment {
    /// A segment in a mapping of its own.
    pub(crate) fn map(len: usize) -> rustix::io::Result<Self> {
        let region = Arc::new(Region::private(len)?);
        Ok(Self { start: region.at(0), len, region, offset: 0 })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Marks the segment as idle: a sanitizer reports who still uses it.
    pub(crate) fn forbid(&mut self) {
        asan::poison(self.start, self.len);
    }

    /// Marks the segment as used again.
    pub(crate) fn allow(&mut self) {
        asan::unpoison(self.start, self.len);
    }

    /// The region it lies in, if that can be given to others, and where in there it begins.
    pub(crate) fn place(&self) -> Option<(RegionFile, usize)> {
        Some((RegionFile::of(&self.region)?, self.offset))
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: M1, `len` initialised bytes; M2, `&self` on the only owner means no writer.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: M1, `len` initialised bytes; M2, `&mut self` on the only owner is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Where new segments come from.
#[derive(Debug, Default)]
pub(crate) enum Source {
    /// Each is mapped by itself.
    #[default]
    Private,
    /// They are cut from regions that others can read.
    Shared { regions: u32, last: Option<Uncut> },
}

/// The part of a region that no segment was cut from so far.
#[derive(Debug)]
pub(crate) struct Uncut {
    region: Arc<Region>,
    offset: usize,
    left: usize,
}

/// A region has at least so many bytes, so that few pools have more than a handful of them.
const LEAST_REGION: usize = 4 << 20;
/// A pool has about so many regions at most: each is a descriptor here, and a mapping at each reader.
const MAX_REGIONS: usize = 64;

impl Source {
    /// A fresh segment of a pool of `total`.
    pub(crate) fn cut(&mut self, len: usize, total: usize) -> rustix::io::Result<Segment> {
        let Self::Shared { regions, last } = self else {
            return Segment::map(len);
        };
        let stride = len.next_multiple_of(SEGMENT_ALIGNMENT).max(SEGMENT_ALIGNMENT);
        if last.as_ref().is_none_or(|uncut| uncut.left == 0) {
            let wanted = LEAST_REGION.max(total.saturating_mul(stride) / MAX_REGIONS);
            let left = (wanted / stride).clamp(1, total.max(1));
            let Ok(region) = Region::shared(*regions, left * stride) else {
                // Without files in memory, or descriptors for them, nothing is shared.
                return Segment::map(len);
            };
            *regions += 1;
            *last = Some(Uncut { region: Arc::new(region), offset: 0, left });
        }
        let uncut = last.as_mut().expect("made above");
        let (region, offset) = (Arc::clone(&uncut.region), uncut.offset);
        uncut.offset += stride;
        uncut.left -= 1;
        let start = region.at(offset);
        asan::unpoison(start, len);
        Ok(Segment { start, len, region, offset })
    }
}
