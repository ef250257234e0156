//! Memory of keyed state: of the process up to a limit, of mapped files beyond it.
//!
//! Decision: ADR 0057.

use std::alloc::Layout;
use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::ptr::{NonNull, null_mut, slice_from_raw_parts_mut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use allocator_api2::alloc::{AllocError, Allocator, Global};
use bytes::Bytes;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Bytes from which on a block counts, and may be in a file: smaller ones are not worth a mapping.
const LARGE: usize = 1 << 14;
const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Gives out blocks of memory. Blocks beyond the limit are nameless files, mapped: the kernel keeps the pages in memory
/// that are in use, and writes the others to the disk. Clones share the limit.
#[derive(Clone, Debug, Default)]
pub struct StateMemory {
    /// `None` without a limit: all memory is that of the process then.
    limited: Option<Arc<Limited>>,
}

#[derive(Debug)]
struct Limited {
    limit: usize,
    directories: Vec<PathBuf>,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    usage: Usage,
    /// Addresses of the blocks that are files.
    files: HashSet<usize>,
    /// The error for which the last block could not be given.
    failure: Option<io::Error>,
}

/// Bytes of the blocks that are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the process's memory, never above the limit.
    pub in_memory: usize,
    /// Of mapped files.
    pub in_files: usize,
}

impl StateMemory {
    /// Keeps up to `limit` bytes in memory, and the others in files of these directories, used in turn; an empty list
    /// means the system's directory for temporary files.
    #[must_use]
    pub fn limited(limit: usize, mut directories: Vec<PathBuf>) -> Self {
        if directories.is_empty() {
            directories.push(std::env::temp_dir());
        }
        let limited = Limited { limit, directories, books: Mutex::default() };
        Self { limited: Some(Arc::new(limited)) }
    }

    /// Returns the bytes in use; those without a limit are not counted.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.limited.as_ref().map_or_else(Usage::default, |limited| limited.books().usage)
    }

    /// Returns a copy of bytes that nobody changes any more.
    ///
    /// # Errors
    /// The kernel gives no memory, or no file of that size can be made.
    pub fn copied(&self, bytes: &[u8]) -> io::Result<Bytes> {
        let mut copy = allocator_api2::vec::Vec::new_in(self.clone());
        copy.try_reserve_exact(bytes.len()).map_err(|_| self.failure())?;
        copy.extend_from_slice(bytes);
        Ok(Bytes::from_owner(Copied(copy)))
    }

    /// True if there is a limit, so that blocks may be files.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.limited.is_some()
    }

    /// Counts bytes that the caller takes for itself. Returns true if the limit lets them be memory of the process, and false
    /// if they are to be a file.
    pub fn reserve(&self, bytes: usize) -> bool {
        self.limited.as_ref().is_none_or(|limited| limited.books().reserve(bytes, limited.limit))
    }

    /// Counts reserved bytes no more; `in_memory` is what [`Self::reserve`] returned.
    pub fn release(&self, bytes: usize, in_memory: bool) {
        if let Some(limited) = &self.limited {
            limited.books().release(bytes, in_memory);
        }
    }

    /// Returns why the last block could not be given.
    #[must_use]
    pub fn failure(&self) -> io::Error {
        let failure = self.limited.as_ref().and_then(|limited| limited.books().failure.take());
        failure.unwrap_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    fn limited_for(&self, layout: Layout) -> Option<&Limited> {
        self.limited.as_deref().filter(|_| layout.size() >= LARGE && layout.align() <= MAX_ALIGN)
    }
}

/// Mappings begin at a page, which is no smaller.
const MAX_ALIGN: usize = 4096;

struct Copied(allocator_api2::vec::Vec<u8, StateMemory>);

impl AsRef<[u8]> for Copied {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Books {
    fn reserve(&mut self, bytes: usize, limit: usize) -> bool {
        let in_memory = self.usage.in_memory.saturating_add(bytes) <= limit;
        *self.usage.of(in_memory) += bytes;
        in_memory
    }

    fn release(&mut self, bytes: usize, in_memory: bool) {
        let used = self.usage.of(in_memory);
        *used = used.saturating_sub(bytes);
    }
}

impl Usage {
    fn of(&mut self, in_memory: bool) -> &mut usize {
        if in_memory { &mut self.in_memory } else { &mut self.in_files }
    }
}

impl Limited {
    fn books(&self) -> MutexGuard<'_, Books> {
        // Every change of the books is whole before anything can panic.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn map(&self, len: usize) -> io::Result<NonNull<u8>> {
        let mut books = self.books();
        let in_memory = books.reserve(len, self.limit);
        let start = if in_memory { map_memory(len) } else { self.map_file(len, books.files.len()) };
        match &start {
            Ok(start) if !in_memory => _ = books.files.insert(start.as_ptr().addr()),
            Ok(_) => {}
            Err(_) => books.release(len, in_memory),
        }
        start
    }

    fn map_file(&self, len: usize, number: usize) -> io::Result<NonNull<u8>> {
        let directory = &self.directories[number % self.directories.len()];
        let file = tempfile::tempfile_in(directory).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", directory.display()))
        })?;
        // A write to a page for which the disk has no room would kill the process.
        fallocate(&file, FallocateFlags::empty(), 0, len as u64).map_err(|error| {
            let error = io::Error::from(error);
            let text = format!("{len} bytes in {}: {error}", directory.display());
            io::Error::new(error.kind(), text)
        })?;
        // SAFETY: M7, a new mapping at an address that the kernel chooses, of a file that nobody else has.
        let start = unsafe { mmap(null_mut(), len, READ_WRITE, MapFlags::SHARED, &file, 0)? };
        Ok(NonNull::new(start.cast()).expect("mmap never returns null on success"))
    }

    /// # Safety
    /// `start` and `len` are those of a block that [`map`](Self::map) returned, which is not used any more.
    unsafe fn unmap(&self, start: NonNull<u8>, len: usize) {
        let mut books = self.books();
        let is_file = books.files.remove(&start.as_ptr().addr());
        books.release(len, !is_file);
        // SAFETY: M7, the caller gives a whole mapping that nobody uses. The lock is held, so that no other thread gets
        // its address before it has left the books.
        let unmapped = unsafe { munmap(start.as_ptr().cast(), len) };
        debug_assert!(unmapped.is_ok(), "munmap of a whole mapping succeeds");
    }
}

fn map_memory(len: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: M7, a new anonymous mapping at an address that the kernel chooses aliases nothing.
    let start = unsafe { mmap_anonymous(null_mut(), len, READ_WRITE, MapFlags::PRIVATE)? };
    Ok(NonNull::new(start.cast()).expect("mmap never returns null on success"))
}

// SAFETY: M7. A block stays where it is until it is given back, also if the memory is moved: the books are behind an `Arc`.
// Clones share the books, so each gives back the blocks of the others. Small blocks are those of `Global`: a layout says
// which they are, and callers give back the layout that they asked for.
unsafe impl Allocator for StateMemory {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let Some(limited) = self.limited_for(layout) else { return Global.allocate(layout) };
        match limited.map(layout.size()) {
            Ok(start) => {
                let block = slice_from_raw_parts_mut(start.as_ptr(), layout.size());
                NonNull::new(block).ok_or(AllocError)
            }
            Err(error) => {
                limited.books().failure = Some(error);
                Err(AllocError)
            }
        }
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        match self.limited_for(layout) {
            // SAFETY: the caller's promise: a block of this allocator with this layout, so one of `map`.
            Some(limited) => unsafe { limited.unmap(start, layout.size()) },
            // SAFETY: as above, and a block of this layout came from `Global`.
            None => unsafe { Global.deallocate(start, layout) },
        }
    }

    unsafe fn grow(
        &self,
        start: NonNull<u8>,
        before: Layout,
        after: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if self.limited_for(before).is_none() && self.limited_for(after).is_none() {
            // SAFETY: the caller's promise, of a block that came from `Global` and stays there.
            return unsafe { Global.grow(start, before, after) };
        }
        let block = self.allocate(after)?;
        // SAFETY: M7, the new block is nobody else's, and the caller promises that it is not smaller than the old one,
        // which nobody uses from now on.
        unsafe {
            block.cast().copy_from_nonoverlapping(start, before.size());
            self.deallocate(start, before);
        }
        Ok(block)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use allocator_api2::vec::Vec;

    use super::*;

    #[test]
    fn blocks_beyond_the_limit_are_files_until_they_are_given_back() {
        let memory = StateMemory::limited(3 * LARGE, vec![]);
        let first = memory.copied(&[1; 2 * LARGE]).unwrap();
        let second = memory.clone().copied(&[2; 2 * LARGE]).unwrap();
        assert_eq!(memory.usage(), Usage { in_memory: 2 * LARGE, in_files: 2 * LARGE });
        let third = memory.copied(&[3; LARGE]).unwrap();
        assert_eq!(memory.usage(), Usage { in_memory: 3 * LARGE, in_files: 2 * LARGE });
        assert!(first.iter().all(|&byte| byte == 1) && second.iter().all(|&byte| byte == 2));
        drop((first, second));
        assert_eq!(memory.usage(), Usage { in_memory: LARGE, in_files: 0 });
        assert!(third.iter().all(|&byte| byte == 3));
        drop(third);
        assert_eq!(memory.usage(), Usage::default());
    }

    #[test]
    fn small_blocks_do_not_count() {
        let memory = StateMemory::limited(0, vec![]);
        let _small = memory.copied(&[0; LARGE - 1]).unwrap();
        let _empty = memory.copied(&[]).unwrap();
        assert_eq!(memory.usage(), Usage::default());
    }

    #[test]
    fn vectors_grow_from_small_blocks_to_files_and_back() {
        let memory = StateMemory::limited(0, vec![]);
        let mut numbers = Vec::new_in(memory.clone());
        numbers.extend(0..100_000_u64);
        assert!(memory.usage().in_files >= 800_000);
        assert!(numbers.iter().copied().eq(0..100_000));
        numbers.truncate(10);
        numbers.shrink_to_fit();
        assert_eq!(memory.usage(), Usage::default());
        assert!(numbers.iter().copied().eq(0..10));
    }

    #[test]
    fn reserved_bytes_count() {
        let memory = StateMemory::limited(100, vec![]);
        assert!(memory.reserve(60));
        assert!(!memory.reserve(60));
        assert!(memory.reserve(40));
        assert_eq!(memory.usage(), Usage { in_memory: 100, in_files: 60 });
        memory.release(60, true);
        memory.release(60, false);
        assert_eq!(memory.usage(), Usage { in_memory: 40, in_files: 0 });
        assert!(StateMemory::default().reserve(usize::MAX));
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let memory = StateMemory::limited(0, vec!["/nowhere".into()]);
        let error = memory.copied(&[0; LARGE]).unwrap_err();
        assert!(error.to_string().contains("/nowhere"), "{error}");
        assert_eq!(memory.usage(), Usage::default());
    }

    #[test]
    fn a_disk_without_room_is_an_error_and_no_signal() {
        let memory = StateMemory::limited(0, vec![]);
        let mut numbers = Vec::<u8, _>::new_in(memory.clone());
        assert!(numbers.try_reserve(1 << 50).is_err());
        let error = memory.failure();
        assert!(error.to_string().contains("bytes in"), "{error}");
        assert_eq!(memory.usage(), Usage::default());
    }
}
