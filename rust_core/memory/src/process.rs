//! The id of this process, cached in memory that a fork resets.

use std::ffi::c_void;
use std::ptr::{self, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Address of the cached id; null before the first call. The cache is 0 until the id is known, and
/// the kernel zeroes it in every forked child.
static CACHE: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
/// Replaces the cache if the kernel does not support `MADV_WIPEONFORK`; always 0.
static NO_CACHE: AtomicU32 = AtomicU32::new(0);
const LEN: usize = size_of::<AtomicU32>();

/// Returns the id of this process, as [`std::process::id`] does, but usually without a system call.
pub fn process_id() -> u32 {
    // SAFETY: F1, the address is null or valid forever.
    let cache = unsafe { CACHE.load(Ordering::Acquire).as_ref() }.unwrap_or_else(|| map());
    // A nonzero id was stored by this process, since a fork zeroes the cache.
    match cache.load(Ordering::Relaxed) {
        0 => fill(cache),
        id => id,
    }
}

#[cold]
fn fill(cache: &AtomicU32) -> u32 {
    let id = std::process::id();
    if !ptr::eq(cache, &NO_CACHE) {
        cache.store(id, Ordering::Relaxed);
    }
    id
}

/// Maps the cache. The first thread that publishes its mapping wins; a lock could be held during a
/// fork, and stay locked in the child.
#[cold]
fn map() -> &'static AtomicU32 {
    let page = wiped_on_fork().ok();
    let ours = page.map_or_else(|| (&raw const NO_CACHE).cast_mut(), <*mut c_void>::cast);
    let published =
        CACHE.compare_exchange(null_mut(), ours, Ordering::AcqRel, Ordering::Acquire).is_ok();
    if let Some(page) = page.filter(|_| !published) {
        unmap(page);
    }
    // SAFETY: F1, the address is valid forever; the exchange above made it non-null.
    unsafe { &*CACHE.load(Ordering::Acquire) }
}

fn wiped_on_fork() -> rustix::io::Result<*mut c_void> {
    let flags = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: F1, a new mapping at an address that the kernel chooses.
    let page = unsafe { mmap_anonymous(null_mut(), LEN, flags, MapFlags::PRIVATE)? };
    // SAFETY: F1, the range is the new mapping; the advice only affects forked children.
    unsafe { madvise(page, LEN, Advice::LinuxWipeOnFork) }.inspect_err(|_| unmap(page))?;
    Ok(page)
}

/// Unmaps a page whose address was not published.
fn unmap(page: *mut c_void) {
    // SAFETY: F1, `mmap` returned the range, and nobody else has its address.
    let unmapped = unsafe { munmap(page, LEN) };
    debug_assert!(unmapped.is_ok(), "munmap of a whole mapping succeeds");
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_thread_gets_the_same_id() {
        let call = || (0..1000).map(|_| process_id()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(call)).collect();
        for thread in threads {
            let ids = thread.join().expect("process_id does not panic");
            assert!(ids.iter().all(|id| *id == std::process::id()));
        }
    }

    #[test]
    fn a_fork_zeroes_the_cached_id() {
        process_id();
        let address = CACHE.load(Ordering::Acquire).expose_provenance();
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux has smaps");
        let ours = maps.split("VmFlags:").collect::<Vec<_>>();
        let flags = ours.windows(2).find(|pair| pair[0].contains(&format!("\n{address:x}-")));
        let flags = flags.expect("a mapping of its own")[1].lines().next().unwrap_or_default();
        assert!(flags.split_whitespace().any(|flag| flag == "wf"), "{flags}");
        assert!(flags.split_whitespace().any(|flag| flag == "wr"), "{flags}");
    }
}
