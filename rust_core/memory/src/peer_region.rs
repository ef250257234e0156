//! A region of another process, mapped to read.
//!
//! Decision: ADR 0019.

use std::fmt;
use std::mem;
use std::os::fd::OwnedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};
use rustix::io::pread;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use thiserror::Error;

use crate::buffer::Buffer;
use crate::pooled_segment::PooledSegment;
use crate::region::SEALS;

/// Files in memory of ordinary pages; a file of huge pages may have none left when it is read.
const TMPFS: i64 = 0x0102_1994;

/// Why a file is not taken for a region.
#[derive(Debug, Error)]
pub enum PeerRegionError {
    /// No file in memory.
    #[error("it is no file in memory")]
    NotInMemory,
    /// Its size could still change, and reading it then be a fault.
    #[error("it is sealed with {got:#x}, not with {want:#x}")]
    NotSealed {
        /// What it is sealed with.
        got: u32,
        /// What it must be sealed with.
        want: u32,
    },
    /// Not what was said.
    #[error("it has {got} bytes, {announced} were announced")]
    WrongSize {
        /// Its size.
        got: u64,
        /// What was announced.
        announced: u64,
    },
}

/// Why bytes of a region cannot be had.
#[derive(Debug, Error)]
pub enum PeerReadError {
    /// Not all of them lie in the region, or not all fit a segment.
    #[error("bytes {offset} to {offset} + {len} of {size}, for a segment of {segment}")]
    Outside {
        /// The first of them.
        offset: u64,
        /// How many.
        len: usize,
        /// Bytes of the region.
        size: usize,
        /// Bytes of the segment.
        segment: usize,
    },
    /// The kernel's refusal to read what could not be mapped.
    #[error("{0}")]
    Unreadable(rustix::io::Errno),
}

/// A region of another process, which can neither change its size nor write it anew through a later
/// mapping; its bytes are frozen where they were lent, as long as they are (M5).
#[derive(Debug)]
pub struct PeerRegion {
    memory: Memory,
    size: usize,
}

#[derive(Debug)]
enum Memory {
    Mapped(NonNull<u8>),
    /// There was no room to map it: bytes are read out of the file.
    File(OwnedFd),
}

// SAFETY: a mapping that is only read, from any thread; see M5.
unsafe impl Send for PeerRegion {}
// SAFETY: as above.
unsafe impl Sync for PeerRegion {}

impl PeerRegion {
    /// Maps a file of so many bytes that a peer gave us.
    ///
    /// # Errors
    /// [`PeerRegionError`]: what is not sealed as a region is, or has another size, is not mapped.
    pub fn open(file: OwnedFd, announced: u64) -> Result<Self, PeerRegionError> {
        let size = check(&file, announced)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice; the seals keep its size.
        let mapped = unsafe { mmap(null_mut(), size, ProtFlags::READ, MapFlags::SHARED, &file, 0) };
        let memory = match mapped.ok().and_then(|start| NonNull::new(start.cast::<u8>())) {
            Some(start) => Memory::Mapped(start),
            None => Memory::File(file),
        };
        Ok(Self { memory, size })
    }

    /// Like [`open`](Self::open), where there is no room to map anything.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn open_unmapped(file: OwnedFd, announced: u64) -> Result<Self, PeerRegionError> {
        let size = check(&file, announced)?;
        Ok(Self { memory: Memory::File(file), size })
    }

    /// Bytes that its owner lent, charged to a segment of ours, which stays empty beside them; where
    /// the region is not mapped they are copied into it. `loan` is dropped when nobody reads them
    /// any more; in a forked child it is not.
    ///
    /// # Errors
    /// [`PeerReadError`].
    pub fn borrow(
        self: &Arc<Self>,
        offset: u64,
        len: usize,
        mut segment: PooledSegment,
        loan: Box<dyn Send + Sync>,
    ) -> Result<Buffer, PeerReadError> {
        let from = usize::try_from(offset).ok();
        let inside = from.filter(|from| from.checked_add(len).is_some_and(|to| to <= self.size));
        let Some(from) = inside.filter(|_| len <= segment.len()) else {
            let (size, segment) = (self.size, segment.len());
            return Err(PeerReadError::Outside { offset, len, size, segment });
        };
        let Memory::File(file) = &self.memory else {
            let loan = Some(loan);
            let borrowed = Borrowed { region: Some(Arc::clone(self)), from, len, segment, loan };
            return Ok(Buffer::borrowed(Arc::new(borrowed)));
        };
        let mut filled = 0;
        while filled < len {
            match pread(file, &mut segment[filled..len], offset + filled as u64) {
                Ok(count) if count > 0 => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Err(PeerReadError::Unreadable(rustix::io::Errno::NODATA)),
                Err(error) => return Err(PeerReadError::Unreadable(error)),
            }
        }
        Ok(Buffer::freeze(segment, len))
    }

    fn slice(&self, from: usize, len: usize) -> &[u8] {
        let Memory::Mapped(start) = &self.memory else {
            unreachable!("what is not mapped is copied");
        };
        assert!(from + len <= self.size, "checked when it was borrowed");
        // SAFETY: M5: within the mapping, which the seals keep as long as it is; lent bytes are frozen.
        unsafe { std::slice::from_raw_parts(start.as_ptr().add(from), len) }
    }
}

impl Drop for PeerRegion {
    fn drop(&mut self) {
        if let Memory::Mapped(start) = &self.memory {
            // SAFETY: whoever reads of it keeps it; the range is the one that `mmap` got.
            let unmapped = unsafe { munmap(start.as_ptr().cast(), self.size) };
            debug_assert!(unmapped.is_ok(), "a mapping of ours can always be unmapped");
        }
    }
}

fn check(file: &OwnedFd, announced: u64) -> Result<usize, PeerRegionError> {
    let sealed = fcntl_get_seals(file).map_err(|_| PeerRegionError::NotInMemory)?;
    let wanted = SEALS.difference(SealFlags::FUTURE_WRITE);
    let read_only = sealed.intersects(SealFlags::FUTURE_WRITE | SealFlags::WRITE);
    if !sealed.contains(wanted) || !read_only {
        let (got, want) = (sealed.bits(), SEALS.bits());
        return Err(PeerRegionError::NotSealed { got, want });
    }
    #[expect(clippy::unnecessary_cast, reason = "of another width elsewhere")]
    if !fstatfs(file).is_ok_and(|of| of.f_type as i64 == TMPFS) {
        return Err(PeerRegionError::NotInMemory);
    }
    // Behind the seals: from here on it stays so.
    let stat = fstat(file).map_err(|_| PeerRegionError::NotInMemory)?;
    let got = u64::try_from(stat.st_size).unwrap_or(0);
    match usize::try_from(got) {
        Ok(size) if got == announced && size > 0 => Ok(size),
        _ => Err(PeerRegionError::WrongSize { got, announced }),
    }
}

/// Bytes of another process, the segment they are charged to, and what ends the loan.
pub(crate) struct Borrowed {
    /// `None` only while it is being dropped.
    region: Option<Arc<PeerRegion>>,
    from: usize,
    len: usize,
    segment: PooledSegment,
    loan: Option<Box<dyn Send + Sync>>,
}

impl Borrowed {
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.region.as_ref().expect("present until drop").slice(self.from, self.len)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn segment(&self) -> &PooledSegment {
        &self.segment
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if self.segment.is_forked() {
            mem::forget((self.loan.take(), self.region.take()));
        }
    }
}

impl fmt::Debug for Borrowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Borrowed")
            .field("from", &self.from)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
