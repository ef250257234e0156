//! A part of a kept file, mapped read-only.
//!
//! Decision: ADR 0022.

use std::fs::File;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use bytes::Bytes;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::param::page_size;

/// A range of a kept file, whose bytes never change (M6). It stays mapped as long as any of the
/// [bytes](Self::bytes) is used.
#[derive(Debug)]
pub struct MappedFile {
    start: NonNull<u8>,
    /// Bytes from `start` on, the end of the last page not counted.
    len: usize,
    /// Offset in the file of the byte at `start`.
    offset: u64,
}

// SAFETY: M6, the mapping is only read.
unsafe impl Send for MappedFile {}
// SAFETY: as above.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// Maps the bytes from `from` up to `to`, and asks the kernel to read them.
    ///
    /// # Errors
    /// The range is empty or exceeds the file, or the kernel refuses to map it.
    pub fn open(file: &File, from: u64, to: u64) -> std::io::Result<Arc<Self>> {
        let size = file.metadata()?.len();
        if from >= to || to > size {
            let text = format!("bytes {from} to {to} of a file of {size} bytes");
            return Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, text));
        }
        let offset = from - from % page_size() as u64;
        let len = usize::try_from(to - offset).map_err(|_| std::io::ErrorKind::OutOfMemory)?;
        // SAFETY: M6, a new mapping at an address that the kernel chooses, within the file's size,
        // which never becomes smaller.
        let start =
            unsafe { mmap(null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, offset)? };
        let start = NonNull::new(start.cast::<u8>()).expect("mmap never returns null on success");
        // From here on, `drop` unmaps it on every return.
        let mapped = Self { start, len, offset };
        // SAFETY: M6, the range is the one that was mapped, and the advice changes no byte of it.
        let advised = unsafe { madvise(mapped.start.as_ptr().cast(), len, Advice::WillNeed) };
        // Without the advice the kernel reads each page when it is first used.
        let _ = advised;
        Ok(Arc::new(mapped))
    }

    /// Returns `len` bytes at this offset of the file; `None` if they are not all mapped.
    pub fn bytes(self: &Arc<Self>, offset: u64, len: usize) -> Option<Bytes> {
        let from = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        from.checked_add(len).filter(|to| *to <= self.len)?;
        Some(Bytes::from_owner(Part { file: Arc::clone(self), from, len }))
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: M6, every `Part` holds a reference to the mapping, so none is left; the range is
        // the one that `mmap` returned.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of a whole mapping succeeds");
    }
}

/// Bytes of a mapping, which they keep alive. `from + len` is within its length.
struct Part {
    file: Arc<MappedFile>,
    from: usize,
    len: usize,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: M6, the range is inside the mapping, whose bytes never change.
        unsafe { std::slice::from_raw_parts(self.file.start.as_ptr().add(self.from), self.len) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(bytes: &[u8]) -> (std::path::PathBuf, File) {
        let name = format!("headgate-mapped-{}-{:?}", std::process::id(), bytes.as_ptr());
        let path = std::env::temp_dir().join(name);
        File::create(&path).unwrap().write_all(bytes).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        (path, file)
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect()
    }

    #[test]
    fn bytes_outlive_the_file_and_the_mapping() {
        let written = pattern(3 * page_size());
        let (_, file) = file(&written);
        let mapped = MappedFile::open(&file, 0, written.len() as u64).unwrap();
        let some = mapped.bytes(100, 5000).unwrap();
        drop((file, mapped));
        assert_eq!(&some[..], &written[100..5100]);
    }

    #[test]
    fn a_range_that_starts_within_a_page_has_its_own_offsets() {
        let written = pattern(3 * page_size() + 10);
        let (_, file) = file(&written);
        let from = page_size() + 7;
        let mapped = MappedFile::open(&file, from as u64, written.len() as u64).unwrap();
        let all = mapped.bytes(from as u64, written.len() - from).unwrap();
        assert_eq!(&all[..], &written[from..]);
        assert!(mapped.bytes(from as u64, written.len() - from + 1).is_none());
        assert!(mapped.bytes(0, 1).is_none());
        assert!(mapped.bytes(u64::MAX, 1).is_none());
        assert!(mapped.bytes(from as u64, usize::MAX).is_none());
    }

    #[test]
    fn a_range_that_exceeds_the_file_or_is_empty_is_refused() {
        let (_, file) = file(&pattern(100));
        for (from, to) in [(0, 101), (50, 50), (60, 50), (200, 300)] {
            let error = MappedFile::open(&file, from, to).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
        }
    }
}
