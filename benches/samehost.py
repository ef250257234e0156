"""Two processes of one host that share memory, against Arrow Flight and against memory of this process.

A second process sends prepared batches of 2 MiB (four columns of 8 bytes), as in the bench ``loopback``, but
without TCP: this process maps its pages, in segments of 1 MiB. In one run the reader looks at no value; in
another it sums every column of every batch. The same sum over memory of this process shows the cost of
reading alone.

The latency is that of one row, from ``emit`` in one process to ``next`` in the other: the row goes there and
back through two exchanges, and half of that is one way. The peer is a byte that goes there and back over a
Unix socket, written and read in Python.
"""

from __future__ import annotations

import multiprocessing
import secrets
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection

import pyarrow as pa
import pyarrow.compute as pc
from benches import harness
from benches.loopback import batch_of, by_flight, checked, headgate, produce, rows_of

import headgate as hg

BATCH = 2 << 20
TOTAL = 4 << 30
#: Bytes in this process that are summed again and again: larger than any cache.
HERE = 64 << 20
ROUNDS = 5_000


def main(arguments: Sequence[str]) -> None:
    options = harness.arguments(__doc__).parse_args(arguments)
    number = TOTAL // BATCH // (32 if options.quick else 1)
    rounds = ROUNDS // (50 if options.quick else 1)
    with peer(produce) as orders:
        goals = {"untouched": ("flight", 5.0, rows_of), "summed": ("memory here", 0.8, summed)}
        for name, (rival, goal, use) in goals.items():
            contestants: dict[str, Callable[[], float]] = {
                "headgate": partial(headgate, orders, BATCH, number, use, segment_size="1m"),
                "flight": partial(by_flight, orders, BATCH, number, use),
            }
            if use is summed:
                contestants["memory here"] = partial(sum_here, number)
            harness.compare(
                f"samehost_{name}",
                f"{number:,} batches of 2 MiB, one channel, two processes that share memory; {name}",
                contestants,
                [harness.Ratio(f"samehost_{name}", rival, "headgate", goal=goal)],
                turns=options.turns,
                size=number * BATCH,
                quick=options.quick,
            )
    with peer(answer) as orders:
        harness.compare(
            "samehost_latency",
            f"one row there and back, {rounds:,} times, the median; two processes",
            {
                "headgate": partial(there_and_back, orders, rounds),
                "a byte over a Unix socket": partial(ping, orders, rounds),
            },
            [harness.Ratio("samehost_latency", "a byte over a Unix socket", "headgate", goal=0.5)],
            turns=options.turns,
            size=1,
            quick=options.quick,
        )


class peer:  # noqa: N801 - used as a function
    """A process that carries out orders."""

    def __init__(self, target: Callable[[Connection], None]) -> None:
        context = multiprocessing.get_context("spawn")
        self.here, there = context.Pipe()
        self.process = context.Process(target=target, args=(there,), daemon=True)

    def __enter__(self) -> Connection:
        self.process.start()
        return self.here

    def __exit__(self, *_: object) -> None:
        self.here.close()
        self.process.join(10)


def summed(batch: pa.RecordBatch) -> int:
    """Read every value of every column once."""
    for column in batch.columns:
        if pc.sum(column).as_py() is None:
            raise AssertionError("a column without values")
    return batch.num_rows


def sum_here(number: int) -> float:
    batches = [batch_of(BATCH) for _ in range(HERE // BATCH)]
    started = time.perf_counter()
    rows = sum(summed(batches[turn % len(batches)]) for turn in range(number))
    seconds = time.perf_counter() - started
    return checked(rows * BATCH // batches[0].num_rows, BATCH * number, seconds)


# --- there and back ---

ROW = pa.record_batch({"n": pa.array([1])})


def answer(orders: Connection) -> None:
    """Send every row back until the other end closes the connection."""
    while True:
        try:
            kind, place = orders.recv()
        except EOFError:
            return
        if kind == "byte":
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(place)
                while byte := sock.recv(1):
                    sock.send(byte)
            continue
        secret, address = place
        with hg.ShuffleEnvironment(secret=secret) as env:
            partition = env.create_result_partition(1, schema=ROW.schema)
            orders.send(partition.address(0))
            with hg.RecordWriter(partition, buffer_timeout=0) as writer:
                for batch in hg.RecordReader(env.create_input_gate([address])):
                    writer.emit(batch)
            partition.wait_consumed(60)


def there_and_back(orders: Connection, rounds: int) -> float:
    secret = secrets.token_bytes(32)
    with hg.ShuffleEnvironment(secret=secret) as env:
        partition = env.create_result_partition(1, schema=ROW.schema)
        orders.send(("rows", (secret, partition.address(0))))
        reader = hg.RecordReader(env.create_input_gate([orders.recv()]))
        with hg.RecordWriter(partition, buffer_timeout=0) as writer:

            def turn() -> None:
                writer.emit(ROW)
                next(reader)

            took = timed(turn, rounds)
        for _ in reader:
            raise AssertionError("more came back than was sent")
        partition.wait_consumed(60)
    return told("headgate", took)


def ping(orders: Connection, rounds: int) -> float:
    name = f"\0headgate-bench-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        orders.send(("byte", name))
        sock, _ = listener.accept()
        with sock:

            def turn() -> None:
                sock.send(b"1")
                sock.recv(1)

            took = timed(turn, rounds)
    return told("a byte over a Unix socket", took)


def timed(turn: Callable[[], None], rounds: int) -> list[float]:
    took = []
    for _ in range(rounds):
        started = time.perf_counter()
        turn()
        took.append(time.perf_counter() - started)
    return took


def told(name: str, took: list[float]) -> float:
    """Print low and high percentiles, one way; return the median, there and back."""
    hundredth = statistics.quantiles(took, n=100)[-1]
    median = statistics.median(took)
    print(f"  {name}: p50 {median / 2 * 1e6:.1f} us, p99 {hundredth / 2 * 1e6:.1f} us, one way")
    return median
