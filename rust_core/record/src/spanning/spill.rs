//! Files in which large records are assembled.

use std::convert::Infallible;

use bytes::Bytes;

/// Creates the files of a [`SpanningDeserializer`](super::SpanningDeserializer).
///
/// This crate does no I/O; the caller implements the store. Dropping a file deletes it.
pub trait SpillStore {
    /// File that holds the bytes of one record.
    type File;
    /// Error of creating, writing or reading a file.
    type Error;

    /// Creates an empty file.
    ///
    /// # Errors
    /// The store failed.
    fn create(&self) -> Result<Self::File, Self::Error>;

    /// Writes all bytes at an offset. After an error the caller may repeat the write.
    ///
    /// # Errors
    /// The store failed.
    fn write(&self, file: &mut Self::File, offset: usize, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Reads exactly `length` bytes, all of which were written before.
    ///
    /// # Errors
    /// The store failed.
    fn read(&self, file: &Self::File, offset: usize, length: usize) -> Result<Bytes, Self::Error>;
}

/// Store of a deserializer that never spills.
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
