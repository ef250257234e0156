//! Memory of keyed state: of the process up to a limit, of mapped files beyond it.
//!
//! Decision: ADR 0057.

use std::alloc::Layout;
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::ptr::{NonNull, null_mut, slice_from_raw_parts_mut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use allocator_api2::alloc::{AllocError, Allocator, Global};
use arrow_array::{ArrayRef, make_array};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
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
    /// Bytes of each block that is a file, by its address.
    files: HashMap<usize, usize>,
    /// Why the last block could not be given.
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

    /// Returns a block of zeros.
    ///
    /// # Errors
    /// The kernel gives no memory, or no file of that size can be made.
    pub fn zeros(&self, len: usize) -> io::Result<Block> {
        let layout = Layout::from_size_align(len.max(1), BLOCK_ALIGN).map_err(io::Error::other)?;
        match self.allocate_zeroed(layout) {
            Ok(start) => Ok(Block { start: start.cast(), len, layout, memory: self.clone() }),
            Err(AllocError) => Err(self.failure()),
        }
    }

    /// Returns the same values in blocks of this memory, as far as they count.
    ///
    /// # Errors
    /// The same as those of [`Self::zeros`].
    pub fn settle(&self, values: &ArrayRef) -> io::Result<ArrayRef> {
        if self.limited.is_none() {
            return Ok(values.clone());
        }
        Ok(make_array(self.settled(&values.to_data())?))
    }

    fn settled(&self, data: &ArrayData) -> io::Result<ArrayData> {
        let buffers = data.buffers().iter().map(|buffer| self.copied(buffer));
        let children = data.child_data().iter().map(|child| self.settled(child));
        let builder = data.clone().into_builder();
        let builder = builder.buffers(buffers.collect::<io::Result<_>>()?);
        let builder = builder.child_data(children.collect::<io::Result<_>>()?);
        // SAFETY: the values are those of an array, and copies have the same bytes.
        Ok(unsafe { builder.build_unchecked() })
    }

    fn copied(&self, buffer: &Buffer) -> io::Result<Buffer> {
        if buffer.len() < LARGE {
            return Ok(buffer.clone());
        }
        let block = self.zeros(buffer.len())?;
        let start = block.start();
        // SAFETY: S1, the block is new and as long as the buffer, so they do not overlap.
        unsafe { start.as_ptr().copy_from_nonoverlapping(buffer.as_ptr(), buffer.len()) };
        // SAFETY: S1, the block owns the bytes, lives as long as the buffer, and nobody writes to it from now on.
        Ok(unsafe { Buffer::from_custom_allocation(start, buffer.len(), Arc::new(block)) })
    }

    /// Returns why the last block could not be given.
    #[must_use]
    pub fn failure(&self) -> io::Error {
        let failure = self.limited.as_ref().and_then(|limited| limited.books().failure.take());
        failure.unwrap_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    fn limited_for(&self, layout: Layout) -> Option<&Limited> {
        self.limited.as_deref().filter(|_| layout.size() >= LARGE && layout.align() <= BLOCK_ALIGN)
    }
}

/// Mappings begin at a page.
const BLOCK_ALIGN: usize = 64;

impl Limited {
    fn books(&self) -> MutexGuard<'_, Books> {
        // Every change of the books is whole before anything can panic.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn map(&self, len: usize) -> io::Result<NonNull<u8>> {
        let mut books = self.books();
        let is_file = books.usage.in_memory.saturating_add(len) > self.limit;
        let start = if is_file { self.map_file(len, books.files.len())? } else { map_memory(len)? };
        if is_file {
            books.files.insert(start.as_ptr().addr(), len);
            books.usage.in_files += len;
        } else {
            books.usage.in_memory += len;
        }
        Ok(start)
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
        // SAFETY: S1, a new mapping at an address that the kernel chooses, of a file that nobody else has.
        let start = unsafe { mmap(null_mut(), len, READ_WRITE, MapFlags::SHARED, &file, 0)? };
        Ok(NonNull::new(start.cast()).expect("mmap never returns null on success"))
    }

    /// # Safety
    /// `start` and `len` are those of a block that [`map`](Self::map) returned, which is not used any more.
    unsafe fn unmap(&self, start: NonNull<u8>, len: usize) {
        let mut books = self.books();
        match books.files.remove(&start.as_ptr().addr()) {
            Some(_) => books.usage.in_files -= len,
            None => books.usage.in_memory -= len,
        }
        // SAFETY: S1, the caller gives a whole mapping that nobody uses. The lock is held, so that no other thread gets
        // its address before it has left the books.
        let unmapped = unsafe { munmap(start.as_ptr().cast(), len) };
        debug_assert!(unmapped.is_ok(), "munmap of a whole mapping succeeds");
    }
}

fn map_memory(len: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: S1, a new anonymous mapping at an address that the kernel chooses aliases nothing.
    let start = unsafe { mmap_anonymous(null_mut(), len, READ_WRITE, MapFlags::PRIVATE)? };
    Ok(NonNull::new(start.cast()).expect("mmap never returns null on success"))
}

// SAFETY: S1. A block stays where it is until it is given back, also if the memory is moved: the books are behind an `Arc`.
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

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        match self.limited_for(layout) {
            // New mappings are zeros.
            Some(_) => self.allocate(layout),
            None => Global.allocate_zeroed(layout),
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
        // SAFETY: S1, the new block is nobody else's, and the caller promises that it is not smaller than the old one,
        // which nobody uses from now on.
        unsafe {
            block.cast().copy_from_nonoverlapping(start, before.size());
            self.deallocate(start, before);
        }
        Ok(block)
    }
}

/// Bytes that are zeros at first, given back when they are dropped.
#[derive(Debug)]
pub struct Block {
    start: NonNull<u8>,
    len: usize,
    layout: Layout,
    memory: StateMemory,
}

// SAFETY: S1, a block is owned memory, and its methods give only its address and length.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// Address of the first byte. Who writes there sees to it that nobody else reads or writes the same bytes meanwhile.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without a byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: S1, the block came from this memory with this layout, and nobody outlives it.
        unsafe { self.memory.deallocate(self.start, self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_beyond_the_limit_are_files_until_they_are_given_back() {
        let memory = StateMemory::limited(3 * LARGE, vec![]);
        let first = memory.zeros(2 * LARGE).unwrap();
        let second = memory.clone().zeros(2 * LARGE).unwrap();
        assert_eq!(memory.usage(), Usage { in_memory: 2 * LARGE, in_files: 2 * LARGE });
        let third = memory.zeros(LARGE).unwrap();
        assert_eq!(memory.usage(), Usage { in_memory: 3 * LARGE, in_files: 2 * LARGE });
        drop((first, second));
        assert_eq!(memory.usage(), Usage { in_memory: LARGE, in_files: 0 });
        drop(third);
        assert_eq!(memory.usage(), Usage::default());
    }

    #[test]
    fn small_blocks_do_not_count() {
        let memory = StateMemory::limited(0, vec![]);
        let _small = memory.zeros(LARGE - 1).unwrap();
        let _empty = memory.zeros(0).unwrap();
        assert_eq!(memory.usage(), Usage::default());
    }

    #[test]
    fn vectors_grow_from_small_blocks_to_files_and_back() {
        let memory = StateMemory::limited(0, vec![]);
        let mut numbers = allocator_api2::vec::Vec::new_in(memory.clone());
        numbers.extend(0..100_000_u64);
        assert!(memory.usage().in_files >= 800_000);
        assert!(numbers.iter().copied().eq(0..100_000));
        numbers.truncate(10);
        numbers.shrink_to_fit();
        assert_eq!(memory.usage(), Usage::default());
        assert!(numbers.iter().copied().eq(0..10));
    }

    #[test]
    fn arrays_are_the_same_in_files() {
        use arrow_array::{Int32Array, StringArray, StructArray};
        let texts: ArrayRef = Arc::new(
            (0..5000).map(|n| (n % 7 > 0).then(|| n.to_string())).collect::<StringArray>(),
        );
        let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..5000));
        let pairs = StructArray::try_from(vec![("text", texts), ("number", numbers)]).unwrap();
        let pairs: ArrayRef = Arc::new(pairs.slice(10, 4900));
        let memory = StateMemory::limited(0, vec![]);
        let settled = memory.settle(&pairs).unwrap();
        assert!(memory.usage().in_files > 2 * LARGE);
        assert_eq!(&settled, &pairs);
        drop(settled);
        assert_eq!(memory.usage(), Usage::default());
        assert_eq!(&StateMemory::default().settle(&pairs).unwrap(), &pairs);
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let memory = StateMemory::limited(0, vec!["/nowhere".into()]);
        let error = memory.zeros(LARGE).unwrap_err();
        assert!(error.to_string().contains("/nowhere"), "{error}");
        assert_eq!(memory.usage(), Usage::default());
    }

    #[test]
    fn a_disk_without_room_is_an_error_and_no_signal() {
        let memory = StateMemory::limited(0, vec![]);
        let error = memory.zeros(1 << 50).unwrap_err();
        assert!(error.to_string().contains("bytes in"), "{error}");
    }
}
