//! The file of indexes that a producer leaves beside its pages.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headgate_protocol::KeptTable;
use headgate_trace::{Event, Kind, record, text};

use crate::error::{ExchangeError, Result};

/// The indexes of one producer, in a file. Its name is that of the pages with `.index` behind it.
#[derive(Clone, Debug)]
pub struct KeptFile {
    path: PathBuf,
}

impl KeptFile {
    /// Names a file of indexes. Nothing is opened.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Writes the indexes of the producer that has these pages. Others see the file once it is
    /// complete.
    ///
    /// # Errors
    /// [`ExchangeError::KeptFile`]: the file system refuses it.
    pub fn write(pages: &Path, has_pages: bool, indexes: &[(u32, Vec<u8>)]) -> Result<Self> {
        let lengths = indexes.iter().map(|(number, index)| (*number, index.len() as u64));
        let mut bytes = KeptTable::new(has_pages, lengths).encode();
        indexes.iter().for_each(|(_, index)| bytes.extend_from_slice(index));
        let (new, this) = (beside(pages, ".new"), Self { path: beside(pages, ".index") });
        fs::write(&new, bytes).map_err(|error| this.io(error))?;
        fs::rename(&new, &this.path).map_err(|error| this.io(error))?;
        Ok(this)
    }

    /// Returns the index of a subpartition, with its pages behind it if they have no file of their
    /// own, and the file of the pages if they have one. `None` if the subpartition has no rows.
    ///
    /// # Errors
    /// [`ExchangeError::KeptFile`]: the file is gone. [`ExchangeError::Integrity`]: it is damaged.
    pub fn read(&self, subpartition: u32) -> Result<Option<(Vec<u8>, Option<PathBuf>)>> {
        self.find(subpartition).inspect_err(|error| {
            let file = self.path.display();
            record(Kind::Kept, || Event::Unreadable { file: text(file), cause: text(error) });
        })
    }

    fn find(&self, subpartition: u32) -> Result<Option<(Vec<u8>, Option<PathBuf>)>> {
        let mut file = File::open(&self.path).map_err(|error| self.io(error))?;
        let mut head = vec![0; KeptTable::PREFIX_LEN];
        file.read_exact(&mut head).map_err(|error| self.io(error))?;
        let prefix = head.first_chunk().expect("as long as the prefix");
        let len = KeptTable::len_of_head(prefix).map_err(|error| self.damaged(&error))?;
        // Limited by the file, so that a wrong number of entries takes no memory.
        let rest = (len - head.len()) as u64;
        let read = file.by_ref().take(rest).read_to_end(&mut head);
        if read.map_err(|error| self.io(error))? < len - KeptTable::PREFIX_LEN {
            return Err(self.io(io::ErrorKind::UnexpectedEof.into()));
        }
        let table = KeptTable::decode(&head).map_err(|error| self.damaged(&error))?;
        let Some(place) = table.find(subpartition) else {
            return Ok(None);
        };
        let size = file.metadata().map_err(|error| self.io(error))?.len();
        let len = place.end.checked_sub(place.start).filter(|_| place.end <= size);
        let Some(len) = len.and_then(|len| usize::try_from(len).ok()) else {
            return Err(self.io(io::ErrorKind::UnexpectedEof.into()));
        };
        let mut index = vec![0; len];
        file.read_exact_at(&mut index, place.start).map_err(|error| self.io(error))?;
        Ok(Some((index, table.has_pages.then(|| self.path.with_extension("")))))
    }

    /// The file's name, for errors.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn io(&self, error: io::Error) -> ExchangeError {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return self.damaged(&"the file is cut off");
        }
        ExchangeError::KeptFile { path: self.name(), source: Arc::new(error) }
    }

    fn damaged(&self, detail: &dyn std::fmt::Display) -> ExchangeError {
        ExchangeError::Integrity { channel: self.name(), detail: detail.to_string() }
    }
}

fn beside(pages: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(pages);
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indexes() -> Vec<(u32, Vec<u8>)> {
        vec![(0, b"zero".to_vec()), (3, Vec::new()), (7, b"seven".to_vec())]
    }

    #[test]
    fn each_index_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().expect("a folder");
        for has_pages in [true, false] {
            let pages = folder.path().join(format!("kept-{has_pages}"));
            let file = KeptFile::write(&pages, has_pages, &indexes()).expect("a disk with room");
            for (number, index) in indexes() {
                let found = file.read(number).expect("a file that is whole");
                assert_eq!(found, Some((index, has_pages.then(|| pages.clone()))));
            }
            assert_eq!(file.read(4).expect("a file that is whole"), None);
            assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
            fs::remove_file(file.path).expect("the only file");
        }
    }

    #[test]
    fn a_file_that_is_gone_cut_off_or_damaged_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = KeptFile::write(&folder.path().join("kept"), true, &indexes()).expect("room");
        let whole = fs::read(&file.path).expect("a file");
        for len in 0..whole.len() {
            fs::write(&file.path, &whole[..len]).expect("room");
            assert!(file.read(7).is_err(), "{len} bytes");
        }
        let mut damaged = whole;
        damaged[12] ^= 1;
        fs::write(&file.path, damaged).expect("room");
        assert!(matches!(file.read(7), Err(ExchangeError::Integrity { .. })));
        fs::remove_file(&file.path).expect("a file");
        assert!(matches!(file.read(7), Err(ExchangeError::KeptFile { .. })));
    }
}
