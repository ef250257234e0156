"""Compressed buffers over every kind of partition and link, and from hostile peers."""

import random
import struct

import pyarrow as pa
import pytest
import wire
from plane import (
    NUMBERS,
    SECRET,
    Task,
    assert_same,
    drain,
    emit_all,
    exchange,
    fake_address,
    numbers,
    wait_until,
)

import headgate as hg
from headgate.errors import IntegrityError, OptionError, ProtocolError

CODECS = ("lz4", "zstd")
#: Codec numbers on the wire, with pyarrow's names of the codecs.
IDS = {"lz4": (1, "lz4_raw"), "zstd": (2, "zstd")}

WORDS = pa.record_batch(
    {"n": pa.array(range(3000), pa.int64()), "s": pa.array(["Freiburg im Breisgau"] * 3000)}
)


def pack(codec, plain, length=None):
    """Return the compressed form, made by another implementation of the codec."""
    number, name = IDS[codec]
    block = pa.compress(plain, codec=name, asbytes=True)
    return struct.pack(">BI", number, len(plain) if length is None else length) + block


def unpack(form):
    number, length = struct.unpack_from(">BI", form)
    name = next(name for known, name in IDS.values() if known == number)
    return pa.decompress(form[5:], decompressed_size=length, codec=name, asbytes=True)


@pytest.mark.parametrize("codec", CODECS)
def test_batches_arrive_as_they_were_emitted(link, codec):
    producer, consumer = link(compression=codec)
    [table] = exchange(producer, consumer, emit_all(WORDS, WORDS, WORDS), schema=WORDS.schema)
    assert_same(table, [WORDS] * 3)
    if link.kind != "local":
        stats = producer.stats()
        assert stats["compression"]["bytes_out"] < stats["compression"]["bytes_in"] / 2
        assert stats["bytes_sent"] < stats["compression"]["bytes_in"]


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_any_length_arrive_as_they_were_emitted(link, codec):
    producer, consumer = link(compression=codec)
    noise = random.Random(7).randbytes
    records = [b"", b"x", b"abc" * 1000, noise(3000), b"headgate" * 50_000, noise(200_000)] * 2
    results = exchange(
        producer,
        consumer,
        emit_all(*records),
        n=2,
        serializer="bytes",
        selector=hg.BroadcastSelector(),
    )
    assert results == [records] * 2


@pytest.mark.parametrize("codec", CODECS)
def test_a_row_wider_than_a_segment_arrives_between_the_others(link, codec):
    producer, consumer = link(compression=codec)
    schema = pa.schema([("s", pa.string())])
    rows = ["short", "wide" * 100_000, "short again"]
    batch = pa.record_batch({"s": rows}, schema=schema)
    [table] = exchange(producer, consumer, emit_all(batch, batch), schema=schema)
    assert table.column("s").to_pylist() == rows * 2


@pytest.mark.parametrize("codec", CODECS)
def test_events_and_barriers_keep_their_places(link, codec):
    producer, consumer = link(compression=codec)
    partition = producer.create_result_partition(1)
    gate = consumer.create_input_gate([partition.address(0)])
    events = []

    def on_event(event):
        events.append((event.name, event.body))
        if event.name == "barrier":
            gate.resume_consumption(event.channel)

    reader = hg.RecordReader(gate, serializer="bytes", on_event=on_event)

    def write():
        with hg.RecordWriter(partition, serializer="bytes") as writer:
            for turn in range(20):
                for _ in range(3):
                    writer.emit(bytes([turn]) * 40_000)
                name = "mark" if turn % 3 else "barrier"
                writer.broadcast_event(name, bytes([turn]) * 1000, is_barrier=name == "barrier")

    writing = Task(write)
    records = Task(list, reader).result()
    writing.result()
    assert records == [bytes([turn]) * 40_000 for turn in range(20) for _ in range(3)]
    names = ["mark" if turn % 3 else "barrier" for turn in range(20)]
    assert events == [(name, bytes([turn]) * 1000) for turn, name in enumerate(names)]


def test_rows_are_sent_by_time_and_compressed(environment):
    producer, consumer = environment(compression="zstd", buffer_timeout="5ms"), environment()
    partition = producer.create_result_partition(1, schema=WORDS.schema)
    gate = consumer.create_input_gate([partition.address(0)])
    reader = hg.RecordReader(gate)
    with hg.RecordWriter(partition) as writer:
        for _ in range(3):
            writer.emit(WORDS)
            rows = 0
            while rows < WORDS.num_rows:
                rows += Task(next, reader).result().num_rows
    counted = producer.stats()["compression"]
    assert 0 < counted["bytes_out"] < counted["bytes_in"]


def test_a_reader_of_the_same_process_gets_pages_as_they_were_written(environment):
    env = environment(compression="lz4")
    partition = env.create_result_partition(1, schema=WORDS.schema)
    gate = env.create_input_gate([partition.address(0)])
    with hg.RecordWriter(partition) as writer:
        writer.emit(WORDS)
    assert_same(drain(gate), WORDS)
    assert env.stats()["compression"] == {"bytes_in": 0, "bytes_out": 0}


def test_the_call_wins_over_the_environment(environment):
    env = environment(compression="lz4")
    for given, compresses in [(None, True), ("zstd", True), ("none", False)]:
        before = env.stats()["compression"]["bytes_in"]
        partition = env.create_result_partition(
            1, kind="blocking", schema=WORDS.schema, compression=given
        )
        with hg.RecordWriter(partition) as writer:
            writer.emit(WORDS)
        assert_same(drain(env.create_input_gate([partition.address(0)])), WORDS)
        assert (env.stats()["compression"]["bytes_in"] > before) is compresses
        partition.close()


def test_an_unknown_codec_is_refused_with_the_known_ones(environment):
    with pytest.raises(OptionError, match="compression='gzip'") as caught:
        environment(compression="gzip")
    assert 'compression="lz4"' in str(caught.value)
    with pytest.raises(OptionError, match="compression='zst'") as caught:
        environment().create_result_partition(1, compression="zst")
    assert 'compression="zstd"' in str(caught.value)


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_buffers_match_the_protocol(environment, codec):
    producer = environment(compression=codec)
    partition = producer.create_result_partition(1, schema=NUMBERS)
    pages = []
    for batch in (numbers(1), numbers(3000)):
        plain = producer.create_result_partition(1, schema=NUMBERS, compression="none")
        with hg.RecordWriter(plain) as writer:
            writer.emit(batch)
        page, _ = hg.BufferReader(producer.create_input_gate([plain.address(0)]))
        pages.append(page.data)
    address = partition.address(0)
    sock, _ = wire.consumer(address, SECRET)
    with sock as link:
        link.send_frames(wire.partition_request(address, credit=4))
        with hg.RecordWriter(partition) as writer:
            for rows in (1, 3000):
                writer.emit(numbers(rows))
                writer.flush()
        for page in pages:
            head = wire.receive(link, 35)
            compressed, size = head[26], struct.unpack(">I", head[27:31])[0]
            payload = wire.receive(link, size)
            assert compressed == 1
            assert size < len(page)
            assert unpack(payload) == page


@pytest.fixture(scope="module")
def page():
    """Return the bytes of a page with the numbers 0 to 999."""
    with hg.ShuffleEnvironment(memory="1m", segment_size="64k") as producer:
        partition = producer.create_result_partition(1, schema=NUMBERS)
        with hg.RecordWriter(partition) as writer:
            writer.emit(numbers(1000))
        first, _ = hg.BufferReader(producer.create_input_gate([partition.address(0)]))
    return first.data


def compressed(form, channel, sequence=0, **what):
    return wire.buffer(form, channel=channel, sequence=sequence, compressed=1, **what)


@pytest.mark.parametrize("codec", CODECS)
def test_buffers_compressed_by_another_implementation_are_read(environment, page, codec):
    def part(link, channel):
        link.send_frames(
            compressed(pack(codec, page), channel),
            wire.buffer(page, channel=channel, sequence=1),
            wire.end(2000, 2 * len(page), 2, channel=channel, sequence=2),
        )

    fake = wire.Producer(SECRET, part)
    consumer = environment()
    gate = consumer.create_input_gate([fake_address(fake)])
    assert_same(Task(drain, gate).result(), [numbers(1000)] * 2)
    consumer.close()
    fake.close()


def damaged(page):
    """Return invalid buffers, with the error text of each."""
    lz4, zstd = pack("lz4", page), pack("zstd", page)
    return {
        "empty": (b"", "0 bytes are too few"),
        "short": (lz4[:4], "4 bytes are too few"),
        "codec": (b"\3" + lz4[1:], "codec 3 is neither"),
        "nothing": (pack("lz4", page, 0), "stands for 0 bytes, 1 to 65536 fit"),
        "above a segment": (pack("zstd", page, wire.SEGMENT + 1), "stands for 65537 bytes"),
        "far above": (pack("lz4", page, 0xFFFFFFFF), "stands for 4294967295 bytes"),
        "longer": (pack("lz4", page, len(page) - 1), "block is damaged"),
        "longer zstd": (pack("zstd", page, len(page) - 1), "block is damaged"),
        "shorter": (pack("lz4", page, len(page) + 1), f"its block has {len(page)}"),
        "shorter zstd": (pack("zstd", page, len(page) + 1), f"its block has {len(page)}"),
        "cut": (lz4[:-1], "cannot be decompressed"),
        "cut zstd": (zstd[:-1], "block is damaged"),
        "noise": (zstd[:5] + bytes(range(256)), "block is damaged"),
        "before its start": (lz4[:5] + b"\x0f\xff\xff\x00", "block is damaged"),
    }


@pytest.mark.parametrize("wrong", damaged(b"x" * 1000))
def test_a_damaged_buffer_ends_its_channel_and_no_other(environment, page, wrong):
    form, said = damaged(page)[wrong]

    def part(link, channel):
        request = wire.receive(link, 77)
        other = struct.unpack(">I", request[29:33])[0]
        link.send_frames(
            wire.buffer(page, channel=channel, sequence=0),
            compressed(form, channel, 1),
            compressed(pack("lz4", page), other),
            wire.end(1000, len(page), 1, channel=other, sequence=1),
        )

    fake = wire.Producer(SECRET, part)
    consumer = environment(memory="2m")
    gates = [consumer.create_input_gate([fake_address(fake)]) for _ in range(2)]
    reader = hg.RecordReader(gates[0])
    assert_same(Task(next, reader).result(), numbers(1000))
    error = Task(next, reader).error()
    assert isinstance(error, IntegrityError)
    assert said in str(error)
    assert "buffer 1 cannot be decompressed" in str(error)
    assert_same(Task(drain, gates[1]).result(), numbers(1000))
    gates[0].close()
    wait_until(lambda: consumer.stats()["segments"]["held"] == 0)
    consumer.close()
    fake.close()


@pytest.mark.parametrize("wrong", [{"compressed": 2}, {"compressed": 1, "data_type": wire.EVENT}])
def test_a_frame_that_no_producer_makes_ends_the_connection(environment, page, wrong):
    def part(link, channel):
        link.send_frames(wire.buffer(page, channel=channel, sequence=0, **wrong))

    fake = wire.Producer(SECRET, part)
    consumer = environment()
    gate = consumer.create_input_gate([fake_address(fake)])
    error = Task(drain, gate).error()
    assert isinstance(error, ProtocolError)
    assert "compressed" in str(error)
    consumer.close()
    fake.close()
