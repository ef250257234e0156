//! Blocks in memory and in files, what counts, and what the kernel knows of files.

use allocator_api2::vec::Vec;

use super::*;

#[test]
fn blocks_beyond_the_limit_are_files_until_they_are_given_back() {
    let memory = StateMemory::limited(3 * LARGE, vec![]);
    let first = memory.copied(&[1; 2 * LARGE]).unwrap();
    let second = memory.clone().copied(&[2; 2 * LARGE]).unwrap();
    assert_eq!(memory.usage(), Usage { in_memory: 2 * LARGE, in_files: 2 * LARGE });
    let third = memory.copied(&[3; LARGE]).unwrap();
    assert_eq!(memory.usage(), Usage { in_memory: 3 * LARGE, in_files: 2 * LARGE });
    assert!(first.iter().all(|&byte| byte == 1) && second.iter().all(|&byte| byte == 2));
    drop((first, second));
    assert_eq!(memory.usage(), Usage { in_memory: LARGE, in_files: 0 });
    assert!(third.iter().all(|&byte| byte == 3));
    drop(third);
    assert_eq!(memory.usage(), Usage::default());
}

/// The kernel's flags of the mapping that begins at an address.
fn flags(start: usize) -> String {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&format!("{start:x}-")));
    lines.find(|line| line.starts_with("VmFlags:")).unwrap().to_owned()
}

#[test]
fn files_are_read_page_by_page_but_from_one_end_to_the_other() {
    let memory = StateMemory::limited(0, vec![]);
    let mut numbers: Vec<u64, _> = Vec::new_in(memory.clone());
    numbers.resize(LARGE, 7);
    let start = numbers.as_ptr().addr();
    assert!(flags(start).contains(" rr"));
    let ahead = memory.read_ahead(&numbers);
    assert!(flags(start).contains(" sr"));
    drop(ahead);
    assert!(flags(start).contains(" rr"));
    numbers.resize(4 * LARGE, 8);
    assert!(flags(numbers.as_ptr().addr()).contains(" rr"));
    memory.want(&numbers, 3..2 * LARGE);
    memory.want(&numbers, 5..9 * LARGE);
    assert!(numbers[..LARGE].iter().all(|&number| number == 7));
    let own: std::vec::Vec<u8> = vec![0; LARGE];
    assert!(memory.read_ahead(&own).file.is_none());
}

#[test]
fn small_blocks_do_not_count() {
    let memory = StateMemory::limited(0, vec![]);
    let _small = memory.copied(&[0; LARGE - 1]).unwrap();
    let _empty = memory.copied(&[]).unwrap();
    assert_eq!(memory.usage(), Usage::default());
}

#[test]
fn vectors_grow_from_small_blocks_to_files_and_back() {
    let memory = StateMemory::limited(0, vec![]);
    let mut numbers = Vec::new_in(memory.clone());
    numbers.extend(0..100_000_u64);
    assert!(memory.usage().in_files >= 800_000);
    assert!(numbers.iter().copied().eq(0..100_000));
    numbers.truncate(10);
    numbers.shrink_to_fit();
    assert_eq!(memory.usage(), Usage::default());
    assert!(numbers.iter().copied().eq(0..10));
}

#[test]
fn reserved_bytes_count_unless_they_are_few() {
    let memory = StateMemory::limited(3 * LARGE, vec![]);
    assert!(memory.reserve(2 * LARGE));
    assert!(!memory.reserve(2 * LARGE));
    let held = memory.hold(LARGE);
    assert!(held.is_some() && memory.hold(LARGE).is_none() && memory.reserve(LARGE - 1));
    assert_eq!(memory.usage(), Usage { in_memory: 3 * LARGE, in_files: 2 * LARGE });
    memory.release(LARGE - 1, true);
    memory.release(2 * LARGE, true);
    memory.release(2 * LARGE, false);
    drop(held);
    assert_eq!(memory.usage(), Usage::default());
    assert!(StateMemory::default().reserve(usize::MAX));
}

#[test]
fn shares_have_one_limit_and_count_their_own() {
    let first = StateMemory::limited(2 * LARGE, vec![]);
    let second = first.share();
    let (of_first, of_second) = (first.copied(&[1; LARGE]), second.copied(&[2; 2 * LARGE]));
    assert_eq!(first.usage(), Usage { in_memory: LARGE, in_files: 0 });
    assert_eq!(second.usage(), Usage { in_memory: 0, in_files: 2 * LARGE });
    drop((of_first, of_second));
    assert_eq!((first.usage(), second.usage()), Default::default());
    let _held = first.hold(2 * LARGE).unwrap();
    assert!(second.hold(LARGE).is_none());
    assert_eq!(second.usage(), Usage::default());
}

#[test]
fn blocks_count_without_a_limit() {
    let memory = StateMemory::new(None, vec![]);
    let mut numbers = Vec::new_in(memory.clone());
    numbers.extend(0..100_000_u64);
    let used = memory.usage();
    assert!(used.in_memory >= 800_000 && used.in_files == 0, "{used:?}");
    assert!(numbers.iter().copied().eq(0..100_000));
    numbers.truncate(10);
    numbers.shrink_to_fit();
    assert_eq!(memory.usage(), Usage::default());
    assert!(memory.reserve(1 << 50));
}

#[test]
fn a_file_has_its_room() {
    let file = StateMemory::limited(0, vec![]).file(100_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 100_000);
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let memory = StateMemory::limited(0, vec!["/nowhere".into()]);
    let error = memory.copied(&[0; LARGE]).unwrap_err();
    assert!(error.to_string().contains("/nowhere"), "{error}");
    assert_eq!(memory.usage(), Usage::default());
}

#[test]
fn a_disk_without_room_is_an_error_and_no_signal() {
    let memory = StateMemory::limited(0, vec![]);
    let mut numbers = Vec::<u8, _>::new_in(memory.clone());
    assert!(numbers.try_reserve(1 << 50).is_err());
    let error = memory.failure();
    assert!(error.to_string().contains("bytes in"), "{error}");
    assert_eq!(memory.usage(), Usage::default());
}
