//! Which process this is, without asking the kernel each time.

use std::ptr::{self, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, madvise};

use crate::region::Region;

/// The number of the process, or 0, in memory that the kernel zeroes in every child, however it is
/// forked; null until somebody asks.
static KNOWN: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
/// In its place where the kernel has no such memory: always 0.
static UNKNOWN: AtomicU32 = AtomicU32::new(0);

/// The number of this process, as [`std::process::id`] says it with a system call.
pub fn process_id() -> u32 {
    // SAFETY: F1, null or for good.
    let known = unsafe { KNOWN.load(Ordering::Acquire).as_ref() }.unwrap_or_else(|| map());
    // What is stored is stored by the process that reads it: no thread comes along when it forks.
    match known.load(Ordering::Relaxed) {
        0 => ask(known),
        id => id,
    }
}

#[cold]
fn ask(known: &AtomicU32) -> u32 {
    let id = std::process::id();
    if !ptr::eq(known, &UNKNOWN) {
        known.store(id, Ordering::Relaxed);
    }
    id
}

/// The first thread that gets here decides. There is no lock that a child could find taken.
#[cold]
fn map() -> &'static AtomicU32 {
    let region = zeroed_by_fork().ok();
    let ours = match &region {
        Some(region) => region.at(0).as_ptr().cast(),
        None => (&raw const UNKNOWN).cast_mut(),
    };
    match KNOWN.compare_exchange(null_mut(), ours, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => std::mem::forget(region),
        Err(_) => drop(region),
    }
    // SAFETY: F1, and it is null no more.
    unsafe { &*KNOWN.load(Ordering::Acquire) }
}

fn zeroed_by_fork() -> rustix::io::Result<Region> {
    let len = size_of::<AtomicU32>();
    let region = Region::private(len)?;
    // SAFETY: the range is a fresh mapping, and this says what a child finds there.
    unsafe { madvise(region.at(0).as_ptr().cast(), len, Advice::LinuxWipeOnFork)? };
    Ok(region)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_thread_is_told_the_same() {
        let ask = || (0..1000).map(|_| process_id()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(ask)).collect();
        for thread in threads {
            let told = thread.join().expect("it only asks");
            assert!(told.iter().all(|id| *id == std::process::id()));
        }
    }

    #[test]
    fn a_fork_zeroes_the_cached_id() {
        process_id();
        let address = KNOWN.load(Ordering::Acquire).expose_provenance();
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux has it");
        let ours = maps.split("VmFlags:").collect::<Vec<_>>();
        let flags = ours.windows(2).find(|pair| pair[0].contains(&format!("\n{address:x}-")));
        let flags = flags.expect("a mapping of its own")[1].lines().next().unwrap_or_default();
        assert!(flags.split_whitespace().any(|flag| flag == "wf"), "{flags}");
        assert!(flags.split_whitespace().any(|flag| flag == "wr"), "{flags}");
    }
}
