#![allow(clippy::unwrap_used, reason = "a panic in a test reports the failure")]
//! Builders, consumers and views: visibility of bytes, and the return of the segment.

use headgate_memory::{Buffer, BufferBuilder, BufferConsumer, GlobalPool};

fn builder(segment_size: usize) -> (GlobalPool, BufferBuilder) {
    let global = GlobalPool::new(4, segment_size);
    let pool = global.create_local_pool(1, usize::MAX).unwrap();
    let segment = pool.try_request().unwrap().unwrap();
    (global, BufferBuilder::new(segment))
}

#[test]
fn spec_2_02_append_finish_and_full() {
    let (_global, mut builder) = builder(40);
    for value in 0_u32..10 {
        assert_eq!(builder.append(&value.to_be_bytes()), 4);
    }
    assert!(builder.is_full());
    assert_eq!(builder.append(&[0; 4]), 0);
    assert_eq!(builder.finish(), 40);
}

#[test]
fn spec_2_04_a_consumer_is_finished_after_the_last_build() {
    let (_global, mut builder) = builder(40);
    let mut consumer = builder.consumer().unwrap();
    builder.append(&[0, 1]);
    assert!(consumer.build().is_empty(), "appended bytes are not committed");
    builder.commit();
    assert_eq!(consumer.build().as_slice(), [0, 1]);
    builder.append(&[2]);
    builder.commit();
    assert_eq!(consumer.build().as_slice(), [2]);
    assert!(!consumer.is_finished());
    builder.finish();
    assert!(!consumer.is_finished());
    assert!(consumer.build().is_empty());
    assert!(consumer.is_finished());
}

#[test]
fn spec_2_05_finish_twice_and_one_consumer() {
    let (_global, mut builder) = builder(8);
    builder.append(&[7]);
    assert_eq!((builder.finish(), builder.finish()), (1, 1));
    assert!(builder.consumer().is_some());
    assert!(builder.consumer().is_none());
}

#[test]
#[should_panic(expected = "append to a finished buffer")]
fn spec_2_05_append_after_finish() {
    let (_global, mut builder) = builder(8);
    builder.finish();
    builder.append(&[1]);
}

#[test]
fn spec_2_08_the_last_view_returns_the_segment() {
    let (global, mut builder) = builder(8);
    let mut consumer = builder.consumer().unwrap();
    builder.append(&[1, 2, 3]);
    builder.finish();
    let slice = consumer.build().slice(1, 3);
    drop(builder);
    drop(consumer);
    assert_eq!(global.stats().held, 1);
    assert_eq!(slice.as_slice(), [2, 3]);
    drop(slice);
    assert_eq!(global.stats().held, 0);
}

#[test]
fn a_copied_consumer_reads_on_its_own() {
    let (_global, mut builder) = builder(8);
    let mut first = builder.consumer().unwrap();
    builder.append(&[1]);
    builder.commit();
    first.build();
    let mut second = first.copy();
    builder.append(&[2]);
    builder.commit();
    assert_eq!(second.build().as_slice(), [2]);
    assert_eq!(first.build().as_slice(), [2]);
}

#[test]
fn spec_2_01_the_last_reference_recycles_once() {
    let global = GlobalPool::new(4, 64);
    let pool = global.create_local_pool(1, 4).unwrap();
    let buffer = Buffer::freeze(pool.try_request().unwrap().unwrap(), 16);
    let retained = buffer.clone();
    let slice = buffer.slice(4, 12).slice(1, 8);
    assert_eq!((slice.len(), buffer.len()), (7, 16));
    drop(buffer);
    drop(retained);
    assert_eq!(global.stats().held, 1, "a slice of a slice shares the count");
    // Use after the last drop does not compile: each view holds a reference.
    drop(slice);
    assert_eq!((global.stats().held, global.stats().idle), (0, 1));
}

#[test]
fn spec_2_07_trimming_loses_nothing() {
    let (_global, mut builder) = builder(32);
    builder.append(&[7; 12]);
    builder.trim(8);
    assert_eq!((builder.capacity(), builder.writable(), builder.is_full()), (12, 0, true));
    assert_eq!(builder.append(&[1]), 0);
    builder.trim(100);
    assert_eq!((builder.capacity(), builder.writable()), (32, 20));
    builder.trim(16);
    assert_eq!(builder.append(&[8; 12]), 4);
    assert!(builder.is_full());
    let mut consumer = builder.consumer().unwrap();
    assert_eq!(builder.finish(), 16);
    assert_eq!(consumer.build().as_slice(), [&[7; 12][..], &[8; 4]].concat());
}

#[test]
fn a_consumer_skips_committed_bytes() {
    let (_global, mut builder) = builder(8);
    let mut consumer = builder.consumer().unwrap();
    builder.append(&[1, 2, 3]);
    assert_eq!(consumer.written_bytes(), 0, "appended bytes are not committed");
    builder.commit();
    consumer.skip(2);
    assert_eq!(consumer.build().as_slice(), [3]);
    assert_eq!(consumer.written_bytes(), 3, "skipped and built bytes count");
    assert!(!consumer.is_data_available());
    let mut again = consumer.copy_at(1);
    assert_eq!(again.build().as_slice(), [2, 3]);
    assert!(consumer.copy_at(3).build().is_empty());
}

#[test]
#[should_panic(expected = "skip of 2 bytes, only 1")]
fn skipping_uncommitted_bytes_panics() {
    let (_global, mut builder) = builder(8);
    builder.append(&[1]);
    builder.commit();
    builder.consumer().unwrap().skip(2);
}

#[test]
#[should_panic(expected = "position 2 is beyond 1")]
fn a_copy_beyond_the_committed_bytes_panics() {
    let (_global, mut builder) = builder(8);
    builder.append(&[1]);
    builder.commit();
    let _ = builder.consumer().unwrap().copy_at(2);
}

#[test]
fn a_static_buffer_is_finished_from_the_start() {
    let (global, mut builder) = builder(8);
    builder.append(&[1, 2, 3]);
    let mut growing = builder.consumer().unwrap();
    builder.finish();
    let of_segment = growing.build().slice(1, 3);
    drop((builder, growing));
    let of_heap = Buffer::from(bytes::Bytes::from_static(&[2, 3]));
    for buffer in [of_segment, of_heap] {
        let mut consumer = BufferConsumer::of_static(buffer);
        assert!(consumer.is_finished() && consumer.is_complete() && consumer.is_data_available());
        assert_eq!(consumer.written_bytes(), 2);
        let mut second = consumer.copy();
        consumer.skip(1);
        assert_eq!(consumer.build().as_slice(), [3]);
        assert!(consumer.build().is_empty());
        assert_eq!(second.build().as_slice(), [2, 3]);
    }
    assert_eq!(global.stats().held, 0);
}

#[test]
fn spec_section_2_2_a_compressed_buffer_knows_its_length_before_compression() {
    let buffer = compressed();
    assert!(buffer.is_compressed());
    assert_eq!((buffer.len(), buffer.plain_len()), (3, 30));
    let whole = buffer.slice(0, 3);
    assert_eq!((whole.is_compressed(), whole.plain_len()), (true, 30));
    drop(whole);
    let (segment, len) = buffer.into_segment().unwrap();
    assert_eq!(&segment[..len], [1, 2, 3]);
    let plain = Buffer::freeze(segment, len);
    assert_eq!((plain.is_compressed(), plain.plain_len()), (false, 3));
}

#[test]
#[should_panic(expected = "cannot be sliced")]
fn spec_section_2_2_a_compressed_buffer_cannot_be_sliced() {
    let _ = compressed().slice(0, 2);
}

fn compressed() -> Buffer {
    let global = GlobalPool::new(4, 40);
    let pool = global.create_local_pool(1, usize::MAX).unwrap();
    let mut segment = pool.try_request().unwrap().unwrap();
    segment[..3].copy_from_slice(&[1, 2, 3]);
    Buffer::freeze_compressed(segment, 3, 30)
}

#[test]
fn only_the_last_reference_makes_a_segment_writable() {
    let (global, mut builder) = builder(40);
    let consumer = builder.consumer().unwrap();
    builder.append(&[1, 2]);
    builder.commit();
    let consumer = consumer.into_segment().unwrap_err();
    builder.append(&[3]);
    drop(builder);
    let mut other = consumer.copy();
    let consumer = consumer.into_segment().unwrap_err();
    let built = other.build();
    drop(other);
    let consumer = consumer.into_segment().unwrap_err();
    assert!(consumer.is_unread());
    drop(built);
    let (segment, len) = consumer.into_segment().unwrap();
    assert_eq!(&segment[..len], [1, 2, 3]);
    let buffer = Buffer::freeze(segment, len);
    let later = buffer.slice(1, 3);
    let buffer = buffer.into_segment().unwrap_err();
    drop(buffer);
    let later = later.into_segment().unwrap_err();
    assert_eq!(later.as_slice(), [2, 3]);
    assert_eq!(global.stats().held, 1);
    drop(later);
    assert_eq!(global.stats().held, 0);
    assert!(Buffer::from(bytes::Bytes::from_static(&[1])).into_segment().is_err());
}
