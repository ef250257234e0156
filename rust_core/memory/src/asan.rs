//! Tells AddressSanitizer which bytes of a mapping nobody may touch: it only knows the heap by itself.
//!
//! Does nothing unless built with `--cfg asan`, as scripts/sanitize.sh does.

use std::ptr::NonNull;

/// Reports every access to these bytes from now on.
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

#[cfg(all(test, asan))]
mod tests {
    use std::process::Command;

    use crate::GlobalPool;

    fn read_through_a_stale_pointer(shared: bool) {
        let global = GlobalPool::new(1, 4096);
        if shared {
            global.share();
        }
        let pool = global.create_local_pool(1, 1).expect("fits");
        let mut segment = pool.try_request().expect("open").expect("free");
        let start = segment.start();
        drop(segment);
        // SAFETY: breaks M2 on purpose. The region is still mapped, so only the sanitizer objects.
        let byte = unsafe { start.as_ptr().read_volatile() };
        panic!("read {byte} from an idle segment, and nothing stopped it");
    }

    #[test]
    #[ignore = "aborts; the test below runs it in a process of its own"]
    fn stale_private() {
        read_through_a_stale_pointer(false);
    }

    #[test]
    #[ignore = "aborts; the test below runs it in a process of its own"]
    fn stale_shared() {
        read_through_a_stale_pointer(true);
    }

    #[test]
    fn a_read_of_an_idle_segment_is_reported() {
        for test in ["asan::tests::stale_private", "asan::tests::stale_shared"] {
            let program = std::env::current_exe().expect("Linux tells");
            let run = Command::new(program).args(["--ignored", "--exact", test]).output();
            let run = run.expect("the test program runs again");
            let report = String::from_utf8_lossy(&run.stderr);
            assert!(!run.status.success(), "{test} passed");
            assert!(report.contains("use-after-poison"), "{test}: {report}");
        }
    }
}
