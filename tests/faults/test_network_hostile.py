"""Lengths and credits that no correct peer sends. They are refused before memory is allocated."""

import errno
import math
import socket
import struct

import pytest
from tests.data_plane import wire
from tests.data_plane.conftest import environment, nothing_left
from tests.data_plane.plane import NUMBERS, SECRET, Task, assert_same, drain, numbers

import headgate as hg

__all__ = ["environment", "nothing_left"]

#: Bytes of the environments' pools.
POOL = 2 << 20
#: 0, the smallest lengths, and those around powers of two where a sum or a sign could overflow.
LENGTHS = [
    0,
    1,
    8,
    9,
    12,
    13,
    *(2**bits + by for bits in (15, 16, 24, 31) for by in (-1, 0, 1)),
    2**32 - 1,
]


def read_from(environment, part):
    """Return the outcome of a consumer that reads from a fake producer, within its pool's size."""
    fake = wire.Producer(SECRET, part)
    consumer = environment(memory="2m")
    address = hg.ChannelAddress(
        fake.host, fake.port, bytes(16), 0, fake.process, NUMBERS.serialize().to_pybytes()
    )
    gate = consumer.create_input_gate([address])
    outcome = Task(drain, gate).outcome(10)
    assert consumer.stats()["peak_bytes"] <= POOL
    consumer.close()
    fake.close()
    return outcome


def say_no_more(sock):
    """End the stream to the peer. The peer may have reset the connection before."""
    try:
        sock.shutdown(socket.SHUT_WR)
    except OSError as error:
        if error.errno != errno.ENOTCONN:
            raise


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", [0, 1, 3, 200], ids=["buffer", "error", "goodbye", "unknown"])
def test_any_length_of_any_frame_to_a_consumer(environment, kind, length):
    def part(sock, channel):
        sock.sendall(struct.pack(">IIB", length, wire.MAGIC, kind) + bytes(26))
        say_no_more(sock)

    outcome = read_from(environment, part)
    assert isinstance(outcome, hg.HeadgateError), repr(outcome)
    assert "127.0.0.1" in str(outcome), "the peer is not named"


@pytest.mark.parametrize("size", [*LENGTHS, 2**32 - 35, 2**32 - 36])
def test_any_size_of_a_buffer_whose_frame_agrees(environment, size):
    length = (35 + size) % 2**32

    def part(sock, channel):
        head = struct.pack(
            ">IIBIIIIBBI", length, wire.MAGIC, 0, channel, 0, 0, 0, wire.PAGE, 0, size
        )
        sock.sendall(head + bytes(4) + bytes(min(size, 70_000)))
        say_no_more(sock)

    outcome = read_from(environment, part)
    assert isinstance(outcome, hg.HeadgateError), repr(outcome)


@pytest.fixture
def served(environment):
    """Yield a partition, then check that its other subpartition can still be read."""
    producer = environment(memory="2m")
    partition = producer.create_result_partition(2, schema=NUMBERS, lost_consumer_timeout=math.inf)
    with hg.RecordWriter(partition, selector=hg.BroadcastSelector()) as writer:
        writer.emit(numbers(100))
    yield partition
    gate = environment().create_input_gate([partition.address(1)])
    assert_same(Task(drain, gate).result(), numbers(100))
    assert producer.stats()["peak_bytes"] <= POOL


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", [2, 4, 5, 6, 7], ids=["request", "cancel", "close", "credit", "7"])
def test_any_length_of_any_frame_to_a_producer(served, kind, length):
    sock, _ = wire.consumer(served.address(0), SECRET)
    with sock:
        sock.sendall(struct.pack(">IIB", length, wire.MAGIC, kind) + bytes(100))
        assert wire.is_closed(sock, 5)


CREDITS = {
    "zero": [0],
    "one too many in one step": [2**32 - 1, 1],
    "too many in two steps": [2**31, 2**31],
    "too many in small steps": [2**30] * 4,
}


@pytest.mark.parametrize("credits_", CREDITS.values(), ids=CREDITS)
def test_credits_that_no_receiver_can_have_end_one_connection(served, credits_):
    sock, _ = wire.consumer(served.address(0), SECRET)
    with sock:
        sock.send_frames(wire.partition_request(served.address(0), channel=3, credit=1))
        sock.send_frames(*(wire.add_credit(credit, 3) for credit in credits_))
        assert wire.is_closed(sock, 5)


def test_credits_before_the_channel_is_open_and_after_it_was_cancelled_change_nothing(served):
    sock, _ = wire.consumer(served.address(0), SECRET)
    with sock:
        sock.send_frames(wire.add_credit(7, 3))
        sock.send_frames(wire.partition_request(served.address(0), channel=3, credit=1))
        sock.send_frames(wire.cancel(3), wire.add_credit(5, 3), wire.cancel(3))
        assert not wire.is_closed(sock, 1)


def test_a_request_without_any_credit_gets_data_for_the_credit_that_follows(served):
    backlog_announcement, data_buffer = 9, 0
    sock, _ = wire.consumer(served.address(0), SECRET)
    with sock:
        sock.send_frames(wire.partition_request(served.address(0), channel=3, credit=0))
        announced = wire.receive(sock, 21)
        assert announced[8] == backlog_announcement
        assert struct.unpack(">I", announced[13:17]) == (3,)
        sock.settimeout(0.5)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        sock.settimeout(10)
        sock.send_frames(wire.add_credit(1, 3))
        assert wire.receive(sock, 9)[8] == data_buffer


def test_credits_of_one_connection_are_none_of_another_one(environment):
    producer = environment()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(20_000))
    first, _ = wire.consumer(partition.address(0), SECRET)
    second, _ = wire.consumer(partition.address(0), SECRET)
    with first, second:
        first.send_frames(wire.partition_request(partition.address(0), channel=3, credit=1))
        length = struct.unpack(">I", wire.receive(first, 4))[0]
        assert len(wire.receive(first, length - 4)) == length - 4
        second.send_frames(wire.add_credit(9, 3))
        first.settimeout(0.5)
        with pytest.raises(TimeoutError):
            first.recv(1)
        first.settimeout(10)
        first.send_frames(wire.add_credit(9, 3))
        assert len(wire.receive(first, 35)) == 35
