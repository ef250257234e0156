"""A client that knows the secret floods frames that need no credit; an exchange beside it stays right.

``HEADGATE_TEST_FLOOD_SECONDS`` is how long each flood lasts (default 10).
"""

import os
import select
import struct
import threading
import time

import pytest
from tests.data_plane import wire
from tests.data_plane.conftest import environment, nothing_left
from tests.data_plane.plane import NUMBERS, SECRET, Task, assert_same, drain, numbers

import headgate as hg

__all__ = ["environment", "nothing_left"]

SECONDS = float(os.environ.get("HEADGATE_TEST_FLOOD_SECONDS", "10"))
#: Frames of each of these kinds that a connection may bring in a second.
LIMIT = 65_536
#: Channel that no request has opened.
NONE = 77
ROWS = numbers(200_000)


def kinds(address):
    """Return one frame of each kind, without its mask; none of them costs the client anything."""
    return {
        "heartbeats": wire.frame(12),
        "cancels": wire.cancel(NONE),
        "credits": wire.add_credit(1, NONE),
        "requests": wire.partition_request(address, partition=bytes(16), channel=NONE),
        "task events": wire.task_event(struct.pack(">IH", 3, 4) + b"mine" + bytes(4), NONE),
    }


KINDS = list(kinds(hg.ChannelAddress("127.0.0.1", 1, bytes(16), 0, bytes(16))))


class Flood:
    """Sends frames of one kind until it is stopped, and connects again when its connection ends.

    Args:
        address: of a partition of the process that is flooded.
        kind: of the frames.
        rate: frames for each second, or None for as many as the process takes.
    """

    def __init__(self, address, kind, rate=None):
        self._address = address
        self._frame = kinds(address)[kind]
        self._mask = wire.masked_payload if kind == "task events" else wire.masked
        self._rate = rate
        self._stop = threading.Event()
        self.sent = self.ended = 0
        self.told = b""
        self._task = Task(self._run)

    def _run(self):
        while not self._stop.is_set():
            sock, steps = wire.consumer(self._address, SECRET)
            with sock:
                assert steps[-1] == b"HDGT\4"
                try:
                    self._flood(sock)
                except ConnectionError:
                    self.ended += 1

    def _flood(self, sock):
        count = 4096 if self._rate is None else self._rate // 20
        frames = self._mask(self._frame, sock.mask) * count
        due = time.monotonic()
        while not self._stop.is_set():
            self._hear(sock)
            sock.sendall(frames)
            self.sent += count
            if self._rate is not None:
                due += count / self._rate
                self._stop.wait(max(0.0, due - time.monotonic()))

    def _hear(self, sock):
        """Read the answers, since a client that does not read them is told off for that."""
        while select.select([sock], [], [], 0)[0]:
            if not (said := sock.recv(65536)):
                raise ConnectionError
            self.told = (self.told + said)[-2000:]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._task.result()


def exchanges(environment, producer, seconds):
    """Exchange rows again and again, at least once; return the seconds for each exchange."""
    consumer = environment(memory="8m", same_host_link="off")
    started, count = time.monotonic(), 0
    while count == 0 or time.monotonic() - started < seconds:
        partition = producer.create_result_partition(1, schema=NUMBERS)

        def write(partition=partition):
            with hg.RecordWriter(partition) as writer:
                writer.emit(ROWS)

        gate = consumer.create_input_gate([partition.address(0)])
        writing = Task(write)
        assert_same(Task(drain, gate).result(120), ROWS)
        writing.result()
        gate.close()
        partition.close()
        count += 1
    took = (time.monotonic() - started) / count
    consumer.close()
    return took


@pytest.mark.timeout(400)
@pytest.mark.parametrize("rate", [LIMIT // 4, None], ids=["below the limit", "at full speed"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_exchange_beside_a_flood(environment, kind, rate):
    producer = environment(memory="8m", same_host_link="off", partition_request_timeout=0)
    kept = producer.create_result_partition(1, schema=NUMBERS, kind="blocking")
    with hg.RecordWriter(kept) as writer:
        writer.emit(numbers(10))
    address = kept.address(0)
    alone = exchanges(environment, producer, SECONDS / 5)
    with Flood(address, kind, rate) as flood:
        beside = exchanges(environment, producer, SECONDS)
    print(
        f"{kind}: {flood.sent / SECONDS:,.0f} frames/s, {flood.ended} connections ended, "
        f"an exchange took {beside * 1000:.0f} ms, alone {alone * 1000:.0f} ms"
    )
    assert flood.sent > 0
    if rate is not None:
        assert flood.ended == 0, flood.told
    elif kind not in {"requests", "credits"}:
        # Each request is answered, and there may be 16 times as many credits as others, so a slow process
        # takes fewer of them than the limit allows.
        assert flood.ended > 0, "a connection above the limit ends"
    # The process serves whoever comes next, and its memory is its own again.
    gate = environment(same_host_link="off").create_input_gate([address])
    assert_same(Task(drain, gate).result(), numbers(10))
    gate.close()
    kept.close()
    producer.close()
    assert producer.stats()["segments"]["held"] == 0
