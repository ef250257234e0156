//! The channel state of a task's checkpoints.

use std::collections::BTreeMap;

use headgate_protocol::ChannelStatePart::{Input, Output};
use headgate_protocol::ChannelStateWriterError::{AlreadyStarted, Finished, NotStarted, TooMany};
use headgate_protocol::{
    ChannelStatePart, ChannelStateWriter, CheckpointFailureReason, CheckpointId, MAX_CHANNEL_STATES,
};
use proptest::prelude::*;

use crate::task::{Cancelled, Subsumed};

const ONE: CheckpointId = CheckpointId(1);
const TWO: CheckpointId = CheckpointId(2);

fn finish(writer: &mut ChannelStateWriter, checkpoint: CheckpointId) {
    writer.finish(checkpoint, Input).unwrap();
    writer.finish(checkpoint, Output).unwrap();
}

#[test]
fn spec_section_10_7_both_parts_make_a_channel_state_complete() {
    let mut writer = ChannelStateWriter::default();
    writer.start(ONE).unwrap();
    assert_eq!((writer.add(ONE, Input), writer.add(ONE, Output)), (Ok(true), Ok(true)));
    writer.finish(ONE, Input).unwrap();
    writer.finish(ONE, Input).unwrap();
    assert_eq!(writer.take_result(ONE), Ok(None));
    assert_eq!(writer.add(ONE, Output), Ok(true));
    writer.finish(ONE, Output).unwrap();
    assert_eq!(writer.take_result(ONE), Ok(Some(Ok(()))));
    assert!(writer.is_empty());
}

#[test]
fn spec_section_10_7_a_checkpoint_starts_once() {
    let mut writer = ChannelStateWriter::default();
    writer.start(ONE).unwrap();
    let again = Err(AlreadyStarted { checkpoint: ONE });
    assert_eq!(writer.start(ONE), again);
    finish(&mut writer, ONE);
    assert_eq!(writer.start(ONE), again);
    writer.take_result(ONE).unwrap();
    assert_eq!(writer.start(ONE), again);
}

#[test]
fn spec_section_10_7_nothing_is_added_to_a_finished_part() {
    let mut writer = ChannelStateWriter::default();
    let unknown = NotStarted { checkpoint: ONE };
    assert_eq!(writer.add(ONE, Input), Err(unknown));
    assert_eq!(writer.finish(ONE, Input), Err(unknown));
    assert_eq!(writer.take_result(ONE), Err(unknown));
    writer.start(ONE).unwrap();
    writer.finish(ONE, Output).unwrap();
    assert_eq!(writer.add(ONE, Output), Err(Finished { checkpoint: ONE, part: Output }));
    writer.finish(ONE, Input).unwrap();
    assert_eq!(writer.add(ONE, Input), Err(Finished { checkpoint: ONE, part: Input }));
    writer.take_result(ONE).unwrap();
    assert_eq!(writer.add(ONE, Input), Err(unknown), "its result was taken");
}

#[test]
fn spec_section_10_7_an_abort_discards_what_comes_later() {
    let mut writer = ChannelStateWriter::default();
    writer.start(ONE).unwrap();
    writer.abort(ONE, Cancelled, false);
    assert_eq!(writer.add(ONE, Input), Ok(false));
    finish(&mut writer, ONE);
    assert_eq!(writer.take_result(ONE), Ok(Some(Err(Cancelled))));
    assert_eq!(writer.add(ONE, Input), Ok(false), "data may come after the result was taken");
    // With cleanup nobody takes the result.
    writer.start(TWO).unwrap();
    writer.abort(TWO, Cancelled, true);
    assert!(writer.is_empty());
    assert_eq!((writer.add(TWO, Output), writer.finish(TWO, Output)), (Ok(false), Ok(())));
    assert_eq!(writer.take_result(TWO), Err(NotStarted { checkpoint: TWO }));
}

#[test]
fn spec_section_10_7_an_abort_may_come_before_the_start() {
    let mut writer = ChannelStateWriter::default();
    writer.abort(TWO, Cancelled, true);
    writer.start(TWO).unwrap();
    assert_eq!(writer.add(TWO, Input), Ok(false));
    assert_eq!(writer.take_result(TWO), Ok(Some(Err(Cancelled))));
    writer.start(ONE).unwrap();
    assert_eq!(writer.take_result(ONE), Ok(Some(Err(Subsumed))));
}

#[test]
fn only_the_newest_checkpoint_is_written() {
    let mut writer = ChannelStateWriter::default();
    writer.start(ONE).unwrap();
    writer.start(TWO).unwrap();
    assert_eq!((writer.add(ONE, Input), writer.add(TWO, Input)), (Ok(false), Ok(true)));
    assert_eq!(writer.take_result(ONE), Ok(Some(Err(Subsumed))));
    finish(&mut writer, TWO);
    writer.start(CheckpointId(3)).unwrap();
    writer.abort(CheckpointId(4), Cancelled, true);
    assert_eq!(writer.take_result(TWO), Ok(Some(Ok(()))), "a complete one stays");
    assert_eq!(writer.take_result(CheckpointId(3)), Ok(Some(Err(Subsumed))));
}

#[test]
fn spec_section_10_7_a_thousand_results_may_wait() {
    let mut writer = ChannelStateWriter::default();
    let last = CheckpointId(MAX_CHANNEL_STATES as i64 + 1);
    for checkpoint in 1..last.0 {
        writer.start(CheckpointId(checkpoint)).unwrap();
    }
    assert_eq!(writer.start(last), Err(TooMany { checkpoint: last }));
    writer.take_result(ONE).unwrap();
    writer.start(last).unwrap();
    assert_eq!(writer.len(), MAX_CHANNEL_STATES);
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Start(i64),
    Add(i64, ChannelStatePart),
    Finish(i64, ChannelStatePart),
    Abort(i64, bool),
    Take(i64),
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let id = 1i64..7;
    let part = prop_oneof![Just(Input), Just(Output)];
    let call = prop_oneof![
        4 => id.clone().prop_map(Call::Start),
        4 => (id.clone(), part.clone()).prop_map(|(id, part)| Call::Add(id, part)),
        6 => (id.clone(), part).prop_map(|(id, part)| Call::Finish(id, part)),
        1 => (id.clone(), any::<bool>()).prop_map(|(id, cleanup)| Call::Abort(id, cleanup)),
        3 => id.prop_map(Call::Take),
    ];
    prop::collection::vec(call, 0..60)
}

/// The known facts of one checkpoint.
#[derive(Clone, Debug, Default)]
struct Known {
    started: bool,
    input: bool,
    output: bool,
    failed: Option<CheckpointFailureReason>,
}

proptest! {
    /// Compares with a record of each checkpoint.
    #[test]
    fn behaves_as_a_record_of_each_checkpoint(calls in calls()) {
        let mut writer = ChannelStateWriter::default();
        let mut all: BTreeMap<i64, Known> = (1..7).map(|id| (id, Known::default())).collect();
        // The newest checkpoint that was started or aborted, and the newest that failed for good.
        let (mut newest, mut discarded) = (0, (0, Cancelled));
        for call in calls {
            match call {
                Call::Start(id) => {
                    let started = writer.start(CheckpointId(id));
                    if all[&id].started || (id == newest && id != discarded.0) {
                        prop_assert_eq!(started, Err(AlreadyStarted { checkpoint: CheckpointId(id) }));
                        continue;
                    }
                    prop_assert_eq!(started, Ok(()));
                    let failed = match discarded {
                        (aborted, reason) if aborted == id => Some(reason),
                        _ => (id < newest).then_some(Subsumed),
                    };
                    all.insert(id, Known { started: true, failed, ..Known::default() });
                    newest = newest.max(id);
                    fail_before(&mut all, id);
                }
                Call::Add(id, part) => {
                    let known = &all[&id];
                    let finished = if part == Input { known.input } else { known.output };
                    let expected = if !known.started {
                        if id <= discarded.0 { Ok(false) } else { Err(NotStarted { checkpoint: CheckpointId(id) }) }
                    } else if known.failed.is_none() && finished {
                        Err(Finished { checkpoint: CheckpointId(id), part })
                    } else {
                        Ok(known.failed.is_none())
                    };
                    prop_assert_eq!(writer.add(CheckpointId(id), part), expected);
                }
                Call::Finish(id, part) => {
                    let known = all.get_mut(&id).unwrap();
                    let finished = writer.finish(CheckpointId(id), part);
                    prop_assert_eq!(finished.is_ok(), known.started || id <= discarded.0);
                    if known.started {
                        *(if part == Input { &mut known.input } else { &mut known.output }) = true;
                    }
                }
                Call::Abort(id, cleanup) => {
                    writer.abort(CheckpointId(id), Cancelled, cleanup);
                    newest = newest.max(id);
                    fail_before(&mut all, id);
                    let known = all.get_mut(&id).unwrap();
                    known.failed = Some(Cancelled);
                    known.started &= !cleanup;
                    if id > discarded.0 {
                        discarded = (id, Cancelled);
                    }
                }
                Call::Take(id) => {
                    let known = all.get_mut(&id).unwrap();
                    let expected = match known.failed {
                        _ if !known.started => Err(NotStarted { checkpoint: CheckpointId(id) }),
                        Some(reason) => Ok(Some(Err(reason))),
                        None if known.input && known.output => Ok(Some(Ok(()))),
                        None => Ok(None),
                    };
                    prop_assert_eq!(writer.take_result(CheckpointId(id)), expected);
                    if let Ok(Some(result)) = expected {
                        known.started = false;
                        if let Err(reason) = result && id > discarded.0 {
                            discarded = (id, reason);
                        }
                    }
                }
            }
            let started = all.values().filter(|known| known.started).count();
            prop_assert_eq!((writer.len(), writer.is_empty()), (started, started == 0));
        }
    }
}

/// Fails the incomplete checkpoints before one that was started or aborted.
fn fail_before(all: &mut BTreeMap<i64, Known>, id: i64) {
    for known in all.range_mut(..id).map(|(_, known)| known) {
        if known.started && !(known.input && known.output) {
            known.failed.get_or_insert(Subsumed);
        }
    }
}
