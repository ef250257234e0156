"""Seconds until a process notices that its peer was killed, over TCP, as ``docs/faults.md`` promises.

A producer is killed by SIGKILL while it writes, or while it is idle and the consumer waits for rows; a
consumer is killed while its producer waits for credit. The clock runs from the signal to the
``PeerLostError`` of the other process. The peer is the promised second, as a contestant that always takes
exactly that.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection

import pyarrow as pa
from benches import harness

import headgate as hg

#: Seconds in which docs/faults.md promises that a killed peer is noticed.
PROMISED = 1.0
BATCH = pa.record_batch({"n": pa.array(range(10_000), pa.int64())})
OPTIONS = {"listen": "127.0.0.1:0", "memory": "8m", "same_host_link": "off"}


def main(arguments: Sequence[str]) -> None:
    options = harness.arguments(__doc__).parse_args(arguments)
    lost = {
        "producer writes": partial(producer_lost, busy=True),
        "producer is idle": partial(producer_lost, busy=False),
        "consumer": consumer_lost,
    }
    harness.compare(
        "lost",
        "from SIGKILL of a peer to the error of the other process; two processes, TCP",
        {**lost, "promised": lambda: PROMISED},
        [harness.Ratio(f"lost_{name.split()[-1]}", "promised", name, goal=1.0) for name in lost],
        turns=options.turns,
        size=0,
        quick=options.quick,
    )


def producer_lost(*, busy: bool) -> float:
    """Kill a producer; return the seconds until its consumer raises."""
    with child(partial(produce, busy=busy)) as (pid, orders), environment() as (secret, env):
        orders.send(secret)
        gate = env.create_input_gate([orders.recv()], schema=BATCH.schema)
        reader = hg.RecordReader(gate)
        next(reader)
        timer = threading.Timer(0.3, kill := Kill(pid))
        timer.start()
        try:
            for _ in reader:
                pass
        except hg.errors.PeerLostError:
            return time.perf_counter() - kill.at
    raise AssertionError("the reader ended although its producer was killed")


def consumer_lost() -> float:
    """Kill a consumer that reads nothing; return the seconds until its producer raises."""
    with child(consume) as (pid, orders), environment() as (secret, env):
        partition = env.create_result_partition(1, schema=BATCH.schema)
        orders.send((secret, partition.address(0)))
        timer = threading.Timer(0.3, kill := Kill(pid))
        try:
            with hg.RecordWriter(partition) as writer:
                writer.emit(BATCH)
                orders.recv()
                timer.start()
                while True:
                    writer.emit(BATCH)
        except hg.errors.PeerLostError:
            return time.perf_counter() - kill.at


class Kill:
    """Kills a process, and keeps the time at which it did."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.at = 0.0

    def __call__(self) -> None:
        self.at = time.perf_counter()
        os.kill(self._pid, signal.SIGKILL)


@contextlib.contextmanager
def environment() -> Iterator[tuple[bytes, hg.ShuffleEnvironment]]:
    secret = secrets.token_bytes(32)
    with hg.ShuffleEnvironment(secret=secret, **OPTIONS) as env:
        yield secret, env


@contextlib.contextmanager
def child(body: partial[None]) -> Iterator[tuple[int, Connection]]:
    """Run ``body`` in a new process; yield its pid and our end of its connection."""
    with harness.process(partial(report_pid, body)) as orders:
        yield orders.recv(), orders


# --- the process that is killed ---


def report_pid(body: partial[None], orders: Connection) -> None:
    orders.send(os.getpid())
    body(orders)


def produce(orders: Connection, *, busy: bool) -> None:
    with hg.ShuffleEnvironment(secret=orders.recv(), **OPTIONS) as env:
        partition = env.create_result_partition(1, schema=BATCH.schema)
        orders.send(partition.address(0))
        with hg.RecordWriter(partition) as writer:
            writer.emit(BATCH)
            writer.flush()
            while busy:
                writer.emit(BATCH)
            signal.pause()


def consume(orders: Connection) -> None:
    secret, address = orders.recv()
    with hg.ShuffleEnvironment(secret=secret, **OPTIONS) as env:
        reader = hg.RecordReader(env.create_input_gate([address], schema=BATCH.schema))
        batch = next(reader)
        orders.send(batch.num_rows)
        signal.pause()
