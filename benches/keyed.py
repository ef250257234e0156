"""Records by key from one process to two others over TCP, against Flink's keyBy and the hand-rolled way.

Rows have a random 64-bit key and three more columns of 8 bytes. Headgate and the hand-rolled exchange
(``benches/hand_rolled.py``) start from the same prepared batches; the readers look at no value. Flink
creates its records as it goes, from prepared keys, with object reuse: "flink longs" sends the key alone,
"flink rows" the four columns as a Tuple4, and the sinks only count. The ratio is against the faster of the
two. Each clock runs from the first record made to the last one read, so it includes no cluster start,
connection or planning.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import repeat
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pyarrow as pa
from benches import flink_cluster, hand_rolled, harness

import headgate as hg

HOST = "127.0.0.1"
ROWS = 40 << 20
BATCH_ROWS = 1 << 16
ROW_BYTES = 32
CONSUMERS = 2


def main(arguments: Sequence[str]) -> None:
    options = harness.arguments(__doc__).parse_args(arguments)
    rows = ROWS // (40 if options.quick else 1) // BATCH_ROWS * BATCH_ROWS
    with ExitStack() as stack:
        producer = stack.enter_context(harness.process(produce))
        consumers = [stack.enter_context(harness.process(consume)) for _ in range(CONSUMERS)]
        contestants: dict[str, Callable[[], float]] = {
            "headgate": partial(headgate, producer, consumers, rows),
            "hand-rolled": partial(by_hand, producer, consumers, rows),
        }
        ratios = [harness.Ratio("keyed_handrolled", "hand-rolled", "headgate", goal=4.0)]
        jars = flink_cluster.libraries()
        if jars is None:
            print("Flink is not measured: pip install apache-flink-libraries")
        else:
            program = stack.enter_context(flink_cluster.program(jars))
            for kind in ("longs", "rows"):
                contestants[f"flink {kind}"] = partial(program.seconds, kind, rows)
            ratios.append(
                harness.Ratio("keyed_flink", ("flink longs", "flink rows"), "headgate", goal=5.0)
            )
        harness.compare(
            "keyed",
            f"{rows:,} records (key and three more columns of 8 bytes) from one process to "
            f"{CONSUMERS} others by the hash of the key, TCP on {HOST}",
            contestants,
            ratios,
            turns=options.turns,
            size=rows * ROW_BYTES,
            quick=options.quick,
        )


def headgate(producer: Connection, consumers: list[Connection], rows: int) -> float:
    secret = secrets.token_bytes(32)
    producer.send(("headgate", rows, secret))
    addresses = producer.recv()
    for consumer, address in zip(consumers, addresses, strict=True):
        consumer.send(("headgate", (secret, address)))
    return _seconds(producer, consumers, rows)


def by_hand(producer: Connection, consumers: list[Connection], rows: int) -> float:
    ports = []
    with socket.create_server((HOST, 0)) as server:
        for index, consumer in enumerate(consumers):
            consumer.send(("by hand", (index, server.getsockname())))
            ports.append(hand_rolled.port_of(server.accept()[0])[1])
    producer.send(("by hand", rows, ports))
    return _seconds(producer, consumers, rows)


def _seconds(producer: Connection, consumers: list[Connection], rows: int) -> float:
    """Start all once the consumers wait; return the seconds from the first row to the last."""
    for consumer in consumers:
        if consumer.recv() != "waits":
            raise AssertionError("a consumer is not ready")
    producer.send("go")
    started = producer.recv()
    ended, counted = zip(*(consumer.recv() for consumer in consumers), strict=True)
    if sum(counted) != rows or not all(counted):
        raise AssertionError(f"{counted} rows came of {rows}")
    # All processes of a machine share this clock.
    return max(ended) - started


# --- the other processes ---


def _orders(orders: Connection) -> Iterable[Any]:
    while True:
        try:
            yield orders.recv()
        except EOFError:
            return


def batch_of_random_keys() -> pa.RecordBatch:
    random = np.random.default_rng(42)
    numbers = np.arange(BATCH_ROWS)
    keys = random.integers(0, 1 << 40, BATCH_ROWS)
    return pa.record_batch({"key": keys, "i": numbers, "x": numbers * 0.5, "y": numbers * 0.25})


def produce(orders: Connection) -> None:
    batch = batch_of_random_keys()
    for kind, rows, place in _orders(orders):
        batches = repeat(batch, rows // BATCH_ROWS)
        if kind == "headgate":
            with hg.ShuffleEnvironment(
                listen=f"{HOST}:0", secret=place, same_host_link="off"
            ) as env:
                partition = env.create_result_partition(CONSUMERS, schema=batch.schema)
                orders.send([partition.address(index) for index in range(CONSUMERS)])
                with hg.RecordWriter(partition, selector=hg.HashSelector("key")) as writer:
                    orders.recv()
                    orders.send(time.monotonic())
                    for one in batches:
                        writer.emit(one)
                partition.wait_consumed(120)
        else:
            orders.recv()
            orders.send(time.monotonic())
            list(hand_rolled.produce(batches, "key", place))


def consume(orders: Connection) -> None:
    for kind, place in _orders(orders):
        if kind == "headgate":
            secret, address = place
            with hg.ShuffleEnvironment(secret=secret, same_host_link="off") as env:
                gate = env.create_input_gate([address])
                orders.send("waits")
                rows = sum(batch.num_rows for batch in hg.RecordReader(gate))
                orders.send((time.monotonic(), rows))
        else:
            index, driver = place
            received = hand_rolled.consume(iter([pa.record_batch({"id": [index]})]), driver, 1)
            orders.send("waits")
            rows = sum(batch.num_rows for batch in received)
            orders.send((time.monotonic(), rows))
