//! Spill files: one nameless file per partition.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headgate_memory::SEGMENT_ALIGNMENT;
use rustix::fs::{AtFlags, CWD, FallocateFlags, fallocate, linkat};
use rustix::io::{Errno, preadv, pwritev};

use crate::metrics::{DiskWait, WaitTimes};

/// Slices per system call, far below the limit of the kernel.
const MAX_SLICES: usize = 64;

/// Bytes and files of all spill files of an environment.
#[derive(Debug, Default)]
pub(super) struct SpillCounters {
    /// Bytes written so far.
    pub(super) written: AtomicU64,
    /// Bytes read so far.
    pub(super) read: AtomicU64,
    /// Open files.
    pub(super) files: AtomicU64,
    pub(super) waits: Arc<WaitTimes>,
}

/// A range of the file that holds one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// First byte of the range.
    pub(super) offset: u64,
    /// Bytes of the range.
    pub(super) len: u32,
    /// CRC32C of its bytes.
    pub(super) crc: u32,
    /// Bytes before compression; none if they are not compressed.
    pub(super) plain_len: Option<u32>,
}

impl Extent {
    /// Returns the offset behind the range.
    pub(super) fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }

    /// Returns the bytes of padding between this range and the next one; `None` if other data may be
    /// between them.
    pub(super) fn padding_to(&self, next: &Self) -> Option<usize> {
        let padding = usize::try_from(next.offset.checked_sub(self.end())?).ok()?;
        (padding < SEGMENT_ALIGNMENT).then_some(padding)
    }
}

/// A nameless file. The kernel deletes it with its last descriptor, also when the process is
/// killed.
#[derive(Debug)]
pub(super) struct SpillFile {
    file: File,
    /// Bytes written and not discarded.
    live: AtomicU64,
    counters: Arc<SpillCounters>,
}

impl SpillFile {
    pub(super) fn new(file: File, counters: Arc<SpillCounters>) -> Self {
        counters.files.fetch_add(1, Ordering::Relaxed);
        Self { file, live: AtomicU64::new(0), counters }
    }

    /// Counts the time in which the caller uses the file.
    pub(super) fn used(&self) -> DiskWait<'_> {
        self.counters.waits.disk()
    }

    /// Writes all pieces at `offset`, one behind the other. Returns the offset behind them.
    pub(super) fn write(&self, mut offset: u64, pieces: &[&[u8]]) -> io::Result<u64> {
        for pieces in pieces.chunks(MAX_SLICES) {
            let mut slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            let mut rest = &mut slices[..];
            // Skips leading empty pieces: a write of nothing would look like an error.
            IoSlice::advance_slices(&mut rest, 0);
            while !rest.is_empty() {
                let written = match pwritev(&self.file, rest, offset) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => written,
                    Err(Errno::INTR) => continue,
                    Err(errno) => return Err(errno.into()),
                };
                offset += written as u64;
                self.live.fetch_add(written as u64, Ordering::Relaxed);
                self.counters.written.fetch_add(written as u64, Ordering::Relaxed);
                IoSlice::advance_slices(&mut rest, written);
            }
        }
        Ok(offset)
    }

    /// Reads from `offset` on until all targets are full.
    pub(super) fn read(&self, mut offset: u64, targets: &mut [&mut [u8]]) -> io::Result<()> {
        let mut slices: Vec<_> = targets.iter_mut().map(|target| IoSliceMut::new(target)).collect();
        let mut rest = &mut slices[..];
        IoSliceMut::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let read = match preadv(&self.file, rest, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            offset += read as u64;
            self.counters.read.fetch_add(read as u64, Ordering::Relaxed);
            IoSliceMut::advance_slices(&mut rest, read);
        }
        Ok(())
    }

    /// Gives the file a name in the file system that it is in.
    pub(super) fn link(&self, path: &Path) -> io::Result<()> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        match linkat(CWD, &*own, CWD, path, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => Ok(()),
            Err(error @ Errno::EXIST) => Err(error.into()),
            // The file system has no nameless files, so the name of this one was removed for good. Or it
            // has no hard links. Or the name is in another file system.
            Err(_) => self.copy(path),
        }
    }

    /// Copies the file. Its name appears once it is complete.
    fn copy(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().unwrap_or_else(|| Path::new("."));
        let mut copy = tempfile::NamedTempFile::new_in(folder)?;
        let mut source = File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))?;
        io::copy(&mut source, copy.as_file_mut())?;
        let refused = match copy.persist_noclobber(path) {
            Ok(_) => return Ok(()),
            Err(refused) => refused,
        };
        // A file system may have neither hard links nor a rename that refuses a taken name.
        if refused.error.kind() == io::ErrorKind::AlreadyExists || path.try_exists()? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        refused.file.persist(path).map(|_| ()).map_err(|error| error.error)
    }

    /// Returns the disk space of an extent that nobody reads any more to the file system.
    pub(super) fn discard(&self, extent: &Extent) {
        self.live.fetch_sub(extent.len.into(), Ordering::Relaxed);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A file system without holes keeps the space until the file is deleted.
        let _ = fallocate(&self.file, hole, extent.offset, extent.len.into());
    }

    /// Returns the bytes that are written and not discarded.
    pub(super) fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        self.counters.files.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SpillDirectories;

    fn file() -> SpillFile {
        let file = SpillDirectories::new(Vec::new()).create().unwrap();
        SpillFile::new(file, Arc::default())
    }

    #[test]
    fn many_pieces_are_read_back_as_they_were_cut_and_otherwise() {
        let file = file();
        let pieces: Vec<Vec<u8>> = (0..200_u8).map(|i| vec![i; usize::from(i) * 7]).collect();
        let slices: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let total: usize = pieces.iter().map(Vec::len).sum();
        assert_eq!(file.write(10, &slices).unwrap(), 10 + total as u64);
        assert_eq!(file.live(), total as u64);
        let (mut one, mut two) = (vec![0; 1000], vec![0; total - 1000]);
        file.read(10, &mut [&mut one, &mut [], &mut two]).unwrap();
        assert_eq!([one, two].concat(), pieces.concat());
    }

    #[test]
    fn reading_beyond_the_end_is_an_error() {
        let file = file();
        file.write(0, &[&[1, 2, 3]]).unwrap();
        let error = file.read(1, &mut [&mut [0; 3]]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn discarding_an_extent_returns_its_space_and_keeps_the_others() {
        use std::os::unix::fs::MetadataExt;
        let file = file();
        let page = vec![7; 1 << 16];
        file.write(0, &[&page, &page]).unwrap();
        let before = file.file.metadata().unwrap().blocks();
        file.discard(&Extent { offset: 0, len: 1 << 16, crc: 0, plain_len: None });
        assert_eq!(file.live(), 1 << 16);
        // A file system without holes keeps the blocks.
        assert!(file.file.metadata().unwrap().blocks() <= before);
        let mut back = vec![0; 1 << 16];
        file.read(1 << 16, &mut [&mut back]).unwrap();
        assert_eq!(back, page);
    }
}
