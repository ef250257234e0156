//! Regions, from which segments are cut: private memory, or a sealed memfd that other processes of
//! this host may map read-only.
//!
//! Decision: ADR 0019.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::asan;
use crate::process::Process;

/// Seals of a shared region: they fix its size and forbid new writable mappings.
pub(crate) const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

/// A writable mapping of this process.
///
/// The kernel commits its pages on first access, filled with zeros (M1).
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
    /// The process that mapped it; a forked child has no mapping (F2).
    process: Process,
}

// SAFETY: M2, the bytes belong to the segments; a region is an address, a length and a descriptor.
unsafe impl Send for Region {}
// SAFETY: M2, as above; the fields never change, and nobody accesses bytes through the region.
unsafe impl Sync for Region {}

impl Region {
    /// Maps private memory.
    pub(crate) fn private(len: usize) -> rustix::io::Result<Self> {
        let len = len.max(1);
        // SAFETY: M1, a new anonymous mapping at an address that the kernel chooses aliases
        // nothing.
        let start = unsafe { mmap_anonymous(null_mut(), len, READ_WRITE, MapFlags::PRIVATE)? };
        Ok(Self::mapped(start, len, None))
    }

    /// Maps a memfd, which other processes can map once they receive its descriptor.
    pub(crate) fn shared(id: u32, len: usize) -> rustix::io::Result<Self> {
        let len = len.max(1);
        let file = memory_file()?;
        ftruncate(&file, len as u64)?;
        // SAFETY: M1, a new mapping at an address that the kernel chooses, of a memfd that nobody
        // else has.
        let start = unsafe { mmap(null_mut(), len, READ_WRITE, MapFlags::SHARED, &file, 0)? };
        // From here on, `Region::drop` unmaps it on every return.
        let mut region = Self::mapped(start, len, None);
        // SAFETY: F2, the range is a new mapping; the advice only affects forked children.
        unsafe { madvise(start, len, Advice::LinuxDontFork)? };
        // A segment unpoisons its part when it is cut.
        asan::poison(region.start, len);
        // Only after the mapping: the seals forbid any further writable one.
        fcntl_add_seals(&file, SEALS)?;
        region.shared = Some(Shared { id, file, process: Process::current() });
        Ok(region)
    }

    fn mapped(start: *mut std::ffi::c_void, len: usize, shared: Option<Shared>) -> Self {
        let start = NonNull::new(start.cast::<u8>()).expect("mmap never returns null on success");
        Self { start, len, shared }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Returns the address of the byte at `offset`.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.len, "offset {offset} is beyond the region of {} bytes", self.len);
        // SAFETY: M2, the address is inside the mapping, or one past its end.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // The kernel may reuse the addresses for another mapping.
        asan::unpoison(self.start, self.len);
        if self.shared.as_ref().is_some_and(|shared| shared.process != Process::current()) {
            return;
        }
        // SAFETY: M2, a segment holds a reference to its region, so none is left; `mmap` returned
        // the range.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of a whole mapping succeeds");
    }
}

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Makes an empty file in memory.
pub(crate) fn memory_file() -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match memfd_create("headgate", flags | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3 does not know the flag.
        Err(Errno::INVAL) => memfd_create("headgate", flags),
        created => created,
    }
}

/// A shared region, whose descriptor can be sent to another process.
#[derive(Debug, Clone)]
pub struct RegionFile(Arc<Region>);

impl RegionFile {
    pub(crate) fn of(region: &Arc<Region>) -> Option<Self> {
        region.is_shared().then(|| Self(Arc::clone(region)))
    }

    fn shared(&self) -> &Shared {
        self.0.shared.as_ref().expect("`of` accepts only shared regions")
    }

    /// Number of the region within its pool.
    pub fn id(&self) -> u32 {
        self.shared().id
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.0.len as u64
    }
}

impl AsFd for RegionFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared().file.as_fd()
    }
}
