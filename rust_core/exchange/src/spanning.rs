//! Options of records that span buffers, and the files in which large ones are assembled.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use arrow_buffer::MutableBuffer;
use bytes::Bytes;
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

impl SpillStore for RecordFiles {
    type File = File;
    type Error = ExchangeError;

    fn create(&self) -> Result<File> {
        fail_point!("record.spill_file", error => return Err(error));
        self.directories.create()
    }

    fn write(&self, file: &mut File, offset: usize, bytes: &[u8]) -> Result<()> {
        fail_point!("record.spill", error => return Err(error));
        file.write_all_at(bytes, offset as u64).map_err(failed("write a spill file"))?;
        Copies::count(&self.copies.spilled, bytes.len());
        Ok(())
    }

    /// Reads into aligned memory, so that a page is read in place.
    fn read(&self, file: &File, offset: usize, length: usize) -> Result<Bytes> {
        fail_point!("record.read_back", error => return Err(error));
        let mut memory = MutableBuffer::from_len_zeroed(length);
        // A read and not a mapping: a failing disk gives an error, not a signal.
        file.read_exact_at(memory.as_slice_mut(), offset as u64)
            .map_err(failed("read a spill file"))?;
        Ok(Bytes::from_owner(Aligned(memory.into())))
    }
}

fn failed(doing: &'static str) -> impl FnOnce(std::io::Error) -> ExchangeError {
    move |error| ExchangeError::SpillFile { doing, source: Arc::new(error) }
}
