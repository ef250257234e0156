//! The checks of spec 4 on one subpartition, without any channel.

use std::sync::atomic::{AtomicUsize, Ordering};

use headgate_memory::{BufferBuilder, GlobalPool, LocalPool};
use headgate_protocol::DataType::{
    AlignedCheckpointBarrier as BARRIER, EventBuffer as EVENT, PrioritizedEventBuffer as PRIORITY,
};

use super::*;

#[derive(Default)]
struct Told(AtomicUsize);

impl DataListener for Told {
    fn data_available(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A subpartition with a reader, and a pool whose segments must come home.
struct Fixture {
    subpartition: Subpartition,
    told: Arc<Told>,
    local: LocalPool,
    pool: GlobalPool,
}

impl Fixture {
    fn new() -> Self {
        let pool = GlobalPool::new(8, 4096);
        let local = pool.create_local_pool(0, 8).expect("nothing is promised");
        let (subpartition, told) = (Subpartition::default(), Arc::new(Told::default()));
        subpartition.attach(Arc::<Told>::clone(&told)).expect("the first reader");
        Self { subpartition, told, local, pool }
    }

    fn told(&self) -> usize {
        self.told.0.load(Ordering::Relaxed)
    }

    /// Adds a buffer of so many bytes that is still written to.
    fn add_open(&self, bytes: usize) -> BufferBuilder {
        let segment = self.local.try_request().expect("the pool is open").expect("eight are free");
        let mut builder = BufferBuilder::new(segment);
        builder.append(&vec![7; bytes]);
        builder.commit();
        self.subpartition.add_growing(builder.consumer().expect("a new builder has it"));
        builder
    }

    fn add_finished(&self, bytes: usize) {
        let segment = self.local.try_request().expect("the pool is open").expect("eight are free");
        let mut builder = BufferBuilder::new(segment);
        builder.append(&vec![7; bytes]);
        builder.finish();
        self.subpartition.add_growing(builder.consumer().expect("a new builder has it"));
    }

    fn add_event(&self, data_type: DataType) {
        self.subpartition.add_event(Bytes::from_static(b"event"), data_type);
    }

    /// Size, backlog behind it and whether more is there at once.
    fn poll(&self) -> Option<(usize, u32, bool)> {
        let polled = self.subpartition.poll().expect("it does not fail")?;
        Some((polled.buffer.len(), polled.backlog, polled.next != Next::None))
    }

    fn types(&self) -> Vec<(DataType, u32)> {
        let next = || self.subpartition.poll().expect("it does not fail");
        std::iter::from_fn(next).map(|it| (it.data_type, it.sequence.0)).collect()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.subpartition.release();
        if !std::thread::panicking() {
            assert_eq!(self.pool.stats().held, 0, "every segment is home");
        }
    }
}

#[test]
fn spec_4_01_the_last_unfinished_buffer_is_not_promised() {
    let it = Fixture::new();
    it.add_finished(1025);
    let open = it.add_open(1024);
    assert_eq!(it.subpartition.backlog(), 1);
    assert_eq!(it.poll(), Some((1025, 0, false)));
    assert_eq!(it.poll(), Some((1024, 0, false)));
    assert_eq!(it.poll(), None);
    drop(open);
}

#[test]
fn spec_4_01_a_flush_promises_it() {
    let it = Fixture::new();
    it.add_finished(1025);
    let open = it.add_open(1024);
    let told = it.told();
    it.subpartition.flush();
    assert_eq!((it.subpartition.backlog(), it.told()), (2, told));
    assert_eq!(it.poll(), Some((1025, 1, true)));
    assert_eq!(it.poll().map(|polled| polled.0), Some(1024));
    drop(open);
}

#[test]
fn spec_4_02_a_flush_tells_once_and_only_of_bytes() {
    let it = Fixture::new();
    it.subpartition.flush();
    assert_eq!(it.told(), 0);
    it.add_finished(10);
    let open = it.add_open(10);
    assert_eq!(it.poll(), Some((10, 0, false)));
    let told = it.told();
    it.subpartition.flush();
    assert_eq!(it.told(), told + 1);
    it.subpartition.flush();
    assert_eq!(it.told(), told + 1);
    drop(open);
}

#[test]
fn spec_4_04_an_empty_unfinished_buffer_is_nothing() {
    let it = Fixture::new();
    let first = it.add_open(0);
    assert_eq!((it.told(), it.poll()), (0, None));
    drop(first);
    let second = it.add_open(0);
    assert_eq!((it.told(), it.poll()), (1, None));
    assert_eq!(it.subpartition.backlog(), 0);
    drop(second);
}

#[test]
fn spec_4_05_empty_finished_buffers_are_skipped() {
    let it = Fixture::new();
    for _ in 0..3 {
        it.add_finished(0);
    }
    it.add_finished(1024);
    assert_eq!(it.told(), 1);
    assert_eq!(it.poll(), Some((1024, 0, false)));
    assert_eq!(it.poll(), None);
}

#[test]
fn spec_4_05_a_reader_without_segments_of_its_own_gets_empty_buffers_too() {
    let it = Fixture::new();
    it.subpartition.give_empty_buffers();
    it.add_finished(0);
    let open = it.add_open(0);
    assert_eq!(it.poll(), Some((0, 0, false)));
    assert_eq!(it.poll(), None, "an unfinished one is still nothing");
    drop(open);
}

#[test]
fn spec_4_07_the_backlog_is_what_can_be_polled() {
    let it = Fixture::new();
    for _ in 0..4 {
        it.add_finished(9);
    }
    let open = it.add_open(9);
    assert_eq!(it.subpartition.backlog(), 4);
    it.subpartition.flush();
    assert_eq!(it.subpartition.backlog(), 5);
    drop(open);
    it.subpartition.finish();
    assert_eq!(it.subpartition.backlog(), 5, "the end is no data");
    let polled = std::iter::from_fn(|| it.poll()).count();
    assert_eq!(polled, 6);
}

#[test]
fn spec_4_08_a_polled_barrier_stops_everything() {
    let it = Fixture::new();
    it.add_event(BARRIER);
    assert_eq!(it.types(), [(BARRIER, 0)]);
    let told = it.told();
    it.add_event(EVENT);
    it.add_event(PRIORITY);
    it.add_finished(5);
    it.subpartition.flush();
    assert_eq!((it.told(), it.poll()), (told, None));
    assert_eq!(it.subpartition.backlog(), 0);
    assert_eq!(it.subpartition.availability(), Next::None);
    it.subpartition.resume().expect("it is blocked");
    assert_eq!(it.told(), told, "whoever resumes looks again");
    assert_eq!(it.subpartition.availability(), Next::Event);
    assert_eq!(it.subpartition.backlog(), 1);
    let types: Vec<_> = it.types().iter().map(|(data_type, _)| *data_type).collect();
    assert_eq!(types, [PRIORITY, EVENT, DataType::DataBuffer]);
    assert!(it.subpartition.resume().is_err(), "it was resumed");
}

#[test]
fn spec_4_08_what_a_resume_finds() {
    let blocked = || {
        let it = Fixture::new();
        it.add_event(BARRIER);
        it.poll();
        it
    };
    let resumed = |it: &Fixture| {
        it.subpartition.resume().expect("it is blocked");
        it.subpartition.availability()
    };
    let it = blocked();
    assert_eq!(resumed(&it), Next::None, "it is empty");
    let it = blocked();
    let open = it.add_open(1);
    assert_eq!(resumed(&it), Next::None, "one buffer that is not flushed");
    drop(open);
    let it = blocked();
    let open = it.add_open(1);
    it.subpartition.flush();
    assert_eq!(resumed(&it), Next::Data, "one buffer that is flushed");
    drop(open);
    let it = blocked();
    it.add_finished(1);
    let open = it.add_open(1);
    assert_eq!(resumed(&it), Next::Data, "two buffers");
    drop(open);
    let it = blocked();
    assert_eq!(resumed(&it), Next::None);
    let told = it.told();
    it.add_finished(1);
    assert_eq!(it.told(), told + 1, "what comes after the resume is told");
}

#[test]
fn spec_4_08_the_end_and_a_failure_pass_a_barrier() {
    let it = Fixture::new();
    it.add_event(BARRIER);
    it.poll();
    let told = it.told();
    it.subpartition.fail(&ExchangeError::Aborted("why".to_owned()));
    assert_eq!(it.told(), told + 1);
    assert!(it.subpartition.poll().is_err());
}

#[test]
fn spec_4_10_what_is_added_after_the_end_goes_home() {
    let it = Fixture::new();
    it.subpartition.finish();
    let told = it.told();
    it.add_finished(3);
    it.add_event(EVENT);
    assert_eq!((it.told(), it.pool.stats().held), (told, 0));
    assert_eq!(it.types().len(), 1);
    let it = Fixture::new();
    it.subpartition.release();
    let told = it.told();
    it.add_finished(3);
    assert_eq!((it.told(), it.pool.stats().held, it.poll()), (told, 0, None));
}

#[test]
fn spec_4_10_the_size_of_buffers_is_a_hint_for_new_ones() {
    let it = Fixture::new();
    assert_eq!(it.subpartition.buffer_size(), usize::MAX);
    it.subpartition.set_buffer_size(42);
    assert_eq!(it.subpartition.buffer_size(), 42);
}

#[test]
fn a_priority_event_is_told_to_a_reader_that_waits_for_credit() {
    let it = Fixture::new();
    it.add_finished(1);
    it.add_finished(1);
    let told = it.told();
    assert_eq!(it.subpartition.availability(), Next::Data);
    it.add_event(PRIORITY);
    assert_eq!(it.told(), told + 1);
    let expected = [(PRIORITY, 0), (DataType::DataBuffer, 1), (DataType::DataBuffer, 2)];
    assert_eq!(it.types(), expected, "numbered as they are polled");
}

#[test]
fn what_nobody_has_begun_to_read_is_taken_back() {
    let it = Fixture::new();
    assert!(it.subpartition.take_back().is_none());
    it.add_finished(3);
    let open = it.add_open(5);
    let taken = it.subpartition.take_back().expect("nobody read it");
    assert_eq!(it.subpartition.usage().0, 1);
    drop(open);
    let (segment, len) = taken.into_segment().expect("no other reference is left");
    assert_eq!(&segment[..len], [7; 5]);
    it.subpartition.add_data(Buffer::freeze(segment, len), DataType::DataBuffer, 0);
    assert_eq!([it.poll(), it.poll(), it.poll()], [Some((3, 1, true)), Some((5, 0, false)), None]);
    let open = it.add_open(5);
    it.subpartition.flush();
    assert_eq!(it.poll(), Some((5, 0, false)));
    assert!(it.subpartition.take_back().is_none(), "its first part is read");
    drop(open);
    it.add_event(EVENT);
    assert!(it.subpartition.take_back().is_none());
}
