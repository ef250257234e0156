//! Memory of keyed state: of the process up to a limit, of mapped files beyond it.
//!
//! Decision: ADR 0057.

use std::alloc::Layout;
use std::collections::HashSet;
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::ptr::{NonNull, null_mut, slice_from_raw_parts_mut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use allocator_api2::alloc::{AllocError, Allocator, Global};
use bytes::Bytes;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::param::page_size;

use crate::recent_pages::RecentPages;

/// Bytes from which on a block counts, and may be in a file: smaller ones are not worth a mapping.
const LARGE: usize = 1 << 14;
const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Gives out blocks of memory, and counts them. Blocks beyond the limit are nameless files, mapped: the kernel keeps the pages
/// in memory that are in use, and writes the others to the disk. Clones count together; [shares](Self::share) have the
/// limit together, and each counts its own blocks.
#[derive(Clone, Debug, Default)]
pub struct StateMemory {
    /// `None` for the memory of the process, of which nothing is counted.
    share: Option<Arc<Share>>,
}

#[derive(Debug)]
struct Share {
    whole: Arc<Whole>,
    usage: Mutex<Usage>,
}

/// The limit and the books of all shares.
#[derive(Debug)]
struct Whole {
    limit: Option<usize>,
    directories: Vec<PathBuf>,
    books: Mutex<Books>,
    recent: Mutex<RecentPages>,
}

#[derive(Debug, Default)]
struct Books {
    usage: Usage,
    /// Addresses of the mapped blocks that are files.
    files: HashSet<usize>,
    /// Number of files that there ever were.
    opened: usize,
    /// The error for which the last block could not be given.
    failure: Option<io::Error>,
}

/// Bytes of the blocks that are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the process's memory; those of all shares are never above the limit.
    pub in_memory: usize,
    /// Of mapped files.
    pub in_files: usize,
}

/// Bytes of the process's memory that count while this is there.
#[derive(Debug)]
pub struct Reserved {
    memory: StateMemory,
    bytes: usize,
}

/// While this is there, the kernel reads a block ahead.
#[derive(Debug)]
pub struct ReadAhead {
    /// Address and length of the block if it is a file.
    file: Option<(usize, usize)>,
}

impl StateMemory {
    /// Keeps up to `limit` bytes in memory, or all without one, and the others in files of these directories, used in
    /// turn; an empty list means the system's directory for temporary files.
    #[must_use]
    pub fn new(limit: Option<usize>, mut directories: Vec<PathBuf>) -> Self {
        if directories.is_empty() {
            directories.push(std::env::temp_dir());
        }
        Self::of(Arc::new(Whole {
            limit,
            directories,
            books: Mutex::default(),
            recent: Mutex::default(),
        }))
    }

    /// As [`Self::new`], with a limit.
    #[must_use]
    pub fn limited(limit: usize, directories: Vec<PathBuf>) -> Self {
        Self::new(Some(limit), directories)
    }

    fn of(whole: Arc<Whole>) -> Self {
        Self { share: Some(Arc::new(Share { whole, usage: Mutex::default() })) }
    }

    /// Returns a memory under the same limit that counts its own blocks.
    #[must_use]
    pub fn share(&self) -> Self {
        self.share.as_ref().map_or_else(Self::default, |share| Self::of(share.whole.clone()))
    }

    /// Returns the bytes in use of this share.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.share.as_ref().map_or_else(Usage::default, |share| *share.usage())
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

    /// Counts bytes that the caller takes for itself, unless they are few. Returns true if the limit lets them be memory of
    /// the process, and false if they are to be a [file](Self::file).
    pub fn reserve(&self, bytes: usize) -> bool {
        self.counting(bytes).is_none_or(|share| share.reserve(bytes))
    }

    /// Counts reserved bytes no more; `in_memory` is what [`Self::reserve`] returned.
    pub fn release(&self, bytes: usize, in_memory: bool) {
        if let Some(share) = self.counting(bytes) {
            share.release(bytes, in_memory);
        }
    }

    /// Counts bytes that the caller has already; `None` if the limit does not let them be memory of the process.
    #[must_use]
    pub fn hold(&self, bytes: usize) -> Option<Reserved> {
        if self.reserve(bytes) {
            return Some(Reserved { memory: self.clone(), bytes });
        }
        self.release(bytes, false);
        None
    }

    /// Tells the kernel that a block is read from one end to the other now. Of other files it reads only the pages that are
    /// used: those beside them would drive pages out that are in use.
    #[must_use]
    pub fn read_ahead<T>(&self, block: &[T]) -> ReadAhead {
        let place = (block.as_ptr().addr(), size_of_val(block));
        let file = self.is_file(place.0).then_some(place);
        if let Some((start, len)) = file {
            advise(start, len, Advice::Sequential);
        }
        ReadAhead { file }
    }

    /// Has the kernel begin to read some places of a block, if it is a file, before they are used one after another.
    pub fn want<T>(&self, block: &[T], places: Range<usize>) {
        let start = block.as_ptr().addr();
        if places.is_empty() || !self.is_file(start) {
            return;
        }
        let Range { start: first, end } = places;
        let first = first * size_of::<T>() / page_size() * page_size();
        advise(start + first, end.min(block.len()) * size_of::<T>() - first, Advice::WillNeed);
    }

    /// Has the kernel begin to read some places of a block, if it is a file: a disk reads many pages at once in less time than
    /// one after another, as they are missed. The places of a block in memory are not looked at.
    pub fn want_each<T>(&self, block: &[T], places: impl IntoIterator<Item = usize>) {
        let start = block.as_ptr().addr();
        if self.is_file(start) {
            self.want_pages(
                start,
                size_of::<T>(),
                places.into_iter().filter(|&at| at < block.len()),
            );
        }
    }

    /// As [`Self::want_each`], for a file that the caller has mapped at an address, with values of so many bytes.
    pub fn want_pages(&self, start: usize, width: usize, places: impl IntoIterator<Item = usize>) {
        let Some(share) = &self.share else { return };
        let bytes = page_size();
        let pages = places.into_iter().map(|place| (start + place * width) / bytes);
        for page in share.whole.not_lately(pages) {
            advise(page * bytes, bytes, Advice::WillNeed);
        }
    }

    /// Makes a file without a name, which is gone with its last user. Its room is taken: a write to a mapped page for which
    /// the disk has no room would kill the process.
    ///
    /// # Errors
    /// No file of that size can be made.
    pub fn file(&self, len: usize) -> io::Result<File> {
        self.share.as_ref().ok_or_else(|| self.failure())?.whole.file(len)
    }

    /// Returns why the last block could not be given.
    #[must_use]
    pub fn failure(&self) -> io::Error {
        let failure = self.share.as_ref().and_then(|share| share.whole.books().failure.take());
        failure.unwrap_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// True if a block that begins at this address is a file.
    fn is_file(&self, start: usize) -> bool {
        self.share.as_ref().is_some_and(|share| share.whole.books().files.contains(&start))
    }

    /// The share, if it counts blocks of so many bytes.
    fn counting(&self, bytes: usize) -> Option<&Share> {
        self.share.as_deref().filter(|_| bytes >= LARGE)
    }

    /// The share, if it maps blocks of a layout.
    fn mapping(&self, layout: Layout) -> Option<&Share> {
        let share = self.counting(layout.size())?;
        (share.whole.limit.is_some() && layout.align() <= MAX_ALIGN).then_some(share)
    }

    /// The share, if it counts a block of a layout that is of `Global`: there is no limit then.
    fn counting_global(&self, layout: Layout) -> Option<&Share> {
        self.counting(layout.size()).filter(|share| share.whole.limit.is_none())
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        if let Some((start, len)) = self.file {
            advise(start, len, Advice::Random);
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.memory.release(self.bytes, true);
    }
}

/// Mappings begin at a page, which is no smaller on any machine.
const MAX_ALIGN: usize = 4096;

struct Copied(allocator_api2::vec::Vec<u8, StateMemory>);

impl AsRef<[u8]> for Copied {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Share {
    fn usage(&self) -> MutexGuard<'_, Usage> {
        // As for the books.
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reserve(&self, bytes: usize) -> bool {
        let in_memory = self.whole.books().reserve(bytes, self.whole.limit);
        self.usage().add(bytes, in_memory);
        in_memory
    }

    fn release(&self, bytes: usize, in_memory: bool) {
        self.whole.books().usage.subtract(bytes, in_memory);
        self.usage().subtract(bytes, in_memory);
    }

    fn map(&self, len: usize) -> io::Result<NonNull<u8>> {
        let in_memory = self.reserve(len);
        let start = if in_memory { map_memory(len) } else { self.whole.map_file(len) };
        if start.is_err() {
            self.release(len, in_memory);
        }
        start
    }

    /// # Safety
    /// `start` and `len` are those of a block that [`map`](Self::map) returned, which is not used any more.
    unsafe fn unmap(&self, start: NonNull<u8>, len: usize) {
        // SAFETY: the caller's promise.
        let in_memory = unsafe { self.whole.unmap(start, len) };
        self.release(len, in_memory);
    }
}

impl Books {
    fn reserve(&mut self, bytes: usize, limit: Option<usize>) -> bool {
        let after = self.usage.in_memory.saturating_add(bytes);
        let in_memory = limit.is_none_or(|limit| after <= limit);
        self.usage.add(bytes, in_memory);
        in_memory
    }
}

impl Usage {
    fn add(&mut self, bytes: usize, in_memory: bool) {
        *self.of(in_memory) += bytes;
    }

    fn subtract(&mut self, bytes: usize, in_memory: bool) {
        let used = self.of(in_memory);
        *used = used.saturating_sub(bytes);
    }

    fn of(&mut self, in_memory: bool) -> &mut usize {
        if in_memory { &mut self.in_memory } else { &mut self.in_files }
    }
}

impl Whole {
    fn books(&self) -> MutexGuard<'_, Books> {
        // Every change of the books is whole before anything can panic.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pages that were not asked for lately, and notes them.
    fn not_lately(&self, pages: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        pages.filter(|&page| recent.note(page)).collect()
    }

    fn file(&self, len: usize) -> io::Result<File> {
        let number = {
            let mut books = self.books();
            books.opened += 1;
            books.opened
        };
        let directory = &self.directories[number % self.directories.len()];
        let file = tempfile::tempfile_in(directory).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", directory.display()))
        })?;
        fallocate(&file, FallocateFlags::empty(), 0, len as u64).map_err(|error| {
            let error = io::Error::from(error);
            let text = format!("{len} bytes in {}: {error}", directory.display());
            io::Error::new(error.kind(), text)
        })?;
        Ok(file)
    }

    fn map_file(&self, len: usize) -> io::Result<NonNull<u8>> {
        let file = self.file(len)?;
        // SAFETY: M7, a new mapping at an address that the kernel chooses, of a file that nobody else has.
        let start = unsafe { mmap(null_mut(), len, READ_WRITE, MapFlags::SHARED, &file, 0)? };
        let start = NonNull::new(start.cast::<u8>()).expect("mmap never returns null on success");
        advise(start.as_ptr().addr(), len, Advice::Random);
        self.books().files.insert(start.as_ptr().addr());
        Ok(start)
    }

    /// Returns true if the block was not a file.
    ///
    /// # Safety
    /// `start` and `len` are those of a whole mapping of a share of this, which is not used any more.
    unsafe fn unmap(&self, start: NonNull<u8>, len: usize) -> bool {
        let mut books = self.books();
        let is_file = books.files.remove(&start.as_ptr().addr());
        // SAFETY: M7, the caller gives a whole mapping that nobody uses. The lock is held, so that no other thread gets
        // its address before it has left the books.
        let unmapped = unsafe { munmap(start.as_ptr().cast(), len) };
        debug_assert!(unmapped.is_ok(), "munmap of a whole mapping succeeds");
        !is_file
    }
}

/// Says which pages are read, and in which order. It is a hint: without it all is as right, and slower.
fn advise(start: usize, len: usize, advice: Advice) {
    debug_assert!(
        matches!(advice, Advice::Random | Advice::Sequential | Advice::WillNeed),
        "others change the content"
    );
    // SAFETY: M7, this advice changes neither the content nor the place of what is mapped there, also if that is another
    // block by now.
    let _ = unsafe { madvise(null_mut::<c_void>().with_addr(start), len, advice) };
}

fn map_memory(len: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: M7, a new anonymous mapping at an address that the kernel chooses aliases nothing.
    let start = unsafe { mmap_anonymous(null_mut(), len, READ_WRITE, MapFlags::PRIVATE)? };
    Ok(NonNull::new(start.cast()).expect("mmap never returns null on success"))
}

// SAFETY: M7. A block stays where it is until it is given back, also if the memory is moved: the books are behind an `Arc`.
// Clones have the books together, so each gives back the blocks of the others. Small blocks, and all without a limit, are
// those of `Global`: a layout says which they are, and callers give back the layout that they asked for.
unsafe impl Allocator for StateMemory {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let Some(share) = self.mapping(layout) else {
            let block = Global.allocate(layout)?;
            if let Some(share) = self.counting_global(layout) {
                share.reserve(layout.size());
            }
            return Ok(block);
        };
        match share.map(layout.size()) {
            Ok(start) => {
                let block = slice_from_raw_parts_mut(start.as_ptr(), layout.size());
                NonNull::new(block).ok_or(AllocError)
            }
            Err(error) => {
                share.whole.books().failure = Some(error);
                Err(AllocError)
            }
        }
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        if let Some(share) = self.mapping(layout) {
            // SAFETY: the caller's promise: a block of this allocator with this layout, so one of `map`.
            return unsafe { share.unmap(start, layout.size()) };
        }
        if let Some(share) = self.counting_global(layout) {
            share.release(layout.size(), true);
        }
        // SAFETY: as above, and a block of this layout came from `Global`.
        unsafe { Global.deallocate(start, layout) }
    }

    unsafe fn grow(
        &self,
        start: NonNull<u8>,
        before: Layout,
        after: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if self.mapping(before).is_none() && self.mapping(after).is_none() {
            // SAFETY: the caller's promise, of a block that came from `Global` and stays there.
            let block = unsafe { Global.grow(start, before, after)? };
            if let Some(share) = self.counting_global(before) {
                share.release(before.size(), true);
            }
            if let Some(share) = self.counting_global(after) {
                share.reserve(after.size());
            }
            return Ok(block);
        }
        let block = self.allocate(after)?;
        if self.is_file(start.as_ptr().addr()) {
            advise(start.as_ptr().addr(), before.size(), Advice::Sequential);
        }
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
mod tests;
