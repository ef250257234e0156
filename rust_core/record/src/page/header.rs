//! The header of a page.

use super::ALIGNMENT;
use super::schema::PageSchema;

pub(super) const MAGIC: u32 = u32::from_le_bytes(*b"HDGP");
pub(super) const VERSION: u16 = 1;
pub(super) const PREFIX_LEN: usize = 28;

/// Bytes of the header of a page of this schema, including padding.
pub(super) fn header_len(schema: &PageSchema) -> usize {
    let columns = schema.layouts().len();
    (PREFIX_LEN + 4 * columns + 8 * schema.num_buffers()).next_multiple_of(ALIGNMENT)
}

/// Writes a header field by field, in the order of the table in the parent module.
pub(super) struct HeaderWriter<'a> {
    rest: &'a mut [u8],
}

impl<'a> HeaderWriter<'a> {
    /// Writes the fields before the null counts.
    pub(super) fn new(header: &'a mut [u8], rows: u32, schema: &PageSchema, length: u32) -> Self {
        let mut writer = Self { rest: header };
        writer.put(MAGIC);
        writer.put(u32::from(VERSION));
        writer.put(rows);
        writer.put(to_u32(schema.layouts().len()));
        writer.put(to_u32(schema.num_buffers()));
        writer.put(length);
        writer.put(schema.fingerprint());
        writer
    }

    pub(super) fn put(&mut self, field: u32) {
        let rest = std::mem::take(&mut self.rest);
        let (target, rest) = rest.split_first_chunk_mut().expect("the header has all its fields");
        *target = field.to_le_bytes();
        self.rest = rest;
    }

    /// Zeros the rest.
    pub(super) fn finish(self) {
        self.rest.fill(0);
    }
}

/// Reads a header's fields in order.
pub(super) struct HeaderReader<'a> {
    rest: &'a [u8],
}

impl<'a> HeaderReader<'a> {
    pub(super) fn new(header: &'a [u8]) -> Self {
        Self { rest: header }
    }

    /// Returns the next field; `None` at the end of the bytes.
    pub(super) fn take(&mut self) -> Option<u32> {
        let (field, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u32::from_le_bytes(*field))
    }
}

/// Converts a number of a page, which is below 2^32 since the length of the page is.
pub(super) fn to_u32(number: usize) -> u32 {
    u32::try_from(number).expect("numbers of a page are below 2^32")
}
