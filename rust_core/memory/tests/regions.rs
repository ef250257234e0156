//! Shared regions: segments that another process can map read-only.

#![allow(clippy::unwrap_used, reason = "a panic in a test reports the failure")]

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use headgate_memory::{
    Buffer, GlobalPool, LocalPool, PeerReadError, PeerRegion, PeerRegionError, PooledSegment,
    RegionFile,
};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

const SEGMENT: usize = 4096;

fn pool(segments: usize, shared: bool) -> (GlobalPool, LocalPool) {
    let global = GlobalPool::new(segments, SEGMENT);
    if shared {
        global.share();
    }
    let local = global.create_local_pool(1, segments).unwrap();
    (global, local)
}

fn segment(pool: &LocalPool) -> PooledSegment {
    pool.try_request().unwrap().unwrap()
}

fn filled(pool: &LocalPool, byte: u8) -> Buffer {
    let mut segment = segment(pool);
    segment.fill(byte);
    Buffer::freeze(segment, SEGMENT)
}

fn descriptor(file: &RegionFile) -> OwnedFd {
    file.as_fd().try_clone_to_owned().unwrap()
}

fn open(file: &RegionFile) -> Arc<PeerRegion> {
    Arc::new(PeerRegion::open(descriptor(file), file.size()).unwrap())
}

/// Counts the loans that ended.
struct Loan(Arc<AtomicUsize>);

impl Drop for Loan {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn loan(ended: &Arc<AtomicUsize>) -> Box<Loan> {
    Box::new(Loan(Arc::clone(ended)))
}

#[test]
fn lent_bytes_are_read_in_place_and_returned_once() {
    let (_owner, lender) = pool(8, true);
    let (reader, ours) = pool(4, false);
    let lent = filled(&lender, 7).slice(64, 1064);
    let (file, offset) = lent.place().unwrap();
    let region = open(&file);
    let ended = Arc::new(AtomicUsize::new(0));
    let borrowed =
        Buffer::borrow(&region, offset, lent.len(), segment(&ours), loan(&ended)).unwrap();
    drop(region);
    assert!(borrowed.is_borrowed() && !borrowed.is_pooled() && borrowed.place().is_none());
    assert_eq!((borrowed.as_slice(), borrowed.plain_len()), (lent.as_slice(), 1000));
    assert_eq!(reader.stats().held, 1, "a segment of the reader is charged");
    let part = borrowed.slice(10, 20);
    assert!(part.pin() && borrowed.pin());
    assert_eq!((reader.stats().held, reader.stats().pinned), (0, 1));
    let bytes = borrowed.clone().into_bytes();
    assert!(borrowed.into_segment().is_err(), "its own segment is empty");
    assert_eq!((part.as_slice(), bytes.len()), (&[7; 10][..], 1000));
    drop(part);
    assert_eq!(ended.load(Ordering::Relaxed), 0);
    drop(bytes);
    assert_eq!(ended.load(Ordering::Relaxed), 1);
    assert_eq!(reader.stats().pinned, 0);
}

#[test]
fn lent_bytes_outlive_their_pool() {
    let (owner, lender) = pool(8, true);
    let (_reader, ours) = pool(4, false);
    let lent = filled(&lender, 9);
    let (file, offset) = lent.place().unwrap();
    let region = open(&file);
    let ended = Arc::new(AtomicUsize::new(0));
    let borrowed = Buffer::borrow(&region, offset, SEGMENT, segment(&ours), loan(&ended)).unwrap();
    owner.close();
    drop((lent, file, lender, owner));
    assert_eq!(borrowed.as_slice(), [9; SEGMENT]);
}

#[test]
fn bytes_of_an_unmapped_region_are_copied() {
    let (_owner, lender) = pool(8, true);
    let (_reader, ours) = pool(4, false);
    let lent = filled(&lender, 5);
    let (file, offset) = lent.place().unwrap();
    let region = Arc::new(PeerRegion::open_unmapped(descriptor(&file), file.size()).unwrap());
    let ended = Arc::new(AtomicUsize::new(0));
    let copied = Buffer::borrow(&region, offset, 100, segment(&ours), loan(&ended)).unwrap();
    assert_eq!(ended.load(Ordering::Relaxed), 1, "the loan ends at once");
    assert!(copied.is_pooled() && !copied.is_borrowed());
    drop(lent);
    assert_eq!(copied.as_slice(), [5; 100]);
}

#[test]
fn a_private_pool_has_no_places() {
    let (global, local) = pool(4, false);
    let private = filled(&local, 1);
    assert!(private.place().is_none() && Buffer::from(bytes::Bytes::new()).place().is_none());
    // Segments mapped before stay private.
    global.share();
    assert!(private.place().is_none() && filled(&local, 2).place().is_some());
    drop(private);
    assert!(filled(&local, 3).place().is_none(), "the idle private segment is used first");
}

#[test]
fn segments_are_cut_side_by_side_and_regions_are_few() {
    let (global, local) = pool(3000, true);
    let all: Vec<Buffer> = (0..3000).map(|number| filled(&local, number as u8)).collect();
    assert_eq!((global.stats().held, global.stats().idle), (3000, 0));
    let mut places = Vec::new();
    for (number, buffer) in all.iter().enumerate() {
        assert_eq!(buffer.as_slice(), [number as u8; SEGMENT], "no other segment overlaps");
        let (file, offset) = buffer.place().unwrap();
        assert!(offset % 64 == 0 && offset + SEGMENT as u64 <= file.size());
        places.push((file.id(), offset));
    }
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 3000);
    assert_eq!(places.last().unwrap().0, 2, "three of 4 MiB");
    drop(all);
    assert_eq!(global.stats().idle, 3000);
}

/// A process with the descriptor can only read.
#[test]
fn a_region_can_neither_be_written_nor_resized_by_others() {
    let (_global, local) = pool(4, true);
    let buffer = filled(&local, 1);
    let (file, offset) = buffer.place().unwrap();
    assert!(ftruncate(&file, 0).is_err() && ftruncate(&file, file.size() * 2).is_err());
    assert!(fcntl_add_seals(&file, SealFlags::WRITE).is_err());
    let mut theirs = File::from(descriptor(&file));
    assert!(theirs.write(&[2]).is_err() && theirs.write_at(&[2], offset).is_err());
    assert_eq!(buffer.as_slice(), [1; SEGMENT]);
}

fn memory_file(size: u64, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("test", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, size).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

/// A file that could shrink under a reader is refused: the read would fault.
#[test]
fn a_memfd_with_a_missing_seal_or_another_size_is_refused() {
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    assert!(PeerRegion::open(memory_file(8192, all), 8192).is_ok());
    for missing in all {
        let refused = PeerRegion::open(memory_file(8192, all - missing), 8192).unwrap_err();
        assert!(matches!(refused, PeerRegionError::NotSealed { .. }), "{missing:?}: {refused}");
    }
    for announced in [0, 4096, 8191, 8193, u64::MAX] {
        let refused = PeerRegion::open(memory_file(8192, all), announced).unwrap_err();
        let PeerRegionError::WrongSize { got, announced: said } = refused else {
            panic!("{refused}");
        };
        assert_eq!((got, said), (8192, announced));
    }
    assert!(PeerRegion::open(memory_file(0, all), 0).is_err(), "nothing to map");
}

#[test]
fn a_descriptor_that_is_no_memfd_is_refused() {
    let (pipe, _writer) = rustix::pipe::pipe().unwrap();
    let null = File::open("/dev/null").unwrap().into();
    let ordinary = File::open("/proc/self/exe").unwrap().into();
    for other in [pipe, null, ordinary] {
        let refused = PeerRegion::open(other, 4096).unwrap_err();
        assert!(matches!(refused, PeerRegionError::NotInMemory), "{refused}");
    }
}

#[test]
fn a_borrow_outside_the_region_is_refused() {
    let (_owner, lender) = pool(8, true);
    let (reader, ours) = pool(4, false);
    let (file, _) = filled(&lender, 7).place().unwrap();
    let size = file.size();
    for region in
        [open(&file), Arc::new(PeerRegion::open_unmapped(descriptor(&file), size).unwrap())]
    {
        let ended = Arc::new(AtomicUsize::new(0));
        let outside = [
            (size, 1),
            (size - 1, 2),
            (u64::MAX, 1),
            (u64::MAX - 1, SEGMENT),
            (0, SEGMENT + 1),
            (0, usize::MAX),
        ];
        for (offset, len) in outside {
            let refused = Buffer::borrow(&region, offset, len, segment(&ours), loan(&ended));
            let Err(PeerReadError::Outside { offset: at, len: of, .. }) = refused else {
                panic!("{len} bytes from {offset} of {size}: {refused:?}");
            };
            assert_eq!((at, of), (offset, len));
        }
        assert_eq!(ended.load(Ordering::Relaxed), outside.len());
        assert!(Buffer::borrow(&region, size - 1, 1, segment(&ours), loan(&ended)).is_ok());
    }
    assert_eq!(reader.stats().held, 0);
}
