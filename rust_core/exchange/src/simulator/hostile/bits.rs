//! Every single bit of the frames that have a payload, flipped on the way to an honest process.

use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use headgate_net::simulation::{Link, checksum_of, checksum_of_task_event};
use headgate_protocol::{
    Alignment, BUFFER_HEADER_LEN, BufferHeader, ChannelId, CheckpointId, CheckpointOptions,
    ClientHandshake, DataType, Frame, Generation, PartitionRequest, Sequence, ServerHandshake,
    Side, TaskEventHeader, Totals,
};
use headgate_record::compression::{Codec, Compressor};
use headgate_record::event::{Barrier, Event, StopMode};
use proptest::test_runner::TestRng;

use crate::error::ExchangeError;
use crate::event::data_type_of;
use crate::gate::{CheckpointedInput, DataInput};
use crate::partition::{PartitionOptions, ResultPartition};
use crate::simulator::hostile::peer::Hostile;
use crate::simulator::hostile::scene::{Scene, VICTIM};
use crate::simulator::plan::rng_of;
use crate::simulator::wire::address_of;

/// A buffer of the producer.
struct Sent {
    data_type: DataType,
    compressed: bool,
    payload: Vec<u8>,
}

impl Sent {
    fn data(data_type: DataType, payload: &[u8]) -> Self {
        Self { data_type, compressed: false, payload: payload.to_vec() }
    }

    fn compressed(codec: Codec) -> Self {
        let mut payload = vec![7; 64];
        let size = Compressor::new(codec).compress(&mut payload).expect("it repeats a byte");
        payload.truncate(size);
        Self { data_type: DataType::DataBufferWithClearEnd, compressed: true, payload }
    }

    fn event(event: &Event, is_priority: bool) -> Self {
        let payload = event.encode().expect("its names are short").to_vec();
        Self { data_type: data_type_of(event, is_priority), compressed: false, payload }
    }

    /// The end of a partition, with the totals of the buffers before it.
    fn end(before: &[Self]) -> Self {
        let mut end = Self::event(&Event::EndOfPartition, false);
        let mut totals = Totals { rows: 0, bytes: 0, buffers: 0 };
        for sent in before.iter().filter(|sent| sent.data_type.is_buffer()) {
            totals.add_buffer(if sent.compressed { 64 } else { sent.payload.len() as u32 });
        }
        end.payload.extend(totals.encode());
        end
    }

    fn frame(&self, peer: &Hostile, request: &PartitionRequest, sequence: usize) -> Vec<u8> {
        let mut header = BufferHeader {
            channel: request.channel,
            generation: request.generation,
            sequence: Sequence(sequence as u32),
            backlog: 1,
            data_type: self.data_type,
            compressed: self.compressed,
            size: self.payload.len() as u32,
            crc: 0,
        };
        let payload = Bytes::from(self.payload.clone());
        header.crc = peer.mask.apply(checksum_of(&header, &payload.into()));
        [header.encode().as_slice(), &self.payload].concat()
    }
}

/// Buffers of each kind, with one more at the end so that nothing is damaged unnoticed.
fn streams() -> Vec<(&'static str, Vec<Sent>)> {
    let barrier = |alignment| {
        let options = CheckpointOptions { alignment, snapshot: Bytes::new() };
        Event::CheckpointBarrier(Barrier { id: CheckpointId(1), timestamp: 2, options })
    };
    let custom = Event::Custom { name: "mine".to_owned(), body: "body".into() };
    let targets = [
        ("a page", Sent::data(DataType::DataBufferWithClearEnd, b"the bytes of a page")),
        ("a part of a record", Sent::data(DataType::DataBuffer, b"a part")),
        ("a buffer without payload", Sent::data(DataType::DataBuffer, b"")),
        ("a buffer in LZ4", Sent::compressed(Codec::Lz4)),
        ("a buffer in Zstandard", Sent::compressed(Codec::Zstd)),
        ("a custom event", Sent::event(&custom, false)),
        ("a priority event", Sent::event(&custom, true)),
        ("a barrier", Sent::event(&barrier(Alignment::Aligned), false)),
        (
            "a barrier with a timeout",
            Sent::event(&barrier(Alignment::Timeoutable { timeout: 30_000 }), false),
        ),
        ("the end of the data", Sent::event(&Event::EndOfData(StopMode::Drain), false)),
    ];
    let mut streams: Vec<_> = targets.into_iter().map(|(kind, sent)| (kind, vec![sent])).collect();
    for (_, stream) in &mut streams {
        stream.push(Sent::end(stream));
    }
    streams.push(("the end of the partition", vec![Sent::end(&[])]));
    streams
}

/// Returns what a consumer reads of a stream, and the error that ends it. The bit is one of the first frame.
fn read(
    scene: &mut Scene,
    rng: &mut TestRng,
    stream: &[Sent],
    bit: Option<usize>,
) -> (Vec<(DataType, Vec<u8>)>, Option<ExchangeError>) {
    let gate = scene.gate(VICTIM, &Hostile::address());
    scene.settle(rng);
    let (stream_of_peer, _) = scene.link.accept().expect("the victim dialed");
    let mut peer = Hostile::new(stream_of_peer);
    let (key, config) = Hostile::config();
    let mut server = ServerHandshake::new(key, config, [4; 32]);
    peer.shake_hands(scene, rng, |input: &mut &[u8]| server.handle(input));
    let Some(Frame::PartitionRequest(request)) = peer.next(Side::Producer) else {
        panic!("a consumer begins with its request");
    };
    assert!(request.initial_credit > 0);
    for (sequence, sent) in stream.iter().enumerate() {
        let mut frame = sent.frame(&peer, &request, sequence);
        if let (0, Some(bit)) = (sequence, bit) {
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        peer.say(&frame, None);
    }
    scene.settle(rng);
    let mut got = Vec::new();
    let error = loop {
        match gate.poll_next() {
            Ok(Poll::Ready(Some(next))) => {
                if next.data_type.blocks_upstream() {
                    gate.resume_consumption(next.channel).expect("it is blocked");
                }
                got.push((next.data_type, next.buffer.as_slice().to_vec()));
            }
            Ok(Poll::Ready(None)) => break None,
            Ok(Poll::Pending) => panic!("the reader waits for more, bit {bit:?}"),
            Err(error) => break Some(error),
        }
    };
    gate.close();
    drop((gate, peer));
    scene.settle(rng);
    (got, error)
}

#[test]
fn spec_9_02_each_flipped_bit_of_a_buffer_or_an_event_ends_its_connection() {
    let (mut scene, rng) = (Scene::new(), &mut rng_of(0, 0));
    for (kind, stream) in streams() {
        let (whole, error) = read(&mut scene, rng, &stream, None);
        assert!(error.is_none(), "{kind}: {error:?}");
        assert_eq!(whole.last().expect("the end").0, DataType::EndOfPartition, "{kind}");
        let bits = 8 * (BUFFER_HEADER_LEN + stream[0].payload.len());
        for bit in 0..bits {
            let (got, error) = read(&mut scene, rng, &stream, Some(bit));
            assert_eq!(got, [], "{kind}, bit {bit}: its frame is the first one");
            match error {
                Some(ExchangeError::Integrity { .. } | ExchangeError::Protocol { .. }) => {}
                other => panic!("{kind}, bit {bit}: {other:?}"),
            }
        }
    }
    scene.end(rng);
}

/// Returns the events that the producing task gets, and true if the producer ended the connection.
fn publish(
    scene: &mut Scene,
    rng: &mut TestRng,
    partition: &ResultPartition,
    damage: impl FnOnce(&mut Vec<u8>),
) -> (Vec<Bytes>, bool) {
    let stream = scene.link.dial(address_of(VICTIM), 1, true).expect("the victim listens");
    let mut peer = Hostile::new(stream);
    let (key, config) = Hostile::config();
    let (mut client, hello) = ClientHandshake::start(key, config, [5; 32]);
    peer.say(&hello, None);
    peer.shake_hands(scene, rng, |input: &mut &[u8]| client.handle(input));
    let request = PartitionRequest {
        partition: partition.id(),
        subpartition: 0,
        channel: ChannelId(5),
        generation: Generation(0),
        initial_credit: 2,
        schema_hash: [0; 32],
    };
    peer.say_frame(&Frame::PartitionRequest(request), None);
    let mut frame = task_event(&peer);
    damage(&mut frame);
    peer.say(&frame, None);
    scene.settle(rng);
    peer.listen();
    let events = std::iter::from_fn(|| partition.task_events().take());
    let events = events.map(|event| event.body).collect();
    let gone = peer.gone;
    drop(peer);
    scene.settle(rng);
    (events, gone)
}

fn task_event(peer: &Hostile) -> Vec<u8> {
    let event = Event::Custom { name: "mine".to_owned(), body: "body".into() };
    let payload = event.encode().expect("its name is short");
    let mut header = TaskEventHeader { channel: ChannelId(5), size: payload.len() as u32, crc: 0 };
    header.crc = peer.mask.apply(checksum_of_task_event(&header, &payload));
    [header.encode().as_slice(), &payload].concat()
}

#[test]
fn each_flipped_bit_of_a_task_event_ends_its_connection() {
    let (mut scene, rng) = (Scene::new(), &mut rng_of(0, 0));
    let options = PartitionOptions {
        task_events: vec!["mine".to_owned()],
        // Each consumer is lost, and another one comes.
        lost_consumer_timeout: Duration::MAX,
        ..PartitionOptions::all(1)
    };
    let partition = scene.processes[VICTIM].env.create_result_partition(&options).expect("fits");
    let mut bits = 0;
    let arrived = publish(&mut scene, rng, &partition, |frame| bits = 8 * frame.len());
    assert_eq!(arrived, (vec![Bytes::from("body")], false));
    for bit in 0..bits {
        let arrived =
            publish(&mut scene, rng, &partition, |frame| frame[bit / 8] ^= 1 << (bit % 8));
        assert_eq!(arrived, (vec![], true), "bit {bit}");
    }
    partition.check().expect("it waits for the next consumer");
    partition.release_subpartition(0);
    drop(partition);
    scene.end(rng);
}
