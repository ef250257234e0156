"""Compressed buffers over every kind of partition and link, and from hostile peers."""

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
    fake_address,
    numbers,
    wait_until,
)

import headgate as hg
from headgate.errors import IntegrityError, OptionError

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


def test_a_damaged_buffer_ends_its_channel_and_no_other(environment, page):
    form = pack("lz4", page, len(page) + 1)

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
    assert f"its block has {len(page)}" in str(error)
    assert "buffer 1 cannot be decompressed" in str(error)
    assert_same(Task(drain, gates[1]).result(), numbers(1000))
    gates[0].close()
    wait_until(lambda: consumer.stats()["segments"]["held"] == 0)
    consumer.close()
    fake.close()
