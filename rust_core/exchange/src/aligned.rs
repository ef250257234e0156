//! Ordinary memory that pages can be read from in place.

/// Memory with the alignment of a segment.
pub(crate) struct Aligned(pub(crate) arrow_buffer::Buffer);

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
