//! Segments, fixed-size blocks of memory with one owner, and the allocation of new ones.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::asan;
use crate::region::{Region, RegionFile};

/// Alignment of segments in bytes. Page bodies are 64-byte aligned within a segment, so they are in
/// memory too.
pub const SEGMENT_ALIGNMENT: usize = 64;

/// `len` bytes of a region. The region stays mapped until its last segment is dropped.
///
/// The kernel commits memory for a segment on first use; every byte is initialised (M1).
#[derive(Debug)]
pub(crate) struct Segment {
    start: NonNull<u8>,
    len: usize,
    region: Arc<Region>,
    offset: usize,
}

// SAFETY: M2, a segment has one owner; moving it to another thread moves all access.
unsafe impl Send for Segment {}
// SAFETY: M2, a shared reference to the owner allows reads only.
unsafe impl Sync for Segment {}

impl Segment {
    /// Maps a segment as a region of its own.
    pub(crate) fn map(len: usize) -> rustix::io::Result<Self> {
        let region = Arc::new(Region::private(len)?);
        Ok(Self { start: region.at(0), len, region, offset: 0 })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Makes a sanitizer report any access, while the segment is idle.
    pub(crate) fn poison(&mut self) {
        asan::poison(self.start, self.len);
    }

    /// Allows access again.
    pub(crate) fn unpoison(&mut self) {
        asan::unpoison(self.start, self.len);
    }

    /// Returns the region and the offset of the segment in it; `None` if the region is private.
    pub(crate) fn place(&self) -> Option<(RegionFile, usize)> {
        Some((RegionFile::of(&self.region)?, self.offset))
    }

    /// True if the segment lies in memory that other processes can map.
    pub(crate) fn is_shared(&self) -> bool {
        self.region.is_shared()
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: M1, `len` initialised bytes; M2, `&self` on the only owner excludes a writer.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: M1, `len` initialised bytes; M2, `&mut self` on the only owner is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Allocator of new segments.
#[derive(Debug, Default)]
pub(crate) enum SegmentSource {
    /// Each segment is a mapping of its own.
    #[default]
    Private,
    /// Segments are cut from regions that other processes can map.
    Shared { regions: u32, last: Option<Uncut> },
}

/// The rest of a region, from which no segment has been cut yet.
#[derive(Debug)]
pub(crate) struct Uncut {
    region: Arc<Region>,
    offset: usize,
    left: usize,
}

/// Minimum size of a region in bytes: most pools need only a few regions.
const LEAST_REGION: usize = 4 << 20;
/// Approximate limit of regions per pool: each costs a descriptor here and a mapping in every
/// reader.
const MAX_REGIONS: usize = 64;

impl SegmentSource {
    /// Allocates a segment of `len` bytes for a pool of `total` segments.
    pub(crate) fn cut(&mut self, len: usize, total: usize) -> rustix::io::Result<Segment> {
        let Self::Shared { regions, last } = self else {
            return Segment::map(len);
        };
        let stride = len.next_multiple_of(SEGMENT_ALIGNMENT).max(SEGMENT_ALIGNMENT);
        if last.as_ref().is_none_or(|uncut| uncut.left == 0) {
            let wanted = LEAST_REGION.max(total.saturating_mul(stride) / MAX_REGIONS);
            let left = (wanted / stride).clamp(1, total.max(1));
            let Ok(region) = Region::shared(*regions, left * stride) else {
                // Without memfds, or out of descriptors, the pool goes on with private segments.
                return Segment::map(len);
            };
            *regions += 1;
            *last = Some(Uncut { region: Arc::new(region), offset: 0, left });
        }
        let uncut = last.as_mut().expect("the branch above created it");
        let (region, offset) = (Arc::clone(&uncut.region), uncut.offset);
        uncut.offset += stride;
        uncut.left -= 1;
        let start = region.at(offset);
        asan::unpoison(start, len);
        Ok(Segment { start, len, region, offset })
    }
}
