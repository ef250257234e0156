//! The position of one reader in a kept subpartition, whose buffers it reads in place.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_buffer::{Buffer as ArrowBuffer, MutableBuffer};
use bytes::Bytes;
use headgate_memory::{Buffer, MappedFile};
use headgate_protocol::{DataType, KeptBlock, KeptIndex, Next, Sequence, crc32c};
use headgate_trace::{Event, Kind, record, text};

use crate::aligned::Aligned;
use crate::error::{ExchangeError, Result};

/// Blocks of one subpartition that lie so close together in the file are mapped as one.
const NEAR: u64 = 64 << 10;

/// The place of the buffers.
enum Place {
    /// In these bytes, which followed the index.
    Inline(Bytes),
    File(PathBuf),
}

/// One buffer or event, in its turn.
pub(crate) struct Read {
    pub(crate) buffer: Buffer,
    /// The bytes, as they were written.
    pub(crate) bytes: Bytes,
    pub(crate) data_type: DataType,
    pub(crate) sequence: Sequence,
}

/// A kept subpartition, and how much of it was read.
pub(crate) struct Reading {
    /// The reader's name, for errors.
    name: String,
    blocks: Vec<KeptBlock>,
    place: Place,
    /// Number of the block that the next read takes.
    next: usize,
    /// Data blocks from `next` on.
    data_left: usize,
    /// The part of the file that holds the last block that was read; `None` if the buffers are not
    /// in a file, or the kernel could not map it.
    mapped: Option<Arc<MappedFile>>,
    sequence: Sequence,
}

impl Reading {
    /// Begins to read the buffers of an encoded [`KeptIndex`] from this file, or from the bytes
    /// behind the index. The file is opened when the first buffer is read.
    ///
    /// # Errors
    /// [`ExchangeError::Integrity`]: the bytes are no index.
    pub(crate) fn new(name: &str, kept: &[u8], file: Option<PathBuf>) -> Result<Self> {
        let (KeptIndex(blocks), end) = KeptIndex::decode(kept).map_err(|error| {
            ExchangeError::Integrity { channel: name.to_owned(), detail: error.to_string() }
        })?;
        Ok(Self {
            name: name.to_owned(),
            data_left: blocks.iter().filter(|block| block.data_type.is_buffer()).count(),
            blocks,
            place: file.map_or_else(|| Place::Inline(aligned(&kept[end..])), Place::File),
            next: 0,
            mapped: None,
            sequence: Sequence::default(),
        })
    }

    /// Bytes of all data buffers, those that were read included.
    pub(crate) fn total_bytes(&self) -> u64 {
        let data = self.blocks.iter().filter(|block| block.data_type.is_buffer());
        data.map(|block| u64::from(block.len)).sum()
    }

    /// Number of buffers and events that are left.
    pub(crate) fn left(&self) -> usize {
        self.blocks.len() - self.next
    }

    /// Number of data buffers that are left.
    pub(crate) fn data_left(&self) -> u32 {
        u32::try_from(self.data_left).unwrap_or(u32::MAX)
    }

    /// The kind of the buffer that the next read takes.
    pub(crate) fn following(&self) -> Next {
        Next::from(self.blocks.get(self.next).map(|block| block.data_type))
    }

    /// Reads the next buffer or event, whose checksum is right; `None` at the end.
    ///
    /// # Errors
    /// [`ExchangeError::KeptFile`]: the file is gone, or the disk fails.
    /// [`ExchangeError::Integrity`]: the bytes are others than were written.
    pub(crate) fn read(&mut self) -> Result<Option<Read>> {
        let Some(block) = self.blocks.get(self.next).copied() else {
            return Ok(None);
        };
        let bytes = self.bytes_of(&block).inspect_err(|error| {
            record(Kind::Kept, || Event::Unreadable { file: text(&self.name), cause: text(error) });
        })?;
        let buffer = match block.plain_len {
            Some(plain_len) => Buffer::of_compressed(bytes.clone(), plain_len as usize),
            None => Buffer::from(bytes.clone()),
        };
        let sequence = self.sequence;
        self.sequence = sequence.next();
        self.next += 1;
        self.data_left -= usize::from(block.data_type.is_buffer());
        Ok(Some(Read { buffer, bytes, data_type: block.data_type, sequence }))
    }

    /// Gives up the mapping. Buffers that were read keep theirs.
    pub(crate) fn unmap(&mut self) {
        self.mapped = None;
    }

    fn record_opened(&self, offset: u64, end: u64) {
        let file = || text(&self.name);
        record(Kind::Kept, || Event::Mapped { file: file(), offset, bytes: end - offset });
    }

    fn damaged(&self, detail: String) -> ExchangeError {
        ExchangeError::Integrity { channel: self.name.clone(), detail }
    }

    fn bytes_of(&mut self, block: &KeptBlock) -> Result<Bytes> {
        let bytes = match &self.place {
            Place::Inline(behind) => slice(behind, block).ok_or_else(|| {
                let (len, offset, all) = (block.len, block.offset, behind.len());
                self.damaged(format!("{len} bytes at offset {offset} exceed the {all} there are"))
            })?,
            Place::File(path) => {
                match self.mapped.as_ref().and_then(|mapped| in_mapping(mapped, block)) {
                    Some(bytes) => bytes,
                    None => {
                        let name = path.display().to_string();
                        let read = File::open(path).and_then(|file| self.read_file(&file, block));
                        read.map_err(|source| ExchangeError::KeptFile {
                            path: name,
                            source: Arc::new(source),
                        })?
                    }
                }
            }
        };
        let crc = crc32c(&bytes);
        if crc == block.crc {
            return Ok(bytes);
        }
        let KeptBlock { len, offset, crc: written, .. } = block;
        Err(self.damaged(format!(
            "{len} bytes at offset {offset} have checksum {crc:#x}, and {written:#x} was written"
        )))
    }

    /// Maps the block and those of this subpartition that lie behind it. If the process has no room
    /// for a mapping, reads the block alone into ordinary memory.
    fn read_file(&mut self, file: &File, block: &KeptBlock) -> io::Result<Bytes> {
        // The last mapping makes room first, unless a batch still uses it.
        self.mapped = None;
        let mut to = block.offset + u64::from(block.len);
        for next in &self.blocks[self.next + 1..] {
            if next.offset < to || next.offset - to > NEAR {
                break;
            }
            to = next.offset + u64::from(next.len);
        }
        match MappedFile::open(file, block.offset, to) {
            Ok(mapped) => {
                self.record_opened(block.offset, to);
                let bytes = in_mapping(&mapped, block).ok_or(io::ErrorKind::UnexpectedEof)?;
                self.mapped = Some(mapped);
                Ok(bytes)
            }
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
                let mut bytes = MutableBuffer::from_len_zeroed(block.len as usize);
                file.read_exact_at(&mut bytes, block.offset)?;
                self.record_opened(block.offset, block.offset + u64::from(block.len));
                Ok(Bytes::from_owner(Aligned(bytes.into())))
            }
            Err(error) => Err(error),
        }
    }
}

/// Copies bytes to where pages can be read in place.
fn aligned(bytes: &[u8]) -> Bytes {
    Bytes::from_owner(Aligned(ArrowBuffer::from_slice_ref(bytes)))
}

fn slice(bytes: &Bytes, block: &KeptBlock) -> Option<Bytes> {
    let from = usize::try_from(block.offset).ok()?;
    let to = from.checked_add(block.len as usize).filter(|to| *to <= bytes.len())?;
    Some(bytes.slice(from..to))
}

fn in_mapping(mapped: &Arc<MappedFile>, block: &KeptBlock) -> Option<Bytes> {
    mapped.bytes(block.offset, block.len as usize)
}
