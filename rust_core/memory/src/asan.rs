//! Marks bytes of a mapping for AddressSanitizer, which tracks only the heap by itself.
//!
//! Does nothing unless built with `--cfg asan`, as scripts/sanitize.sh does.

use std::ptr::NonNull;

/// Makes the sanitizer report every access to these bytes.
pub(crate) fn poison(start: NonNull<u8>, len: usize) {
    #[cfg(asan)]
    // SAFETY: M2, the caller owns the range; only the sanitizer's notes about it change.
    unsafe {
        __asan_poison_memory_region(start.as_ptr(), len);
    }
    #[cfg(not(asan))]
    let _ = (start, len);
}

/// Allows access to these bytes again.
pub(crate) fn unpoison(start: NonNull<u8>, len: usize) {
    #[cfg(asan)]
    // SAFETY: M2, the caller owns the range; only the sanitizer's notes about it change.
    unsafe {
        __asan_unpoison_memory_region(start.as_ptr(), len);
    }
    #[cfg(not(asan))]
    let _ = (start, len);
}

#[cfg(asan)]
unsafe extern "C" {
    fn __asan_poison_memory_region(start: *const u8, len: usize);
    fn __asan_unpoison_memory_region(start: *const u8, len: usize);
}
