//! The identity of this process, cached in memory that a fork resets.

use std::ffi::c_void;
use std::ptr::{self, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// A process, distinct from each process that it descends from by forks.
///
/// An id alone does not tell them apart: in another PID namespace a child may get the id of its
/// parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    id: u32,
    /// Larger than that of any ancestor; 0 if the kernel does not say when a process was forked.
    generation: u32,
}

/// Address of the cached process; null before the first call. The cache is 0 until the process is
/// known, and the kernel zeroes it in every forked child.
static CACHE: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
/// Replaces the cache if the kernel does not support `MADV_WIPEONFORK`; always 0.
static NO_CACHE: AtomicU64 = AtomicU64::new(0);
/// The largest generation so far of this process and its ancestors. A forked child inherits it.
static GENERATIONS: AtomicU32 = AtomicU32::new(0);
const LEN: usize = size_of::<AtomicU64>();

impl Process {
    /// Returns this process, usually without a system call.
    pub fn current() -> Self {
        // SAFETY: F1, the address is null or valid forever.
        let cache = unsafe { CACHE.load(Ordering::Acquire).as_ref() }.unwrap_or_else(|| map());
        // A nonzero number was stored by this process, since a fork zeroes the cache.
        match cache.load(Ordering::Relaxed) {
            0 => fill(cache),
            cached => Self::unpack(cached),
        }
    }

    /// Returns its id, as [`std::process::id`] does.
    #[must_use]
    pub fn id(self) -> u32 {
        self.id
    }

    fn pack(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.id)
    }

    fn unpack(packed: u64) -> Self {
        let [high, low] = [packed >> 32, packed & u64::from(u32::MAX)];
        let part = |half| u32::try_from(half).expect("half of 64 bits");
        Self { id: part(low), generation: part(high) }
    }
}

#[cold]
fn fill(cache: &AtomicU64) -> Process {
    let id = std::process::id();
    if ptr::eq(cache, &NO_CACHE) {
        return Process { id, generation: 0 };
    }
    let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed) + 1;
    let this = Process { id, generation };
    // Another thread may have been first; all threads must get the same.
    let stored = cache.compare_exchange(0, this.pack(), Ordering::Relaxed, Ordering::Relaxed);
    stored.map_or_else(Process::unpack, |_| this)
}

/// Maps the cache. The first thread that publishes its mapping wins; a lock could be held during a
/// fork, and stay locked in the child.
#[cold]
fn map() -> &'static AtomicU64 {
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
    fn every_thread_gets_the_same_process() {
        let call = || (0..1000).map(|_| Process::current()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(call)).collect();
        for thread in threads {
            let all = thread.join().expect("it does not panic");
            assert!(all.iter().all(|it| *it == Process::current()));
            assert_eq!(all[0].id(), std::process::id());
        }
    }

    #[test]
    fn a_wiped_cache_is_another_process_of_the_same_id() {
        let cache = AtomicU64::new(0);
        let parent = fill(&cache);
        assert_eq!(
            (fill(&cache), Process::unpack(cache.load(Ordering::Relaxed))),
            (parent, parent)
        );
        // As the kernel does in a forked child.
        cache.store(0, Ordering::Relaxed);
        let child = fill(&cache);
        assert_eq!(child.id(), parent.id());
        assert_ne!(child, parent);
    }

    #[test]
    fn a_fork_zeroes_the_cache() {
        Process::current();
        let address = CACHE.load(Ordering::Acquire).expose_provenance();
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux has smaps");
        let ours = maps.split("VmFlags:").collect::<Vec<_>>();
        let flags = ours.windows(2).find(|pair| pair[0].contains(&format!("\n{address:x}-")));
        let flags = flags.expect("a mapping of its own")[1].lines().next().unwrap_or_default();
        assert!(flags.split_whitespace().any(|flag| flag == "wf"), "{flags}");
        assert!(flags.split_whitespace().any(|flag| flag == "wr"), "{flags}");
    }
}
