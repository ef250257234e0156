"""Many channels on one connection: 1,000 against 10, and 1,000 with one that nobody reads.

Two processes, TCP, one gate, the same bytes in pages of 16 KiB each time. The blocked channel belongs to
a second gate of the same process: its producer has used up its credit and waits, on the connection that
all channels share. With --seconds each run lasts about that long, and only the 1,000 are compared, with
and without a blocked channel.
"""

from __future__ import annotations

import secrets
import time
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection

import numpy as np
import pyarrow as pa
from benches import harness

import headgate as hg

HOST = "127.0.0.1"
#: Off, so that the pages cross TCP although both processes run on one host.
TCP = {"same_host_link": "off"}
MEMORY = "256m"
SEGMENT = 16 << 10
ROWS = 500
BATCH_BYTES = ROWS * 32
TOTAL = 512 << 20
FEW, MANY = 10, 1000
#: Uses up the credit of a channel without making its writer wait.
STUCK = 6


def main(arguments: Sequence[str]) -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("--seconds", type=float, help="how long a run should last")
    options = parser.parse_args(arguments)
    number = TOTAL // BATCH_BYTES // (16 if options.quick else 1)
    with harness.process(produce) as producer:
        if options.seconds is not None:
            blocked_for(options, producer, number)
            return
        harness.compare(
            "channels",
            f"{number:,} batches of {BATCH_BYTES:,} bytes over one connection, two processes; "
            f"one gate of {MANY:,} or {FEW} channels",
            {
                "10 channels": partial(read, producer, FEW, number, blocked=False),
                "1,000 channels": partial(read, producer, MANY, number, blocked=False),
                "1,000 and one blocked": partial(read, producer, MANY, number, blocked=True),
            },
            [
                harness.Ratio("channels", "10 channels", "1,000 channels", goal=0.85),
                harness.Ratio(
                    "channels_blocked", "1,000 channels", "1,000 and one blocked", goal=0.95
                ),
            ],
            turns=options.turns,
            size=number * BATCH_BYTES,
            quick=options.quick,
        )


def blocked_for(options: Namespace, producer: Connection, number: int) -> None:
    """Compare runs of some seconds each, with one channel blocked throughout and with none."""
    sample = read(producer, MANY, number, blocked=False)
    number = round(number * options.seconds / sample)
    harness.compare(
        "channels_long",
        f"{number:,} batches of {BATCH_BYTES:,} bytes over one connection, two processes; one gate of "
        f"{MANY:,} channels, {options.seconds:g} s a run",
        {
            "1,000 channels": partial(read, producer, MANY, number, blocked=False),
            "1,000 and one blocked": partial(read, producer, MANY, number, blocked=True),
        },
        [harness.Ratio("channels_long", "1,000 channels", "1,000 and one blocked", goal=0.95)],
        turns=options.turns,
        size=number * BATCH_BYTES,
        quick=options.quick,
    )


def batch() -> pa.RecordBatch:
    numbers = np.arange(ROWS)
    return pa.record_batch({"key": numbers, "i": numbers, "x": numbers * 0.5, "y": numbers * 0.25})


def produce(orders: Connection) -> None:
    """Carry out orders until the other end closes the connection."""
    one = batch()
    while True:
        try:
            channels, number, blocked = orders.recv()
        except EOFError:
            return
        secret = secrets.token_bytes(32)
        with hg.ShuffleEnvironment(
            memory=MEMORY, segment_size=SEGMENT, listen=f"{HOST}:0", secret=secret, **TCP
        ) as env:
            stuck = env.create_result_partition(1, schema=one.schema)
            output = env.create_result_partition(channels, schema=one.schema)
            addresses = [output.address(index) for index in range(channels)]
            orders.send((secret, addresses, stuck.address(0)))
            writer = hg.RecordWriter(stuck)
            for _ in range(STUCK if blocked else 0):
                writer.emit(one)
                writer.flush()
            orders.recv()
            with hg.RecordWriter(output) as many:
                for _ in range(number):
                    many.emit(one)
            output.wait_consumed(120)
            writer.finish()
            stuck.wait_consumed(120)


def read(orders: Connection, channels: int, number: int, *, blocked: bool) -> float:
    orders.send((channels, number, blocked))
    secret, addresses, stuck = orders.recv()
    with hg.ShuffleEnvironment(memory=MEMORY, segment_size=SEGMENT, secret=secret, **TCP) as env:
        waits = env.create_input_gate([stuck])
        gate = env.create_input_gate(addresses)
        orders.send("go")
        started = time.perf_counter()
        rows = sum(part.num_rows for part in hg.RecordReader(gate))
        seconds = time.perf_counter() - started
        left = sum(part.num_rows for part in hg.RecordReader(waits))
    sent = (number * ROWS, STUCK * ROWS if blocked else 0)
    if (rows, left) != sent:
        raise AssertionError(f"{rows} and {left} rows came, {sent} were sent")
    return seconds
