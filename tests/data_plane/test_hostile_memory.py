"""A peer that has proved itself and then floods costs no more memory than its limits allow."""

import os
import socket
import struct
import threading
import time
from pathlib import Path

import pytest
import wire
from plane import NUMBERS, SECRET, Task, fake_address
from test_same_host_peers import begin, connect_near, memory, send_with

import headgate as hg

#: Bytes by which a flood may make this process larger, besides the memory of its pool.
ALLOWED = 16 << 20
#: Bytes that a flood sends before it counts as not stopped.
FLOOD = 64 << 20
#: Seconds after which a flood that is neither stopped nor sent counts as hanging.
PATIENCE = 60.0


def resident(kind="VmRSS"):
    """Return the bytes of this process in memory; with ``RssAnon`` those of its own only."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) << 10
    raise AssertionError(kind)


def custom(size):
    """Return an event of the user with a body of this size."""
    return struct.pack(">IHcI", 3, 1, b"x", size) + bytes(size)


class Watch:
    """The growth of this process while a flood runs."""

    def __init__(self, kind="VmRSS"):
        self._kind = kind
        self._before = resident(kind)
        self.most = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self):
        while not self._ended.wait(0.002):
            self.most = max(self.most, resident(self._kind) - self._before)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()


def flood(link, frame, rate=None):
    """Send a frame over and over, reading nothing; return True if the peer ended the connection.

    ``rate`` frames are sent in half a second: below the limit that the kind of frame has itself.
    """
    at_once = rate or (1 << 20) // len(frame)
    link.settimeout(PATIENCE)
    try:
        for _ in range(FLOOD // (at_once * len(frame))):
            link.sendall(frame * at_once)
            if rate:
                time.sleep(0.55)
    except ConnectionError:
        return True
    return False


def narrow(link):
    """Give the peer little room for its answers, so that they soon wait in its memory."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return link


def errors_of(gate):
    return Task(lambda: list(hg.RecordReader(gate, serializer="bytes"))).error(PATIENCE)


@pytest.mark.parametrize("near", [False, True], ids=["tcp", "same host"])
def test_answers_that_a_consumer_does_not_read(environment, near, monkeypatch):
    producer = environment(partition_request_timeout="0ms")
    address = producer.create_result_partition(1, schema=NUMBERS).address(0)
    if near:
        monkeypatch.setattr(wire, "connect", connect_near)
    link, _ = wire.consumer(address, SECRET)
    with narrow(link), Watch() as watch:
        request = wire.masked(wire.partition_request(address, partition=b"?" * 16), link.mask)
        assert flood(link, request, 32_000), "the producer has no limit"
    assert watch.most < ALLOWED


def test_refusals_of_task_events_that_a_consumer_does_not_read(environment):
    producer = environment()
    address = producer.create_result_partition(1, schema=NUMBERS).address(0)
    link, _ = wire.consumer(address, SECRET)
    with narrow(link), Watch() as watch:
        link.send_frames(wire.partition_request(address))
        event = wire.task_event(b"\0\0\0\3\0\1x\0\0\0\0", 0)
        assert flood(link, wire.masked_payload(event, link.mask), 32_000), (
            "the producer has no limit"
        )
    assert watch.most < ALLOWED


def test_task_events_for_partitions_that_never_appear(environment):
    producer = environment()
    address = producer.create_result_partition(1, schema=NUMBERS).address(0)
    link, _ = wire.consumer(address, SECRET)
    with link, Watch() as watch:
        for channel in range(8):
            missing = bytes([channel] * 16)
            link.send_frames(wire.partition_request(address, partition=missing, channel=channel))
            event = wire.masked_payload(wire.task_event(bytes(60_000), channel), link.mask)
            for _ in range(64):
                link.sendall(event)
        # The answer to a second request for a channel follows those to the events.
        link.send_frames(wire.partition_request(address, partition=bytes(16), channel=0))
        got = b""
        while b"open already" not in got:
            more = link.recv(65536)
            assert more, got
            got += more
        assert b"too many task events" in got
    assert watch.most < ALLOWED


def flooded(environment, make, kind, watched="VmRSS"):
    """Return the error of a consumer that a producer floods, and the growth of this process."""
    ended = threading.Event()
    outcome = []

    def part(link, channel):
        try:
            outcome.append(make(link, channel))
        finally:
            ended.set()

    fake = kind(SECRET, part)
    consumer = environment()
    gate = consumer.create_input_gate([fake_address(fake, schema=None)])
    with Watch(watched) as watch:
        assert ended.wait(PATIENCE), "the flood hangs"
    assert outcome == [True], "the consumer has no limit"
    error = errors_of(gate)
    gate.close()
    consumer.close()
    fake.close()
    assert isinstance(error, hg.errors.ProtocolError), repr(error)
    return str(error), watch.most


def test_events_that_nobody_reads(environment):
    def part(link, channel):
        link.settimeout(PATIENCE)
        try:
            for event in wire.buffers(custom(60_000), 1_000, channel=channel, data_type=wire.EVENT):
                link.send_frames(event)
        except ConnectionError:
            return True
        return False

    text, grown = flooded(environment, part, wire.Producer)
    assert "of events" in text
    assert grown < ALLOWED


def test_many_small_events_that_nobody_reads(environment):
    def part(link, channel):
        link.settimeout(PATIENCE)
        try:
            for number in range(20):
                events = wire.buffers(
                    custom(0), 20_000, channel=channel, data_type=wire.EVENT, first=number * 20_000
                )
                link.sendall(b"".join(wire.masked(event, link.mask) for event in events))
                # No more than the limit of frames within a second.
                time.sleep(0.5)
        except ConnectionError:
            return True
        return False

    text, grown = flooded(environment, part, wire.Producer)
    assert "of events" in text
    assert grown < ALLOWED


def test_returned_loans_that_a_producer_does_not_read(environment):
    def part(link, channel):
        begin(narrow(link)).close()
        send_with(link, wire.region(3, 65536), memory())
        unknown = wire.lent_buffer(channel + 1, 0, 4096, 7, 3, 0)
        return flood(link, wire.masked(unknown, link.mask))

    text, grown = flooded(environment, part, wire.NearProducer)
    assert "does not read" in text
    assert grown < ALLOWED


def test_more_memory_than_the_host_has(environment):
    def part(link, channel):
        begin(link).close()
        link.settimeout(PATIENCE)
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        size -= size % 4096
        try:
            for number in range(64):
                send_with(link, wire.region(number, size), memory(size))
            while link.recv(4096):
                pass
        except ConnectionError:
            pass
        return True

    text, grown = flooded(environment, part, wire.NearProducer)
    assert "of this host" in text
    assert grown < ALLOWED
