//! A region of another process, mapped read-only.
//!
//! Decision: ADR 0019.

use std::fmt;
use std::mem;
use std::os::fd::OwnedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};
use rustix::io::pread;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use thiserror::Error;

use crate::pooled_segment::PooledSegment;
use crate::process::Process;
use crate::region::SEALS;

/// File system of memfds with ordinary pages. A memfd of huge pages is refused: the kernel may have
/// no huge page left at the time of a read.
const TMPFS: i64 = 0x0102_1994;

/// Reasons to refuse a file as a region.
#[derive(Debug, Error)]
pub enum PeerRegionError {
    /// The file is not a memfd.
    #[error("the file is not a memfd")]
    NotInMemory,
    /// Seals are missing: the file could shrink, and a read beyond its end would fault.
    #[error("the memfd has seals {got:#x}; {want:#x} are required")]
    NotSealed {
        /// Seals of the file.
        got: u32,
        /// Required seals.
        want: u32,
    },
    /// The size differs from the announced size.
    #[error("the memfd has {got} bytes; the peer announced {announced}")]
    WrongSize {
        /// Size of the file.
        got: u64,
        /// Size that the peer announced.
        announced: u64,
    },
}

/// Reasons why bytes of a region cannot be read.
#[derive(Debug, Error)]
pub enum PeerReadError {
    /// The range exceeds the region or the segment.
    #[error(
        "{len} bytes at offset {offset} exceed the region of {size} bytes or the segment of \
         {segment} bytes"
    )]
    Outside {
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        len: usize,
        /// Size of the region in bytes.
        size: usize,
        /// Size of the segment in bytes.
        segment: usize,
    },
    /// The kernel refused to read the file of a region that is not mapped.
    #[error("the region cannot be read: {0}")]
    Unreadable(rustix::io::Errno),
}

/// A region of another process. Seals fix its size and forbid new writable mappings; lent bytes do
/// not change until the loan ends (M5).
#[derive(Debug)]
pub struct PeerRegion {
    memory: Memory,
    size: usize,
}

#[derive(Debug)]
enum Memory {
    /// The process is the one that mapped it; a forked child has no mapping (F2).
    Mapped { start: NonNull<u8>, process: Process },
    /// The address space had no room for a mapping: bytes are read from the file.
    File(OwnedFd),
}

// SAFETY: M5, the mapping is only read.
unsafe impl Send for PeerRegion {}
// SAFETY: as above.
unsafe impl Sync for PeerRegion {}

impl PeerRegion {
    /// Maps a file that a peer sent, of `announced` bytes.
    ///
    /// # Errors
    /// [`PeerRegionError`] if the file is not a memfd with the required seals and the announced
    /// size.
    pub fn open(file: OwnedFd, announced: u64) -> Result<Self, PeerRegionError> {
        let size = check(&file, announced)?;
        let memory = map(&file, size).unwrap_or(Memory::File(file));
        Ok(Self { memory, size })
    }

    /// Like [`open`](Self::open), without a mapping: bytes are copied from the file.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_unmapped(file: OwnedFd, announced: u64) -> Result<Self, PeerRegionError> {
        let size = check(&file, announced)?;
        Ok(Self { memory: Memory::File(file), size })
    }

    /// Bytes that the owner lent; the semantics are those of
    /// [`Buffer::borrow`](crate::Buffer::borrow).
    pub(crate) fn borrow(
        self: &Arc<Self>,
        offset: u64,
        len: usize,
        mut segment: PooledSegment,
        loan: Box<dyn Send + Sync>,
    ) -> Result<PeerBytes, PeerReadError> {
        let from = usize::try_from(offset).ok();
        let inside = from.filter(|from| from.checked_add(len).is_some_and(|to| to <= self.size));
        let Some(from) = inside.filter(|_| len <= segment.len()) else {
            let (size, segment) = (self.size, segment.len());
            return Err(PeerReadError::Outside { offset, len, size, segment });
        };
        let Memory::File(file) = &self.memory else {
            let loan = Some(loan);
            let borrowed = Borrowed { region: Some(Arc::clone(self)), from, len, segment, loan };
            return Ok(PeerBytes::Borrowed(borrowed));
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
        Ok(PeerBytes::Copied(segment))
    }

    fn slice(&self, from: usize, len: usize) -> &[u8] {
        let Memory::Mapped { start, .. } = &self.memory else {
            unreachable!("bytes of an unmapped region are copied, not borrowed");
        };
        assert!(from + len <= self.size, "`borrow` checked the range");
        // SAFETY: M5, the range is inside the mapping, the seals fix its size, and lent bytes do
        // not change.
        unsafe { std::slice::from_raw_parts(start.as_ptr().add(from), len) }
    }
}

impl Drop for PeerRegion {
    fn drop(&mut self) {
        if let Memory::Mapped { start, process } = &self.memory
            && *process == Process::current()
        {
            // SAFETY: every reader holds a reference to the region; the range is the one `mmap`
            // returned.
            let unmapped = unsafe { munmap(start.as_ptr().cast(), self.size) };
            debug_assert!(unmapped.is_ok(), "munmap of a whole mapping succeeds");
        }
    }
}

/// Maps the file; `None` if the address space has no room.
fn map(file: &OwnedFd, size: usize) -> Option<Memory> {
    // SAFETY: a fresh mapping at an address of the kernel's choice; the seals keep its size.
    let start = unsafe { mmap(null_mut(), size, ProtFlags::READ, MapFlags::SHARED, file, 0).ok()? };
    // SAFETY: F2, the range is the new mapping; the advice only affects forked children.
    if unsafe { madvise(start, size, Advice::LinuxDontFork) }.is_err() {
        // SAFETY: nobody has the address of the new mapping yet.
        let unmapped = unsafe { munmap(start, size) };
        debug_assert!(unmapped.is_ok(), "munmap of a whole mapping succeeds");
        return None;
    }
    let start = NonNull::new(start.cast::<u8>()).expect("mmap never returns null on success");
    Some(Memory::Mapped { start, process: Process::current() })
}

fn check(file: &OwnedFd, announced: u64) -> Result<usize, PeerRegionError> {
    let sealed = fcntl_get_seals(file).map_err(|_| PeerRegionError::NotInMemory)?;
    let wanted = SEALS.difference(SealFlags::FUTURE_WRITE);
    let read_only = sealed.intersects(SealFlags::FUTURE_WRITE | SealFlags::WRITE);
    if !sealed.contains(wanted) || !read_only {
        let (got, want) = (sealed.bits(), SEALS.bits());
        return Err(PeerRegionError::NotSealed { got, want });
    }
    #[expect(clippy::unnecessary_cast, reason = "the type of `f_type` depends on the platform")]
    if !fstatfs(file).is_ok_and(|of| of.f_type as i64 == TMPFS) {
        return Err(PeerRegionError::NotInMemory);
    }
    // After the check of the seals: the size cannot change any more.
    let stat = fstat(file).map_err(|_| PeerRegionError::NotInMemory)?;
    let got = u64::try_from(stat.st_size).unwrap_or(0);
    match usize::try_from(got) {
        Ok(size) if got == announced && size > 0 => Ok(size),
        _ => Err(PeerRegionError::WrongSize { got, announced }),
    }
}

/// Result of a borrow.
pub(crate) enum PeerBytes {
    Borrowed(Borrowed),
    /// The bytes are at the start of the segment, since the region is not mapped.
    Copied(PooledSegment),
}

/// Lent bytes, the segment they are charged to, and the loan, which ends when it is dropped.
pub(crate) struct Borrowed {
    from: usize,
    len: usize,
    /// Before `region`: while the segment notes that the bytes are kept, they must be mapped.
    segment: PooledSegment,
    /// `None` only during drop.
    region: Option<Arc<PeerRegion>>,
    loan: Option<Box<dyn Send + Sync>>,
}

impl Borrowed {
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.region.as_ref().expect("present until drop").slice(self.from, self.len)
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
