//! Options of records that span buffers, and the files in which large ones are assembled.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use arrow_buffer::MutableBuffer;
use bytes::Bytes;
use headgate_protocol::{Crc32c, crc32c};
use headgate_record::{SpanningDeserializer, SpillStore};

use crate::aligned::Aligned;
use crate::copies::Copies;
use crate::error::{ExchangeError, Result};
use crate::spill_dirs::SpillDirectories;

/// Options of a reader for records that span buffers.
#[derive(Clone, Debug)]
pub struct SpanningOptions {
    /// Size of the largest record, in bytes.
    pub max_record_size: usize,
    /// Size in bytes above which a record is assembled in a file.
    pub spill_threshold: usize,
    /// Directories of these files.
    pub directories: Arc<SpillDirectories>,
}

impl SpanningOptions {
    /// Creates the deserializer of one channel.
    pub(crate) fn deserializer(&self, copies: &Arc<Copies>) -> SpanningDeserializer<RecordFiles> {
        let files =
            RecordFiles { directories: Arc::clone(&self.directories), copies: Arc::clone(copies) };
        SpanningDeserializer::spilling(self.max_record_size, self.spill_threshold, files)
    }
}

/// Nameless files, one per large record that is incomplete.
#[derive(Debug)]
pub(crate) struct RecordFiles {
    directories: Arc<SpillDirectories>,
    copies: Arc<Copies>,
}

/// The file of one record, with checksums of the bytes written to it.
#[derive(Debug)]
pub(crate) struct RecordFile {
    file: File,
    /// Pieces of the record, from its start on and without gaps.
    pieces: Vec<Piece>,
}

/// Bytes that are read and checked together.
#[derive(Debug)]
struct Piece {
    end: usize,
    crc: Crc32c,
}

/// Bytes after which a new piece starts: small writes share one, so a record has few pieces.
const PIECE: usize = 1 << 16;

impl SpillStore for RecordFiles {
    type File = RecordFile;
    type Error = ExchangeError;

    fn create(&self) -> Result<RecordFile> {
        fail_point!("record.spill_file", text => return Err(ExchangeError::Aborted(text)));
        Ok(RecordFile { file: self.directories.create()?, pieces: Vec::new() })
    }

    fn write(&self, file: &mut RecordFile, offset: usize, bytes: &[u8]) -> Result<()> {
        fail_point!("record.spill", text => return Err(ExchangeError::Aborted(text)));
        file.file.write_all_at(bytes, offset as u64).map_err(failed("write a spill file"))?;
        file.written(offset, bytes);
        Copies::count(&self.copies.spilled, bytes.len());
        Ok(())
    }

    /// Reads into aligned memory, so that a page is read in place.
    fn read(&self, file: &RecordFile, offset: usize, length: usize) -> Result<Bytes> {
        fail_point!("record.read_back", text => return Err(ExchangeError::Aborted(text)));
        let (start, pieces) = file.covering(offset, length);
        let end = pieces.last().map_or(start, |piece| piece.end);
        let mut memory = MutableBuffer::from_len_zeroed(end - start);
        // A read and not a mapping: a failing disk gives an error, not a signal.
        file.file
            .read_exact_at(memory.as_slice_mut(), start as u64)
            .map_err(failed("read a spill file"))?;
        let mut rest = memory.as_slice();
        for piece in pieces {
            let at = end - rest.len();
            let (bytes, after) = rest.split_at(piece.end - at);
            if crc32c(bytes) != piece.crc.value() {
                return Err(damaged(at, bytes.len()));
            }
            rest = after;
        }
        let record = Bytes::from_owner(Aligned(memory.into()));
        Ok(record.slice(offset - start..offset - start + length))
    }
}

impl RecordFile {
    fn written(&mut self, offset: usize, bytes: &[u8]) {
        let start = self.pieces.len().checked_sub(2).map_or(0, |before| self.pieces[before].end);
        match self.pieces.last_mut() {
            Some(last) if last.end - start < PIECE => {
                last.crc.update(bytes);
                last.end = offset + bytes.len();
            }
            _ => {
                let mut crc = Crc32c::new();
                crc.update(bytes);
                self.pieces.push(Piece { end: offset + bytes.len(), crc });
            }
        }
    }

    /// Returns the pieces that have bytes of a part of the record, and the offset of the first.
    fn covering(&self, offset: usize, length: usize) -> (usize, &[Piece]) {
        let first = self.pieces.partition_point(|piece| piece.end <= offset);
        let start = first.checked_sub(1).map_or(0, |before| self.pieces[before].end);
        let rest = &self.pieces[first..];
        let count = rest.partition_point(|piece| piece.end < offset + length) + 1;
        (start, &rest[..count.min(rest.len())])
    }
}

fn damaged(offset: usize, length: usize) -> ExchangeError {
    ExchangeError::Integrity {
        channel: "a record in a spill file".to_owned(),
        detail: format!(
            "the checksum of {length} bytes at offset {offset} of a record's spill file differs from \
             the one written"
        ),
    }
}

fn failed(doing: &'static str) -> impl FnOnce(std::io::Error) -> ExchangeError {
    move |error| ExchangeError::SpillFile { doing, source: Arc::new(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> RecordFiles {
        RecordFiles {
            directories: Arc::new(SpillDirectories::new(Vec::new())),
            copies: Arc::new(Copies::default()),
        }
    }

    /// Returns a file with a record that was written in parts of the given sizes, and the record.
    fn written(files: &RecordFiles, sizes: &[usize]) -> (RecordFile, Vec<u8>) {
        let mut file = files.create().unwrap();
        let mut record = Vec::new();
        for size in sizes {
            let part: Vec<u8> = (0..*size).map(|i| (record.len() + i) as u8 ^ 0x5a).collect();
            files.write(&mut file, record.len(), &part).unwrap();
            record.extend(part);
        }
        (file, record)
    }

    #[test]
    fn any_part_of_a_record_is_read_as_it_was_written() {
        let files = files();
        for sizes in [&[][..], &[1], &[3, 1, 4], &[PIECE, PIECE, 1], &[PIECE - 1, 2, PIECE, 7]] {
            let (file, record) = written(&files, sizes);
            assert!(file.pieces.len() <= record.len() / PIECE + 1);
            let ends = [0, 1, PIECE - 1, PIECE, PIECE + 1, record.len()];
            for from in ends.into_iter().filter(|at| *at <= record.len()) {
                for to in ends.into_iter().filter(|at| (from..=record.len()).contains(at)) {
                    let read = files.read(&file, from, to - from).unwrap();
                    assert_eq!(read, record[from..to], "{sizes:?}, {from}..{to}");
                }
            }
        }
    }

    #[test]
    fn each_flipped_bit_of_a_record_on_disk_is_an_error() {
        let files = files();
        let (file, record) = written(&files, &[100, 100, 57]);
        for at in 0..record.len() {
            for bit in 0..8 {
                let wrong = record[at] ^ (1 << bit);
                file.file.write_all_at(&[wrong], at as u64).unwrap();
                let error = files.read(&file, 0, record.len()).unwrap_err();
                assert!(matches!(error, ExchangeError::Integrity { .. }), "{error}");
            }
            file.file.write_all_at(&record[at..=at], at as u64).unwrap();
        }
        assert_eq!(files.read(&file, 0, record.len()).unwrap(), record);
    }

    #[test]
    fn a_damaged_piece_is_named_and_the_others_can_be_read() {
        let files = files();
        let (file, record) = written(&files, &[PIECE, PIECE, PIECE]);
        file.file.write_all_at(&[!record[PIECE + 9]], PIECE as u64 + 9).unwrap();
        let error = files.read(&file, 0, record.len()).unwrap_err().to_string();
        assert!(error.contains(&format!("{PIECE} bytes at offset {PIECE} ")), "{error}");
        assert_eq!(files.read(&file, 0, PIECE).unwrap(), record[..PIECE]);
        assert_eq!(files.read(&file, 2 * PIECE, PIECE).unwrap(), record[2 * PIECE..]);
    }
}
