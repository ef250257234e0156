//! Floods of cheap frames end at their limit.

use headgate_protocol::{
    Budget, BudgetError, BudgetLimits, ChannelId, Counter, DataType, ErrorFrame, Frame,
    TaskEventHeader,
};

use crate::frames::{credit, header, lent, request};

const LIMITS: BudgetLimits = BudgetLimits {
    opens: 1,
    cancels: 2,
    credits: 3,
    events: 4,
    empty_data: 5,
    task_events: 6,
    controls: 7,
};

#[test]
fn each_counter_has_its_own_limit() {
    let channel = ChannelId(1);
    let cases = [
        (Counter::Opens, 1, Frame::PartitionRequest(request())),
        (Counter::Cancels, 2, Frame::CancelPartitionRequest { channel }),
        (Counter::Credits, 3, Frame::AddCredit { credit: credit(100), channel }),
        (Counter::Events, 4, Frame::Buffer(header(1, 0, DataType::EventBuffer, 8))),
        (Counter::EmptyData, 5, Frame::Buffer(header(1, 0, DataType::DataBuffer, 0))),
        (Counter::TaskEvents, 6, Frame::TaskEvent(TaskEventHeader { channel, size: 1, crc: 0 })),
        (Counter::Controls, 7, Frame::ResumeConsumption { channel }),
    ];
    let mut budget = Budget::new(LIMITS);
    for window in 0..2 {
        for (counter, limit, frame) in &cases {
            for _ in 0..*limit {
                assert_eq!(budget.charge(frame), Ok(()), "{counter:?} in window {window}");
            }
            let over = BudgetError { counter: *counter, limit: *limit };
            assert_eq!(budget.charge(frame), Err(over));
            assert_eq!(budget.charge(frame), Err(over), "stays over");
        }
        budget.reset();
    }
}

#[test]
fn frames_that_steer_a_channel_share_one_limit() {
    let channel = ChannelId(1);
    let frames = [
        Frame::AckAllUserRecordsProcessed { channel },
        Frame::BacklogAnnouncement { backlog: credit(1), channel },
        Frame::Heartbeat,
        Frame::NewBufferSize { size: credit(1), channel },
        Frame::ResumeConsumption { channel },
    ];
    let mut budget = Budget::new(BudgetLimits { controls: 5, ..LIMITS });
    for frame in &frames {
        assert_eq!(budget.charge(frame), Ok(()), "{frame:?}");
    }
    let over = BudgetError { counter: Counter::Controls, limit: 5 };
    assert!(frames.iter().all(|frame| budget.charge(frame) == Err(over)));
}

#[test]
fn paid_and_last_frames_are_free() {
    let free = [
        Frame::Buffer(header(1, 0, DataType::DataBuffer, 1)),
        Frame::Error(ErrorFrame::new(None, 1, "")),
        Frame::CloseRequest,
        Frame::LentBuffer(lent()),
        Frame::Return { loan: 1 },
    ];
    let none = BudgetLimits { opens: 0, cancels: 0, credits: 0, events: 0, ..LIMITS };
    let none = BudgetLimits { empty_data: 0, task_events: 0, controls: 0, ..none };
    for frame in free {
        assert_eq!(Budget::new(none).charge(&frame), Ok(()), "{frame:?}");
    }
}
