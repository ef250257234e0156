//! One fixed-size block of memory with one owner.

use std::ptr::{NonNull, null_mut};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Segments start on a multiple of this, so that 64-byte aligned page bodies are aligned in memory.
pub const SEGMENT_ALIGNMENT: usize = 64;

/// An anonymous mapping of `len` usable bytes.
///
/// The kernel commits its pages on first touch and hands them out zeroed, so a segment costs
/// nothing before it is used and every byte of it is initialised from the start (invariant M1).
#[derive(Debug)]
pub(crate) struct Segment {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: M2, a segment has one owner; moving that owner to another thread moves all access.
unsafe impl Send for Segment {}

impl Segment {
    pub(crate) fn map(len: usize) -> rustix::io::Result<Self> {
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe {
            mmap_anonymous(
                null_mut(),
                len.max(1),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let start = NonNull::new(start.cast::<u8>()).expect("mmap never returns null on success");
        Ok(Self { start, len })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: M1, `len` initialised bytes; M2, `&self` on the only owner means no writer.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: M1, `len` initialised bytes; M2, `&mut self` on the only owner is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: M2, the only owner goes away; the range is the one `map` got.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len.max(1)) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours can always be unmapped");
    }
}
