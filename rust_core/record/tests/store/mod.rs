//! A store of spilled records that counts its files and fails on demand.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use headgate_record::{SpanningDeserializer, SpillStore};

/// Files in memory; a shared reference implements the store.
#[derive(Debug, Default)]
pub(crate) struct Store {
    created: Cell<usize>,
    open: Rc<Cell<usize>>,
    /// Number of calls that still succeed.
    pub(crate) calls_left: Cell<Option<usize>>,
}

/// One file, counted as open until it is dropped.
#[derive(Debug)]
pub(crate) struct File {
    bytes: RefCell<Vec<u8>>,
    open: Rc<Cell<usize>>,
}

/// Error of the store when it is set to fail.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the disk is full")]
pub(crate) struct Full;

impl Store {
    /// Files created so far.
    pub(crate) fn created(&self) -> usize {
        self.created.get()
    }

    /// Open files.
    pub(crate) fn open(&self) -> usize {
        self.open.get()
    }

    fn call(&self) -> Result<(), Full> {
        match self.calls_left.get() {
            None => {}
            Some(0) => return Err(Full),
            Some(left) => self.calls_left.set(Some(left - 1)),
        }
        Ok(())
    }
}

impl SpillStore for &Store {
    type File = File;
    type Error = Full;

    fn create(&self) -> Result<File, Full> {
        self.call()?;
        self.created.set(self.created.get() + 1);
        self.open.set(self.open.get() + 1);
        Ok(File { bytes: RefCell::default(), open: Rc::clone(&self.open) })
    }

    fn write(&self, file: &mut File, offset: usize, bytes: &[u8]) -> Result<(), Full> {
        self.call()?;
        let all = file.bytes.get_mut();
        assert_eq!(offset, all.len(), "files are written without gaps");
        all.extend_from_slice(bytes);
        Ok(())
    }

    fn read(&self, file: &File, offset: usize, length: usize) -> Result<Bytes, Full> {
        self.call()?;
        Ok(Bytes::copy_from_slice(&file.bytes.borrow()[offset..offset + length]))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.open.set(self.open.get() - 1);
    }
}

/// All unconsumed bytes in one piece.
pub(crate) fn unconsumed<S>(deserializer: &SpanningDeserializer<S>) -> Vec<u8>
where
    S: SpillStore<Error: std::fmt::Debug>,
{
    let pieces: Vec<_> = deserializer.unconsumed().map(Result::unwrap).collect();
    assert!(pieces.iter().all(|piece| (1..=2 << 20).contains(&piece.len())));
    let bytes = pieces.concat();
    assert_eq!(bytes.len(), deserializer.unconsumed_len());
    bytes
}
