//! Ordinary memory in which pages can be read in place.

/// A buffer with the alignment of a segment.
pub(crate) struct Aligned(pub(crate) arrow_buffer::Buffer);

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
