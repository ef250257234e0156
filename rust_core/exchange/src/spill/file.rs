//! One file without a name.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, preadv, pwritev};

use super::manager::SpillCounters;

/// Pieces per call of the kernel, far below what it takes.
const MAX_SLICES: usize = 64;

/// A piece of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// Where it begins, in bytes.
    pub(super) offset: u64,
    /// How long it is, in bytes.
    pub(super) len: u32,
    /// CRC32C of its bytes.
    pub(super) crc: u32,
    /// How many bytes these stand for, where they are compressed.
    pub(super) plain_len: Option<u32>,
}

impl Extent {
    /// The offset behind it.
    pub(super) fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }
}

/// A file that is gone with its last descriptor, also after a kill.
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

    /// Writes all pieces at `offset`, one behind the other; returns the offset behind them.
    pub(super) fn write(&self, mut offset: u64, pieces: &[&[u8]]) -> io::Result<u64> {
        for pieces in pieces.chunks(MAX_SLICES) {
            let mut slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            let mut rest = &mut slices[..];
            // Skips empty pieces, here and below.
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

    /// Fills all targets from `offset` on.
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

    /// Gives the room of a piece that nobody reads any more back to the file system, if it can.
    pub(super) fn discard(&self, extent: &Extent) {
        self.live.fetch_sub(extent.len.into(), Ordering::Relaxed);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A file system without holes keeps the room until the file is gone.
        let _ = fallocate(&self.file, hole, extent.offset, extent.len.into());
    }

    /// Bytes written and not discarded.
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
    fn many_pieces_come_back_as_they_were_cut_and_otherwise() {
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
    fn what_was_never_written_cannot_be_read() {
        let file = file();
        file.write(0, &[&[1, 2, 3]]).unwrap();
        let error = file.read(1, &mut [&mut [0; 3]]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn the_room_of_what_was_read_is_given_back() {
        use std::os::unix::fs::MetadataExt;
        let file = file();
        let page = vec![7; 1 << 16];
        file.write(0, &[&page, &page]).unwrap();
        let before = file.file.metadata().unwrap().blocks();
        file.discard(&Extent { offset: 0, len: 1 << 16, crc: 0, plain_len: None });
        assert_eq!(file.live(), 1 << 16);
        // A file system without holes keeps them.
        assert!(file.file.metadata().unwrap().blocks() <= before);
        let mut back = vec![0; 1 << 16];
        file.read(1 << 16, &mut [&mut back]).unwrap();
        assert_eq!(back, page);
    }
}
