//! Descriptors of shared memory, and buffers that a peer of this host lends in it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use headgate_memory::{Buffer, GlobalPool, LocalPool, PeerRegion, PeerRegionError};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::pwrite;
use rustix::pipe::pipe;

use crate::input::take;

const SEGMENT: usize = 4096;
const SEGMENTS: usize = 8;
/// Seals without which a region may shrink, grow or be written through a new mapping.
const SEALS: [SealFlags; 4] =
    [SealFlags::SEAL, SealFlags::SHRINK, SealFlags::GROW, SealFlags::FUTURE_WRITE];
/// Largest file; with every size above, a region has none, one or several pages.
const MOST: u64 = 3 * 4096;

/// Counts the loans that ended.
struct Loan(Arc<AtomicUsize>);

impl Drop for Loan {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Checks that a region is taken only if its descriptor is what a peer may send, that a borrowed buffer
/// has the bytes of its place and never others, and that each loan ends once.
///
/// The bytes: a step each, of 16 bytes: number of the step, seals, size of the file (4), announced size or
/// offset (8, of which the upper bits are rare), length (2).
#[expect(clippy::missing_panics_doc, reason = "a finding is a panic")]
pub fn regions(data: &[u8]) {
    let global = GlobalPool::new(SEGMENTS, SEGMENT);
    let pool = global.create_local_pool(1, SEGMENTS).expect("the pool has so many");
    let ended = Arc::new(AtomicUsize::new(0));
    let (mut regions, mut borrowed, mut lent) = (Vec::new(), Vec::new(), 0);
    for step in data.chunks(16).take(64) {
        let ([kind, choice, s0, s1, a0, a1, a2, high, l0, l1], _) = take(step);
        let size = u64::from(u16::from_le_bytes([s0, s1])) % (MOST + 1);
        // Most numbers are near the sizes that occur; some are near the end of what fits a field.
        let number = u64::from(u32::from_le_bytes([a0, a1, a2, 0])) % (2 * MOST);
        let number = if high > 250 { u64::MAX - number } else { number };
        let len = usize::from(u16::from_le_bytes([l0, l1])) % (2 * SEGMENT);
        match kind % 4 {
            0 => regions.extend(open(choice, size, if high % 2 == 0 { size } else { number })),
            1 | 2 if !regions.is_empty() => {
                let (region, size) = &regions[usize::from(choice) % regions.len()];
                let Some(segment) = pool.try_request().expect("the pool is open") else { continue };
                let loan = Box::new(Loan(Arc::clone(&ended)));
                lent += 1;
                let taken = Buffer::borrow(region, number, len, segment, loan);
                let inside = number.checked_add(len as u64).is_some_and(|end| end <= *size);
                assert_eq!(taken.is_ok(), inside && len <= SEGMENT, "{number} {len} of {size}");
                if let Ok(buffer) = taken {
                    check(&buffer, number, len);
                    borrowed.push((buffer, number, len));
                }
            }
            3 if !borrowed.is_empty() => {
                let (buffer, at, len) = borrowed.swap_remove(usize::from(choice) % borrowed.len());
                // The region may be gone by now, and the bytes may not.
                check(&buffer, at, len);
            }
            _ => regions.truncate(usize::from(choice)),
        }
    }
    drop(regions);
    for (buffer, at, len) in borrowed {
        check(&buffer, at, len);
    }
    assert_eq!(ended.load(Ordering::Relaxed), lent, "each loan ends once");
    assert_eq!(held(&global, pool), 0);
}

/// Opens a region; returns it with its size.
fn open(choice: u8, size: u64, announced: u64) -> Option<(Arc<PeerRegion>, u64)> {
    let seals = SEALS.iter().enumerate().filter(|(at, _)| choice & (1 << at) == 0);
    let seals = seals.fold(SealFlags::empty(), |all, (_, one)| all | *one);
    let is_memory = choice & 0x30 != 0x30;
    let file = if is_memory { memory(size, seals) } else { pipe().expect("descriptors").0 };
    let open = if choice & 0x40 == 0 { PeerRegion::open } else { PeerRegion::open_unmapped };
    let wanted = SEALS.into_iter().fold(SealFlags::empty(), |all, one| all | one);
    match open(file, announced) {
        Ok(region) => {
            assert!(is_memory && seals == wanted && size == announced, "a lie was believed");
            Some((Arc::new(region), size))
        }
        Err(PeerRegionError::NotInMemory) => {
            assert!(!is_memory);
            None
        }
        Err(PeerRegionError::NotSealed { .. }) => {
            assert_ne!(seals, wanted);
            None
        }
        Err(PeerRegionError::WrongSize { got, announced: said }) => {
            assert_eq!((got, said), (size, announced));
            None
        }
    }
}

/// Makes memory in which each byte tells its position.
fn memory(size: u64, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("fuzz", MemfdFlags::ALLOW_SEALING).expect("a descriptor");
    ftruncate(&file, size).expect("a few pages");
    let bytes: Vec<u8> = (0..size).map(byte_at).collect();
    assert_eq!(pwrite(file.as_fd(), &bytes, 0).expect("fits"), bytes.len());
    fcntl_add_seals(&file, seals).expect("not sealed before");
    file
}

fn byte_at(position: u64) -> u8 {
    (position % 251) as u8
}

fn check(buffer: &Buffer, at: u64, len: usize) {
    assert_eq!(buffer.len(), len);
    for (byte, position) in buffer.as_slice().iter().zip(at..) {
        assert_eq!(*byte, byte_at(position), "byte {position}");
    }
}

fn held(global: &GlobalPool, pool: LocalPool) -> usize {
    drop(pool);
    let stats = global.stats();
    stats.held + stats.pinned
}
