//! The table of shared memory that a pool's callers keep.

use std::ptr::NonNull;

/// Bytes that the caller keeps. They are mapped and do not change while they are in a table (F2).
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeptBytes {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: F2, the bytes are only read, and a table changes only under the lock of its pool.
unsafe impl Send for KeptBytes {}

impl KeptBytes {
    pub(crate) fn address(&self) -> usize {
        self.start.addr().get()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes.
    ///
    /// # Safety
    /// They are in a table whose pool is locked (F2).
    pub(crate) unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: F2, as the caller guarantees.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

/// Kept bytes by their place; adding and removing takes constant time.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    bytes: Vec<Option<KeptBytes>>,
    /// Places that are free.
    free: Vec<usize>,
}

impl Kept {
    /// Adds bytes; returns their place.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> usize {
        let kept = KeptBytes { start: NonNull::from(bytes).cast(), len: bytes.len() };
        let place = self.free.pop().unwrap_or_else(|| {
            self.bytes.push(None);
            self.bytes.len() - 1
        });
        self.bytes[place] = Some(kept);
        place
    }

    /// Notes that more bytes from the same start are kept.
    pub(crate) fn extend(&mut self, place: usize, len: usize) {
        if let Some(kept) = &mut self.bytes[place] {
            kept.len = kept.len.max(len);
        }
    }

    pub(crate) fn remove(&mut self, place: usize) {
        if self.bytes[place].take().is_some() {
            self.free.push(place);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = KeptBytes> {
        self.bytes.iter().filter_map(|kept| *kept)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn lens(kept: &Kept) -> Vec<usize> {
        kept.iter().map(|bytes| bytes.len()).collect()
    }

    #[test]
    fn places_are_used_again_and_bytes_grow() {
        let bytes = [0; 10];
        let mut kept = Kept::default();
        let (first, second) = (kept.add(&bytes[..1]), kept.add(&bytes[..2]));
        kept.extend(second, 5);
        kept.extend(second, 3);
        assert_eq!(lens(&kept), [1, 5]);
        kept.remove(first);
        assert_eq!(lens(&kept), [5]);
        assert_eq!(kept.add(&bytes[..7]), first);
        assert_eq!(lens(&kept), [7, 5]);
    }
}
