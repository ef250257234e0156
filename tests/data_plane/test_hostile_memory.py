"""A peer that has proved itself and then floods costs no more memory than its limits allow."""

import contextlib
import os
import socket
import struct
import threading
import time
from pathlib import Path

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
from test_same_host_peers import begin, connect_near, memory, send_with

import headgate as hg

#: Bytes by which a flood may make this process larger, besides the memory of its pool.
ALLOWED = 16 << 20
#: Bytes that a flood sends before it counts as not stopped.
FLOOD = 64 << 20
#: Consumers that flood one producer together.
MANY = 16
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
    block = frame * (rate or (1 << 20) // len(frame))
    return flood_with(link, block, 0.55 if rate else 0)


def flood_with(link, block, pause):
    """Like `flood`, with a block of frames and the seconds to wait after it."""
    link.settimeout(PATIENCE)
    try:
        for _ in range(FLOOD // len(block)):
            link.sendall(block)
            time.sleep(pause)
    except ConnectionError:
        return True
    return False


def narrow(link):
    """Give the peer little room for its answers, so that they soon wait in its memory."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return link


def budget(environment):
    """Return the bytes of the pool of an environment."""
    segments = environment.stats()["segments"]
    return segments["total"] * segments["size"]


def read_numbers(environment, consumer):
    """Read rows of an honest producer."""
    partition = environment().create_result_partition(1, schema=NUMBERS, kind="blocking")
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(1000))
    gate = consumer.create_input_gate([partition.address(0)])
    assert_same(Task(drain, gate).result(), numbers(1000))
    gate.close()


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


def test_answers_that_many_consumers_do_not_read(environment):
    """All connections together have one limit. The one that keeps the most ends first."""
    producer = environment(partition_request_timeout="0ms")
    address = producer.create_result_partition(1, schema=NUMBERS).address(0)
    links = [narrow(wire.consumer(address, SECRET)[0]) for _ in range(MANY)]
    request = wire.partition_request(address, partition=b"?" * 16)
    blocks = [wire.masked(request, link.mask) * 16_000 for link in links]
    with Watch() as watch:
        floods = [
            Task(flood_with, link, block, 0.55) for link, block in zip(links, blocks, strict=True)
        ]
        assert all(task.result(PATIENCE) for task in floods), "the producer has no limit"
    assert watch.most < ALLOWED
    for link in links:
        link.close()
    read_numbers(environment, producer)


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


def test_channels(environment):
    """A blocking partition has many readers, but a connection has not."""
    producer = environment()
    partition = producer.create_result_partition(1, schema=NUMBERS, kind="blocking")
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(10))
    address = partition.address(0)
    link, _ = wire.consumer(address, SECRET)
    ask = [wire.partition_request(address, channel=number, credit=0) for number in range(40_000)]
    with Watch() as watch, link:
        for half in (ask[:20_000], ask[20_000:]):
            link.sendall(b"".join(wire.masked(frame, link.mask) for frame in half))
            time.sleep(0.55)
        told = b""
        while told.count(b"channels of one connection are open") < 1000:
            told += link.recv(1 << 16)
    assert watch.most < ALLOWED


@pytest.mark.parametrize("channel", [0, 77], ids=["of an open channel", "of no channel"])
def test_credits(environment, channel):
    """The consumer reads nothing of what its credits are for."""
    producer = environment()
    partition = producer.create_result_partition(1, schema=NUMBERS, kind="pipelined")
    address = partition.address(0)

    def write():
        with hg.RecordWriter(partition) as writer:
            # More than the sockets and the pool hold.
            for _ in range(2000):
                writer.emit(numbers(4096))

    link, _ = wire.consumer(address, SECRET)
    with narrow(link):
        link.send_frames(wire.partition_request(address, credit=1))
        writing = Task(write)
        wait_until(lambda: producer.stats()["segments"]["held"] > 100)
        frame = wire.masked(wire.add_credit(1, channel), link.mask)
        with Watch() as watch:
            # A slow process takes fewer credits in a second than the limit is, so it takes all of them.
            if not flood(link, frame):
                wait_until(lambda: producer.stats()["bytes_received"] > FLOOD - (1 << 20))
                assert writing.running, "pages wait"
        producer.abort("the test ends")
        writing.error()
    # Credits bring no more memory than the pool has.
    assert watch.most < budget(producer) + ALLOWED


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


def test_task_events_of_many_consumers_for_partitions_that_never_appear(environment):
    producer = environment()
    address = producer.create_result_partition(1, schema=NUMBERS).address(0)
    links = [wire.consumer(address, SECRET)[0] for _ in range(MANY)]
    missing = wire.partition_request(address, partition=b"?" * 16)
    event = wire.task_event(bytes(60_000), 0)
    blocks = [
        wire.masked(missing, link.mask) + wire.masked_payload(event, link.mask) * 64
        for link in links
    ]
    with Watch() as watch:
        for link, block in zip(links, blocks, strict=True):
            with contextlib.suppress(ConnectionError):
                link.sendall(block)
        # The limit is 8 MiB.
        wait_until(lambda: producer.stats()["connections"]["tcp"] <= (8 << 20) // (64 * 60_000))
    assert watch.most < ALLOWED
    for link in links:
        link.close()


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


#: Frames that cost a producer no credit, and whether the consumer has a limit of them; others it skips unread.
FREE = {
    "heartbeats": (lambda channel: wire.frame(12), True),
    "backlogs": (lambda channel: wire.backlog(1 << 30, channel), True),
    "backlogs of no channel": (lambda channel: wire.backlog(1 << 30, channel + 1), True),
    "empty buffers of no channel": (
        lambda channel: wire.buffer(b"", channel=channel + 1, sequence=0, data_type=wire.DATA),
        True,
    ),
    "events of no channel": (
        lambda channel: wire.buffer(
            custom(0), channel=channel + 1, sequence=0, data_type=wire.EVENT
        ),
        True,
    ),
    "errors of no channel": (lambda channel: wire.error(3001, b"e" * 1000, channel + 1), False),
    "buffers of no channel": (
        lambda channel: wire.buffer(bytes(60_000), channel=channel + 1, sequence=0),
        False,
    ),
}


@pytest.mark.parametrize("kind", FREE)
def test_frames_of_a_producer_that_need_no_credit(environment, kind):
    make, limited = FREE[kind]
    ended, outcome = threading.Event(), []

    def part(link, channel):
        try:
            outcome.append(flood(link, wire.masked(make(channel), link.mask)))
        finally:
            ended.set()

    fake = wire.Producer(SECRET, part)
    consumer = environment()
    gate = consumer.create_input_gate([fake_address(fake, schema=None)])
    with Watch() as watch:
        assert ended.wait(PATIENCE), "the flood hangs"
        if not limited:
            wait_until(lambda: consumer.stats()["bytes_received"] > FLOOD - (2 << 20))
    assert outcome == [limited]
    assert watch.most < ALLOWED
    if limited:
        assert isinstance(errors_of(gate), hg.errors.ProtocolError)
    gate.close()
    # The consumer reads from others.
    read_numbers(environment, consumer)
    consumer.close()
    fake.close()
