"""Bytes that are dropped, duplicated, reordered, spliced or cut: never a wrong row or a hang."""

import struct
from typing import NamedTuple

import pyarrow as pa
import pytest
from tests.data_plane.conftest import environment, nothing_left
from tests.data_plane.plane import NUMBERS, Task, assert_same, numbers
from tests.faults.network import EXPECTED, SEEDS, Run, check
from tests.kit.fault_proxy import FaultProxy
from tests.kit.faults import DAMAGES, DELAYS, ENDS, SILENCES, TO_CLIENT, Fault

import headgate as hg

__all__ = ["environment", "nothing_left"]

errors = hg.errors
#: Bytes of the handshake to the consumer: challenge and accept.
HANDSHAKE = 91 + 5
#: Bytes of a buffer's frame before its rows.
HEADER = 35


class Frame(NamedTuple):
    """The position of a frame in the stream to the consumer."""

    offset: int
    length: int


def frames_of(recorded):
    """Return the frames in the bytes that one consumer received."""
    found, offset = [], HANDSHAKE
    while offset < len(recorded):
        length = struct.unpack_from(">I", recorded, offset)[0]
        found.append(Frame(offset, length))
        offset += length
    return found


@pytest.fixture
def run(environment):
    """Return a function that creates a run with a fault. The run is closed with the test."""
    made = []

    def make(fault=None):
        made.append(Run(environment, fault))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def pages(run):
    """Return the full frames of an undamaged run, which all have the same length."""
    undamaged = run()
    assert_same(undamaged.outcome(), EXPECTED)
    frames = frames_of(undamaged.proxy.recorded[TO_CLIENT])
    pages = [frame for frame in frames if frame.length == frames[0].length]
    assert len(pages) >= 10
    return pages


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("part", range(2))
def test_any_range_of_bytes(environment, pages, kind, part):
    lengths = (600, pages[-1].offset)
    for seed in range(part, max(SEEDS // 2, 2), 2):
        print("seed", seed)
        check(environment, Fault.random(seed, [kind], lengths))


@pytest.mark.parametrize("part", range(2))
def test_any_end(environment, pages, part):
    lengths = (600, pages[-1].offset)
    for seed in range(part, max(SEEDS // 2, 2), 2):
        print("seed", seed)
        fault = Fault.random(seed, ENDS, lengths)
        outcome = check(environment, fault)
        # A consumer whose connection ends within the handshake dials again.
        if fault.direction == TO_CLIENT and fault.offset >= HANDSHAKE:
            assert isinstance(outcome, (errors.PeerLostError, errors.HandshakeError)), outcome


def test_whatever_only_takes_time_costs_no_row(environment, pages):
    lengths = (600, pages[-1].offset)
    for seed in range(max(SEEDS // 8, 4)):
        print("seed", seed)
        assert_same(check(environment, Fault.random(seed, DELAYS, lengths)), EXPECTED)


@pytest.mark.soak
def test_silence_anywhere_ends_with_the_connection(environment, pages):
    lengths = (600, pages[-1].offset)
    for seed in range(max(SEEDS // 10, 4)):
        print("seed", seed)
        outcome = check(environment, Fault.random(seed, SILENCES, lengths))
        assert isinstance(outcome, (pa.Table, errors.PeerLostError, errors.HandshakeError)), outcome


def whole(kind, pages, at):
    """Return a fault of exactly one whole frame, or of two consecutive ones."""
    return Fault(kind, TO_CLIENT, pages[at].offset, pages[at].length)


@pytest.mark.parametrize("kind", ["drop", "duplicate", "reorder"])
@pytest.mark.parametrize("at", [0, 1, 5])
def test_a_whole_frame_that_is_lost_doubled_or_swapped_is_told_by_its_sequence(
    run, pages, kind, at
):
    damaged = run(whole(kind, pages, at))
    outcome = damaged.outcome()
    assert damaged.proxy.struck
    assert type(outcome) is errors.IntegrityError, repr(outcome)
    text = str(outcome)
    assert "channel 0 expects buffer" in text
    assert str(damaged.proxy.port) in text, "the peer is not named"


@pytest.mark.parametrize("cut", [1, HEADER - 1, HEADER, HEADER + 1, 5_000])
def test_a_frame_that_is_cut_is_a_lost_peer_by_name(run, pages, cut):
    damaged = run(Fault("cut", TO_CLIENT, pages[3].offset + cut))
    outcome = damaged.outcome()
    assert isinstance(outcome, errors.PeerLostError), repr(outcome)
    assert str(damaged.proxy.port) in str(outcome), "the peer is not named"


@pytest.mark.parametrize("kind", ["drop", "duplicate"])
def test_bytes_in_the_middle_of_a_frame(run, pages, kind):
    for length in (1, HEADER, pages[0].length // 2):
        damaged = run(Fault(kind, TO_CLIENT, pages[2].offset + 1_000, length))
        outcome = damaged.outcome()
        assert isinstance(outcome, (errors.IntegrityError, errors.ProtocolError)), repr(outcome)


def read_both(environment, fault=None, *, other_channel=False):
    """Let two consumers read from one producer, one after the other, each on its own connection.

    Returns their rows or errors, and the frames to the first consumer. Both get the same number of
    rows. The rows of the second one start at a billion.
    """
    small = {"memory": "4m", "segment_size": "16k"}
    producer, consumers = environment(**small), [environment(**small) for _ in range(2)]
    partition = producer.create_result_partition(3, schema=NUMBERS)
    # All pages fit in the pool, so the producer never waits for a reader.
    Task(write_all, partition).result()
    address = partition.address(0)
    with FaultProxy(address.host, address.port, fault) as proxy:
        outcomes = []
        for index, consumer in enumerate(consumers):
            wanted = [index, 2] if index and other_channel else [index]
            outcomes.append(Task(read_all, consumer, partition, proxy, wanted).outcome())
            consumer.close()
        producer.abort("it was read")
        producer.close()
        assert fault is None or proxy.struck
        return outcomes, frames_of(proxy.recorded[TO_CLIENT][: proxy.passed[TO_CLIENT] // 2])


def write_all(partition):
    with hg.RecordWriter(partition) as writer:
        for turn in range(4):
            for index, count in enumerate((3_000, 3_000, 10)):
                rows = numbers(count, 10**9 * index + count * turn)
                writer._native.emit_to(rows, pa.array([index] * count, pa.uint32()))


def read_all(consumer, partition, proxy, wanted):
    """Read subpartitions in a gate each, the last one first; return the rows of the first."""
    for index in reversed(wanted):
        gate = consumer.create_input_gate([proxy.address(partition.address(index))])
        rows = [n for batch in hg.RecordReader(gate) for n in batch["n"].to_pylist()]
        gate.close()
    return rows


RIGHT = [[10**9 * index + n for n in range(12_000)] for index in range(2)]


@pytest.mark.timeout(60)
def test_two_consumers_without_a_splice(environment):
    outcomes, frames = read_both(environment)
    assert outcomes == RIGHT
    assert len(frames) > 5


def test_a_frame_of_another_connection_and_channel_is_refused(environment):
    _, frames = read_both(environment)
    fault = Fault("splice", TO_CLIENT, *frames[2])
    (first, second), _ = read_both(environment, fault, other_channel=True)
    assert first == RIGHT[0]
    assert isinstance(second, (errors.IntegrityError, errors.ProtocolError)), repr(second)


def test_a_frame_of_another_connection_with_the_same_numbers_is_refused(environment):
    _, frames = read_both(environment)
    (first, second), _ = read_both(environment, Fault("splice", TO_CLIENT, *frames[2]))
    assert first == RIGHT[0]
    assert isinstance(second, errors.IntegrityError), repr(second)
    assert "checksum" in str(second)
