//! Which process this is, without asking the kernel each time: for a small buffer that takes as long as
//! all the rest.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The number of this process, in a page that the kernel empties in each forked child.
static KNOWN: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
/// Stands for that page where the kernel has none; always 0.
static ASK: AtomicU32 = AtomicU32::new(0);

/// The number of this process; in a forked child, of the child.
#[must_use]
pub fn process_id() -> u32 {
    let known = known();
    match known.load(Ordering::Relaxed) {
        0 => {
            let id = std::process::id();
            if !std::ptr::eq(known, &raw const ASK) {
                known.store(id, Ordering::Relaxed);
            }
            id
        }
        id => id,
    }
}

fn known() -> &'static AtomicU32 {
    // SAFETY: null, a static, or a page that stays mapped and holds only this number (M6).
    if let Some(known) = unsafe { KNOWN.load(Ordering::Acquire).as_ref() } {
        return known;
    }
    // Two threads may both come here, and map one page more than it takes: no lock, which a fork in
    // this moment would leave locked for good.
    let page = map().unwrap_or(&raw const ASK);
    KNOWN.store(page.cast_mut(), Ordering::Release);
    // SAFETY: as above.
    unsafe { &*page }
}

fn map() -> Option<*const AtomicU32> {
    let len = size_of::<AtomicU32>();
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice aliases nothing.
    let page = unsafe {
        mmap_anonymous(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    }
    .ok()?;
    // SAFETY: nothing has been written to this page yet, and what a child loses is known again at once.
    if unsafe { madvise(page, len, Advice::LinuxWipeOnFork) }.is_err() {
        // SAFETY: the mapping made above, which nobody knows of.
        let unmapped = unsafe { munmap(page, len) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours can always be unmapped");
        return None;
    }
    Some(page.cast_const().cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_are_told_the_same_from_the_first_call_on() {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert_eq!(process_id(), std::process::id()));
            }
        });
        assert_eq!(known().load(Ordering::Relaxed), std::process::id(), "it is not asked again");
    }
}
