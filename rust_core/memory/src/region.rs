//! Where segments are cut from: memory of this process alone, or a sealed file in memory that other
//! processes of this host may map to read.
//!
//! Decision: ADR 0019.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::asan;

/// What a region must be sealed with: it never changes its size, and nobody maps it to write any more.
pub(crate) const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

/// A mapping that is written by this process.
///
/// The kernel commits its pages on first touch and hands them out zeroed (M1).
#[derive(Debug)]
pub(crate) struct Region {
    start: NonNull<u8>,
    len: usize,
    shared: Option<Shared>,
}

#[derive(Debug)]
struct Shared {
    id: u32,
    file: OwnedFd,
}

// SAFETY: a region is an address, a length and a descriptor; its bytes belong to the segments (M2).
unsafe impl Send for Region {}
// SAFETY: as above: nothing of a region changes, and nobody reads or writes its bytes through it.
unsafe impl Sync for Region {}

impl Region {
    /// Memory of this process alone.
    pub(crate) fn private(len: usize) -> rustix::io::Result<Self> {
        let len = len.max(1);
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe { mmap_anonymous(null_mut(), len, READ_WRITE, MapFlags::PRIVATE)? };
        Ok(Self::mapped(start, len, None))
    }

    /// Memory that others of this host can read who are given the file.
    pub(crate) fn shared(id: u32, len: usize) -> rustix::io::Result<Self> {
        let len = len.max(1);
        let file = memory_file()?;
        ftruncate(&file, len as u64)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice, of a file that nobody else has.
        let start = unsafe { mmap(null_mut(), len, READ_WRITE, MapFlags::SHARED, &file, 0)? };
        // From here on it is unmapped whatever happens.
        let mut region = Self::mapped(start, len, None);
        // Nobody uses it before a segment is cut from it.
        asan::poison(region.start, len);
        // Behind the mapping, which is the last one that may write.
        fcntl_add_seals(&file, SEALS)?;
        region.shared = Some(Shared { id, file });
        Ok(region)
    }

    fn mapped(start: *mut std::ffi::c_void, len: usize, shared: Option<Shared>) -> Self {
        let start = NonNull::new(start.cast::<u8>()).expect("mmap never returns null on success");
        Self { start, len, shared }
    }

    /// The address of its byte at `offset`.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.len, "a segment lies in its region");
        // SAFETY: within the mapping, or one past its end.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // The kernel may use the addresses for another mapping.
        asan::unpoison(self.start, self.len);
        // SAFETY: M2, every segment keeps its region, so none is left; the range is the one of `mmap`.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours can always be unmapped");
    }
}

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

fn memory_file() -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match memfd_create("headgate", flags | MemfdFlags::NOEXEC_SEAL) {
        // Unknown before Linux 6.3.
        Err(Errno::INVAL) => memfd_create("headgate", flags),
        created => created,
    }
}

/// A region that can be given to another process.
#[derive(Debug, Clone)]
pub struct RegionFile(Arc<Region>);

impl RegionFile {
    pub(crate) fn of(region: &Arc<Region>) -> Option<Self> {
        region.shared.is_some().then(|| Self(Arc::clone(region)))
    }

    fn shared(&self) -> &Shared {
        self.0.shared.as_ref().expect("checked when it was made")
    }

    /// Its number within the pool.
    pub fn id(&self) -> u32 {
        self.shared().id
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.0.len as u64
    }
}

impl AsFd for RegionFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared().file.as_fd()
    }
}
