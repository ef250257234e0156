//! The data of one channel that belongs to a checkpoint.

use std::collections::BTreeMap;

use headgate_protocol::{ChannelStatePersister, CheckpointId, InFlight, Overtaken, Sequence};
use proptest::prelude::*;

fn id(id: i64) -> CheckpointId {
    CheckpointId(id)
}

fn barrier(persister: &mut ChannelStatePersister, of: i64, sequence: u32) {
    persister.on_barrier(id(of), Sequence(sequence));
}

#[test]
fn spec_section_10_6_data_is_persisted_from_the_start_to_the_barrier() {
    let mut persister = ChannelStatePersister::default();
    assert_eq!(persister.persists(), None);
    assert_eq!(persister.start(id(1)), Ok(InFlight::All));
    assert_eq!((persister.persists(), persister.has_barrier_received()), (Some(id(1)), false));
    barrier(&mut persister, 1, 7);
    assert_eq!((persister.persists(), persister.has_barrier_received()), (None, true));
    persister.stop(id(1));
    assert_eq!((persister.persists(), persister.has_barrier_received()), (None, false));
}

#[test]
fn spec_section_10_6_a_start_behind_the_barrier_persists_what_is_queued_before_it() {
    let mut persister = ChannelStatePersister::default();
    barrier(&mut persister, 3, 7);
    let queued = persister.start(id(3)).unwrap();
    assert_eq!(queued, InFlight::Before(Sequence(7)));
    assert!(queued.contains(Sequence(6)) && !queued.contains(Sequence(7)));
    assert!(!queued.contains(Sequence(8)) && InFlight::All.contains(Sequence(8)));
    assert_eq!(persister.persists(), None);
    let wrapped = InFlight::Before(Sequence(1));
    assert!(wrapped.contains(Sequence(u32::MAX)) && !wrapped.contains(Sequence(2)));
}

#[test]
fn spec_section_10_6_a_checkpoint_whose_channel_saw_a_newer_barrier_is_refused() {
    let mut persister = ChannelStatePersister::default();
    barrier(&mut persister, 3, 7);
    let before = persister.clone();
    assert_eq!(persister.start(id(2)), Err(Overtaken { checkpoint: id(2), by: id(3) }));
    assert_eq!(persister, before);
    // The older barrier was not processed by the task: the newer checkpoint waits for its own.
    assert_eq!(persister.start(id(4)), Ok(InFlight::All));
    assert_eq!(persister.persists(), Some(id(4)));
}

#[test]
fn spec_section_10_6_lower_barriers_are_ignored() {
    let mut persister = ChannelStatePersister::default();
    persister.start(id(5)).unwrap();
    barrier(&mut persister, 4, 1);
    assert_eq!(persister.persists(), Some(id(5)));
    persister.stop(id(5));
    barrier(&mut persister, 5, 2);
    assert!(!persister.has_barrier_received(), "the checkpoint is complete");
    barrier(&mut persister, 6, 3);
    assert!(persister.has_barrier_received());
    assert_eq!(persister.start(id(6)), Ok(InFlight::Before(Sequence(3))));
}

#[test]
fn spec_section_10_6_a_newer_barrier_ends_what_is_persisted() {
    let mut persister = ChannelStatePersister::default();
    persister.start(id(5)).unwrap();
    barrier(&mut persister, 6, 2);
    assert_eq!(persister.persists(), None);
    barrier(&mut persister, 7, 9);
    assert_eq!(persister.start(id(7)), Ok(InFlight::Before(Sequence(9))));
}

#[test]
fn spec_section_10_6_a_stop_of_an_older_checkpoint_is_ignored() {
    let mut persister = ChannelStatePersister::default();
    persister.start(id(5)).unwrap();
    persister.stop(id(4));
    assert_eq!(persister.persists(), Some(id(5)));
    persister.stop(id(6));
    assert_eq!(persister.persists(), None);
    assert_eq!(
        persister.start(id(6)),
        Ok(InFlight::All),
        "what is queued is persisted all the same"
    );
    assert_eq!(persister.persists(), None, "but nothing that arrives");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Data,
    /// The barrier of a checkpoint this much newer than the channel's last one.
    Barrier(i64),
    Read,
    /// A start of a checkpoint this much newer than the last one that was started.
    Start(i64),
    Stop,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => Just(Step::Data),
        4 => (1i64..3).prop_map(Step::Barrier),
        5 => Just(Step::Read),
        3 => (1i64..3).prop_map(Step::Start),
        2 => Just(Step::Stop),
    ];
    prop::collection::vec(step, 0..60)
}

/// A channel from another process. All that arrived is kept in the order of arrival, which is that of
/// the producer.
#[derive(Debug, Default)]
struct Channel {
    persister: ChannelStatePersister,
    /// Checkpoint of each buffer that is a barrier.
    arrived: Vec<Option<i64>>,
    /// Numbers of data that the task has read.
    read: Vec<usize>,
    written: BTreeMap<i64, Vec<usize>>,
    /// Last started checkpoint, and whether it is stopped.
    started: i64,
    /// The expected state of each checkpoint: found without the persister.
    expected: BTreeMap<i64, Vec<usize>>,
    is_stopped: bool,
}

impl Channel {
    fn last_barrier(&self) -> i64 {
        self.arrived.iter().flatten().copied().max().unwrap_or(0)
    }

    /// Data that arrived before the first barrier of this checkpoint or a newer one.
    fn before_barrier(&self, checkpoint: i64) -> Vec<usize> {
        let ends = |buffer: &Option<i64>| buffer.is_some_and(|id| id >= checkpoint);
        let end = self.arrived.iter().position(ends).unwrap_or(self.arrived.len());
        (0..end).filter(|at| self.arrived[*at].is_none()).collect()
    }

    fn arrive(&mut self, buffer: Option<i64>) {
        let sequence = self.arrived.len();
        self.arrived.push(buffer);
        match buffer {
            Some(of) => self.persister.on_barrier(id(of), Sequence(sequence as u32)),
            None => {
                if let Some(checkpoint) = self.persister.persists() {
                    self.written.entry(checkpoint.0).or_default().push(sequence);
                }
                if self.started > 0
                    && !self.is_stopped
                    && self.before_barrier(self.started).contains(&sequence)
                {
                    self.expected.entry(self.started).or_default().push(sequence);
                }
            }
        }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Data => self.arrive(None),
            Step::Barrier(newer) => self.arrive(Some(self.last_barrier() + newer)),
            Step::Read => {
                let unread = |at: &usize| self.arrived[*at].is_none() && !self.read.contains(at);
                if let Some(at) = (0..self.arrived.len()).find(unread) {
                    self.read.push(at);
                }
            }
            Step::Start(newer) => {
                let checkpoint = self.started + newer;
                let newest = self.last_barrier();
                let queued: Vec<_> = (0..self.arrived.len())
                    .filter(|at| self.arrived[*at].is_none() && !self.read.contains(at))
                    .collect();
                match self.persister.start(id(checkpoint)) {
                    Ok(in_flight) => {
                        let written = self.written.entry(checkpoint).or_default();
                        let belongs = |at: &&usize| in_flight.contains(Sequence(**at as u32));
                        written.extend(queued.iter().filter(belongs));
                        let before = self.before_barrier(checkpoint);
                        let expected = self.expected.entry(checkpoint).or_default();
                        expected.extend(queued.iter().filter(|at| before.contains(at)));
                    }
                    Err(refused) => {
                        assert!(newest > checkpoint, "only a newer barrier refuses a start");
                        assert_eq!(
                            refused,
                            Overtaken { checkpoint: id(checkpoint), by: id(newest) }
                        );
                        return;
                    }
                }
                (self.started, self.is_stopped) = (checkpoint, false);
            }
            Step::Stop => {
                self.persister.stop(id(self.started));
                self.is_stopped = true;
            }
        }
    }
}

proptest! {
    /// A checkpoint has the data that was unread at its start and came before its barrier.
    #[test]
    fn a_checkpoint_has_the_unread_data_before_its_barrier(steps in steps()) {
        let mut channel = Channel::default();
        for step in steps {
            channel.apply(step);
            prop_assert_eq!(&channel.written, &channel.expected);
        }
    }
}
