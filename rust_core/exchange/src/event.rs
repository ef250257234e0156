//! The data type of each event (spec 2.5). No other file decides it.

use headgate_protocol::{Alignment, DataType};
use headgate_record::Event;

use crate::error::{ExchangeError, Result};

/// Returns the data type of a buffer that holds this event. `is_priority` is the sender's choice,
/// not a property of the event.
#[must_use]
pub fn data_type_of(event: &Event, is_priority: bool) -> DataType {
    if is_priority {
        return DataType::PrioritizedEventBuffer;
    }
    match event {
        Event::CheckpointBarrier(barrier) => match barrier.options.alignment {
            Alignment::Aligned => DataType::AlignedCheckpointBarrier,
            Alignment::Timeoutable { .. } => DataType::TimeoutableAlignedCheckpointBarrier,
            Alignment::AtLeastOnce | Alignment::Unaligned => DataType::EventBuffer,
        },
        Event::EndOfChannelState => DataType::RecoveryCompletion,
        Event::EndOfData(_) => DataType::EndOfData,
        Event::EndOfPartition => DataType::EndOfPartition,
        Event::EndOfSegment => DataType::EndOfSegment,
        Event::RecoveryMetadata { .. } => DataType::RecoveryMetadata,
        Event::CancelCheckpointMarker { .. }
        | Event::Custom { .. }
        | Event::EndOfSuperstep
        | Event::EventAnnouncement { .. }
        | Event::SubtaskConnectionDescriptor { .. } => DataType::EventBuffer,
    }
}

/// Decodes the event of a buffer. Refuses a data type that the event must not have, and a custom event with
/// the name of another one.
pub(crate) fn decode(bytes: &[u8], data_type: DataType) -> Result<Event> {
    let event = Event::decode(bytes).map_err(|error| ExchangeError::Event(error.to_string()))?;
    check_name(&event)?;
    let expected = data_type_of(&event, data_type.has_priority());
    // The sender of a custom event chooses whether it blocks its channel, like its priority.
    let is_barrier = matches!(
        data_type,
        DataType::AlignedCheckpointBarrier | DataType::TimeoutableAlignedCheckpointBarrier
    );
    let is_own_barrier = is_barrier && matches!(event, Event::Custom { .. });
    if expected == data_type || is_own_barrier {
        Ok(event)
    } else {
        let detail = format!("an event of type {expected:?} arrived as {data_type:?}");
        Err(ExchangeError::Event(detail))
    }
}

fn check_name(event: &Event) -> Result<()> {
    match event {
        Event::EventAnnouncement { announced, .. } => check_name(announced),
        Event::Custom { name, .. } if Event::is_reserved(name) => {
            Err(ExchangeError::Event(format!(
                "a custom event has the name {name:?}, which is the name of an event of Headgate"
            )))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use headgate_protocol::{CheckpointId, CheckpointOptions};
    use headgate_record::event::{Barrier, StopMode};

    use super::*;

    fn barrier(alignment: Alignment) -> Event {
        let options = CheckpointOptions { alignment, snapshot: Bytes::new() };
        Event::CheckpointBarrier(Barrier { id: CheckpointId(7), timestamp: 8, options })
    }

    fn table() -> Vec<(Event, DataType)> {
        use Alignment as A;
        use DataType as D;
        let timeoutable = barrier(A::Timeoutable { timeout: 10 });
        let announced = Box::new(timeoutable.clone());
        vec![
            (Event::CancelCheckpointMarker { checkpoint_id: 1 }, D::EventBuffer),
            (barrier(A::Aligned), D::AlignedCheckpointBarrier),
            (timeoutable, D::TimeoutableAlignedCheckpointBarrier),
            (barrier(A::Unaligned), D::EventBuffer),
            (barrier(A::AtLeastOnce), D::EventBuffer),
            (Event::Custom { name: "n".to_owned(), body: "b".into() }, D::EventBuffer),
            (Event::EndOfChannelState, D::RecoveryCompletion),
            (Event::EndOfData(StopMode::Drain), D::EndOfData),
            (Event::EndOfData(StopMode::NoDrain), D::EndOfData),
            (Event::EndOfPartition, D::EndOfPartition),
            (Event::EndOfSegment, D::EndOfSegment),
            (Event::EndOfSuperstep, D::EventBuffer),
            (Event::EventAnnouncement { sequence_number: 1, announced }, D::EventBuffer),
            (Event::RecoveryMetadata { final_buffer_index: 1 }, D::RecoveryMetadata),
            (
                Event::SubtaskConnectionDescriptor { input_subtask: 1, output_subtask: 2 },
                D::EventBuffer,
            ),
        ]
    }

    #[test]
    fn spec_7_05_each_event_has_its_data_type_with_and_without_priority() {
        for (event, data_type) in table() {
            assert_eq!(data_type_of(&event, false), data_type, "{event:?}");
            assert_eq!(data_type_of(&event, true), DataType::PrioritizedEventBuffer);
            assert!(data_type.is_event());
        }
    }

    #[test]
    fn a_custom_event_with_the_name_of_another_one_is_refused() {
        let decoded = |name: &str| {
            let custom = Event::Custom { name: name.to_owned(), body: "b".into() };
            let announced = Box::new(custom.clone());
            let announcement = Event::EventAnnouncement { sequence_number: 1, announced };
            [(custom, DataType::EventBuffer), (announcement, DataType::PrioritizedEventBuffer)]
                .map(|(event, data_type)| decode(&event.encode().unwrap(), data_type))
        };
        for (event, _) in table() {
            if matches!(event, Event::Custom { .. }) {
                continue;
            }
            for name in [format!("{event:?}"), format!("{event:#?}")] {
                for result in decoded(&name) {
                    let error = result.expect_err(&name).to_string();
                    assert!(error.contains("is the name of an event of Headgate"), "{error}");
                }
            }
        }
        for name in ["", "EndOfDataOfMine", "my EndOfData", "Custom", "endofdata"] {
            decoded(name).into_iter().for_each(|result| drop(result.expect(name)));
        }
    }

    #[test]
    fn an_event_of_a_wrong_data_type_is_refused() {
        let mut refused = 0;
        for (event, data_type) in table() {
            let bytes = event.encode().unwrap();
            for value in 2..=11 {
                let arrived_as = DataType::try_from(value).unwrap();
                let is_own_barrier = matches!(event, Event::Custom { .. })
                    && [
                        DataType::AlignedCheckpointBarrier,
                        DataType::TimeoutableAlignedCheckpointBarrier,
                    ]
                    .contains(&arrived_as);
                let fits = arrived_as == data_type || arrived_as.has_priority() || is_own_barrier;
                match decode(&bytes, arrived_as) {
                    Ok(decoded) => assert!(fits && decoded == event),
                    Err(error) => {
                        assert!(!fits, "{error}");
                        assert!(error.to_string().contains(&format!("{data_type:?}")), "{error}");
                        refused += 1;
                    }
                }
            }
            decode(&bytes[..3], data_type).unwrap_err();
        }
        assert_eq!(refused, 15 * 8 - 2);
    }
}
