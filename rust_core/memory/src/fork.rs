//! Copies for forked children of the shared memory that their parent's callers keep.
//!
//! A child has no mapping of shared memory: it would see what the parent or a peer writes there next.
//! In its place it gets a copy of what was kept at the fork, at the same addresses (F2).
//!
//! Decision: ADR 0019.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::ptr::without_provenance_mut;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use rustix::fs::ftruncate;
use rustix::io::{Errno, pwrite};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::page_size;

use crate::kept::KeptBytes;
use crate::lock::lock;
use crate::pool_inner::PoolInner;
use crate::region::memory_file;

/// The pools of this process and, in a forked child, those of its ancestors.
static POOLS: Mutex<Vec<Weak<PoolInner>>> = Mutex::new(Vec::new());

thread_local! {
    /// Present while this thread forks.
    static FORKING: RefCell<Option<Forking>> = const { RefCell::new(None) };
}

struct Forking {
    copies: Copies,
    /// Held during the fork, so that no other thread holds the lock then: the child could never take
    /// it.
    _pools: MutexGuard<'static, Vec<Weak<PoolInner>>>,
}

pub(crate) fn register(pool: &Arc<PoolInner>) {
    let mut pools = lock(&POOLS);
    pools.retain(|pool| pool.strong_count() > 0);
    pools.push(Arc::downgrade(pool));
}

/// Copies the shared memory that callers keep. The thread that forks calls this before the fork, and
/// afterwards [`after_fork_in_parent`] and [`after_fork_in_child`].
///
/// # Errors
/// The kernel has no memory or no descriptor for the copies. The fork may go on: a child that reads
/// such memory then ends by a signal.
pub fn before_fork() -> std::io::Result<()> {
    let forking = FORKING.take();
    // The guard of a fork that was never ended is released before the lock is taken again.
    drop(forking);
    let pools = lock(&POOLS);
    let mut copies = Copies::default();
    let mut of_this_process =
        pools.iter().filter_map(Weak::upgrade).filter(|pool| !pool.is_forked());
    let copied = of_this_process.try_for_each(|pool| {
        let state = pool.lock();
        // SAFETY: F2, the pool is locked.
        unsafe { copies.add(state.kept.iter().collect()) }
    });
    FORKING.set(Some(Forking { copies, _pools: pools }));
    Ok(copied?)
}

/// Frees the copies, which the child has now.
pub fn after_fork_in_parent() {
    FORKING.take();
}

/// Maps the copies where the memory was. Memory that could not be copied stays unmapped.
pub fn after_fork_in_child() {
    if let Some(forking) = FORKING.take() {
        forking.copies.map();
    }
}

/// Copies in a file in memory.
#[derive(Default)]
struct Copies {
    file: Option<OwnedFd>,
    /// Bytes of the file.
    len: u64,
    spans: Vec<Span>,
}

/// Whole pages of the kernel that hold kept bytes. What else is in them is not copied.
struct Span {
    /// Address of the first page.
    address: usize,
    len: usize,
    offset: u64,
}

impl Copies {
    /// Copies the bytes that one pool keeps. Those of two pools never share a page.
    ///
    /// # Safety
    /// The pool is locked (F2).
    unsafe fn add(&mut self, mut kept: Vec<KeptBytes>) -> rustix::io::Result<()> {
        kept.retain(|bytes| bytes.len() > 0);
        kept.sort_by_key(KeptBytes::address);
        let page = page_size();
        let mut rest = kept.as_slice();
        while let Some(first) = rest.first() {
            let from = first.address() / page * page;
            let mut to = from;
            let together = rest.iter().take_while(|bytes| {
                let joins = to == from || bytes.address() < to;
                if joins {
                    to = to.max((bytes.address() + bytes.len()).next_multiple_of(page));
                }
                joins
            });
            let count = together.count();
            let (together, behind) = rest.split_at(count);
            rest = behind;
            let file = match &mut self.file {
                Some(file) => file,
                none => none.insert(memory_file()?),
            };
            let (len, offset) = (to - from, self.len);
            ftruncate(&*file, offset + len as u64)?;
            for bytes in together {
                // SAFETY: F2, as the caller guarantees.
                let slice = unsafe { bytes.as_slice() };
                write(file, slice, offset + (bytes.address() - from) as u64)?;
            }
            self.spans.push(Span { address: from, len, offset });
            self.len = offset + len as u64;
        }
        Ok(())
    }

    /// Maps the copies in a forked child.
    fn map(self) {
        let Some(file) = self.file else {
            return;
        };
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        for Span { address, len, offset } in self.spans {
            let wanted = without_provenance_mut(address);
            // SAFETY: F2, nothing is mapped there, and the flag replaces nothing.
            let mapped = unsafe { mmap(wanted, len, ProtFlags::READ, flags, &file, offset) };
            if let Ok(other) = mapped
                && other != wanted
            {
                // Linux before 4.17 does not know the flag, and maps elsewhere if it must.
                // SAFETY: nobody has the address of the new mapping.
                let unmapped = unsafe { munmap(other, len) };
                debug_assert!(unmapped.is_ok(), "munmap of a whole mapping succeeds");
            }
        }
    }
}

fn write(file: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match pwrite(file, bytes, offset) {
            Ok(count) => {
                bytes = &bytes[count..];
                offset += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
