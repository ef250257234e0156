//! A channel accepts exactly the buffers that were sent to it.

use headgate_protocol::{
    ChannelId, DataType, Generation, NoCredit, ReceiveChannel, ReceiveError, ReceiveLedger,
    Sequence, Totals,
};

use crate::frames::{credit, header};

const CHANNEL: ChannelId = ChannelId(1);

fn channel(exclusive: u32) -> ReceiveChannel {
    ReceiveChannel::new(CHANNEL, Generation(0), ReceiveLedger::new(exclusive))
}

/// Asserts that the buffer is refused and that the channel is unchanged.
fn refused(channel: &mut ReceiveChannel, sequence: u32, data_type: DataType) -> ReceiveError {
    let before = channel.clone();
    let error = channel.on_buffer(&header(1, sequence, data_type, 8)).unwrap_err();
    assert_eq!(*channel, before, "an error changes nothing");
    error
}

#[test]
fn data_spends_a_credit_and_an_event_none() {
    let mut channel = channel(2);
    let mut first = header(1, 0, DataType::DataBuffer, 100);
    first.backlog = 3;
    channel.on_buffer(&first).unwrap();
    let numbers = |channel: &ReceiveChannel| {
        (channel.ledger().announced(), channel.ledger().available(), channel.ledger().required())
    };
    assert_eq!(numbers(&channel), (1, 1, 5), "the backlog and the channel's own 2 are required");
    assert!(channel.ledger_mut().on_offered());
    assert_eq!(channel.ledger_mut().take_unannounced(), Some(credit(1)));
    channel.on_buffer(&header(1, 1, DataType::EventBuffer, 7)).unwrap();
    assert_eq!(numbers(&channel), (2, 2, 2));
    channel.on_buffer(&header(1, 2, DataType::DataBufferWithClearEnd, 0)).unwrap();
    assert_eq!(numbers(&channel).0, 1, "an empty data buffer costs a credit too");
    assert_eq!((channel.buffers(), channel.bytes()), (2, 100), "events are not counted");
    assert!(!channel.ended());
}

#[test]
fn a_compressed_buffer_counts_as_its_plain_form() {
    let mut channel = channel(2);
    let mut compressed = header(1, 0, DataType::DataBufferWithClearEnd, 10);
    compressed.compressed = true;
    channel.on_buffer(&compressed).unwrap();
    assert_eq!((channel.buffers(), channel.bytes()), (0, 0), "its payload has not arrived yet");
    channel.on_compressed(1000);
    channel.on_buffer(&header(1, 1, DataType::DataBufferWithClearEnd, 7)).unwrap();
    assert_eq!((channel.buffers(), channel.bytes()), (2, 1007));
    channel.on_buffer(&header(1, 2, DataType::EndOfPartition, 28)).unwrap();
    channel.on_end(Totals { rows: 5, bytes: 1007, buffers: 2 }).unwrap();
}

#[test]
fn gaps_duplicates_and_swapped_buffers_are_refused() {
    let mut channel = channel(5);
    channel.on_buffer(&header(1, 0, DataType::DataBuffer, 8)).unwrap();
    for got in [0, 2, u32::MAX] {
        let error = refused(&mut channel, got, DataType::DataBuffer);
        let (got, want) = (Sequence(got), Sequence(1));
        assert_eq!(error, ReceiveError::Sequence { channel: CHANNEL, got, want });
        let error = refused(&mut channel, got.0, DataType::EventBuffer);
        assert_eq!(error, ReceiveError::Sequence { channel: CHANNEL, got, want });
    }
}

#[test]
fn sequence_wraps() {
    assert_eq!(Sequence(7).next(), Sequence(8));
    assert_eq!(Sequence(u32::MAX).next(), Sequence(0));
}

#[test]
fn another_generation_is_refused() {
    let mut channel = ReceiveChannel::new(CHANNEL, Generation(4), ReceiveLedger::new(1));
    let before = channel.clone();
    for (got, legal) in [(3, false), (5, false), (4, true)] {
        let mut buffer = header(1, 0, DataType::DataBuffer, 8);
        buffer.generation = Generation(got);
        let result = channel.on_buffer(&buffer);
        if legal {
            assert!(result.is_ok());
        } else {
            let (got, want) = (Generation(got), Generation(4));
            assert_eq!(result, Err(ReceiveError::Generation { channel: CHANNEL, got, want }));
            assert_eq!(channel, before);
        }
    }
}

#[test]
fn data_needs_credit_and_events_do_not() {
    let mut channel = channel(1);
    channel.on_buffer(&header(1, 0, DataType::DataBuffer, 8)).unwrap();
    let error = refused(&mut channel, 1, DataType::DataBuffer);
    assert_eq!(error, ReceiveError::Credit { channel: CHANNEL, source: NoCredit });
    channel.on_buffer(&header(1, 1, DataType::EventBuffer, 8)).unwrap();
    channel.on_buffer(&header(1, 2, DataType::EndOfPartition, 28)).unwrap();
    assert!(channel.ended());
}

#[test]
fn nothing_follows_the_end() {
    let mut channel = channel(5);
    let mut end = header(1, 0, DataType::EndOfPartition, 28);
    end.backlog = 9;
    channel.on_buffer(&end).unwrap();
    assert_eq!(channel.ledger().wants(), None, "no buffer can fill another segment");
    for data_type in [DataType::DataBuffer, DataType::EndOfPartition] {
        let error = refused(&mut channel, 1, data_type);
        assert_eq!(error, ReceiveError::AfterEnd { channel: CHANNEL, sequence: Sequence(1) });
    }
}

#[test]
fn totals_are_compared() {
    let mut channel = channel(5);
    channel.on_buffer(&header(1, 0, DataType::DataBuffer, 60)).unwrap();
    channel.on_buffer(&header(1, 1, DataType::DataBuffer, 40)).unwrap();
    let right = Totals { rows: 9, bytes: 100, buffers: 2 };
    assert_eq!(channel.on_end(right), Err(ReceiveError::NotEnded { channel: CHANNEL }));
    channel.on_buffer(&header(1, 2, DataType::EndOfPartition, 28)).unwrap();
    let wrong =
        |what, got, declared| Err(ReceiveError::Totals { channel: CHANNEL, what, got, declared });
    assert_eq!(channel.on_end(Totals { buffers: 3, ..right }), wrong("buffers", 2, 3));
    assert_eq!(channel.on_end(Totals { bytes: 99, ..right }), wrong("bytes", 100, 99));
    assert_eq!(channel.declared(), None, "wrong totals are not kept");
    assert_eq!(channel.on_end(right), Ok(()));
    assert_eq!(channel.declared(), Some(right));
}
