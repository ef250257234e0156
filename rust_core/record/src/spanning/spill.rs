//! Where records are put together that are too large for memory.

use std::convert::Infallible;

use bytes::Bytes;

/// Makes the files of a [`SpanningDeserializer`](super::SpanningDeserializer).
///
/// This crate has no files; who has some lends them here. A file is given up by dropping it.
pub trait SpillStore {
    /// One file, or whatever holds the bytes of one record.
    type File;
    /// Why it cannot be made, written or read.
    type Error;

    /// A new empty file.
    ///
    /// # Errors
    /// The store's own.
    fn create(&self) -> Result<Self::File, Self::Error>;

    /// Writes all of the bytes at an offset. After an error they may be written again.
    ///
    /// # Errors
    /// The store's own.
    fn write(&self, file: &mut Self::File, offset: usize, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Reads exactly so many bytes, all of them written before.
    ///
    /// # Errors
    /// The store's own.
    fn read(&self, file: &Self::File, offset: usize, length: usize) -> Result<Bytes, Self::Error>;
}

/// The store of who never spills.
#[derive(Clone, Copy, Debug)]
pub struct InMemory(());

impl InMemory {
    pub(super) const STORE: Self = Self(());
}

impl SpillStore for InMemory {
    type File = Infallible;
    type Error = Infallible;

    fn create(&self) -> Result<Infallible, Infallible> {
        unreachable!("no record is larger than the threshold of who never spills")
    }

    fn write(&self, file: &mut Infallible, _: usize, _: &[u8]) -> Result<(), Infallible> {
        match *file {}
    }

    fn read(&self, file: &Infallible, _: usize, _: usize) -> Result<Bytes, Infallible> {
        match *file {}
    }
}
