"""One channel between two processes over TCP, against a raw socket and against Arrow Flight.

A second process sends prepared batches of 2 MiB or 32 KiB (four columns of 8 bytes); this process
receives them and looks at no value. The clock runs here, from the request for the data to its last byte, so
it includes our connection and handshake, Flight's call, and the raw socket's connection. Ours has segments
of 256 KiB, a pool of 64 MiB, a CRC32C over every byte, and credits. The raw socket sends the same bytes,
256 KiB a call, without checking them: it shows the limit of the socket.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pyarrow as pa
from benches import harness
from pyarrow import flight

import headgate as hg

HOST = "127.0.0.1"
ROW_BYTES = 32
RAW_SEND = 256 << 10
SIZES = {"2 MiB": (2 << 20, 2 << 30), "32 KiB": (32 << 10, 512 << 20)}


def main(arguments: Sequence[str]) -> None:
    options = harness.arguments(__doc__).parse_args(arguments)
    with harness.process(produce) as producer:
        for name, (batch_bytes, total) in SIZES.items():
            number = total // batch_bytes // (16 if options.quick else 1)
            small = name == "32 KiB"
            ratios = [
                harness.Ratio("loopback_raw", "raw socket", "headgate", goal=0.9),
                harness.Ratio("loopback_flight", "flight", "headgate", goal=1.5),
            ]
            over_tcp = partial(headgate, same_host_link="off")
            contestants = {"headgate": over_tcp, "raw socket": raw, "flight": by_flight}
            harness.compare(
                "loopback_small" if small else "loopback",
                f"{number:,} batches of {name}, one channel, two processes, TCP on {HOST}; "
                f"raw socket: the same bytes, {RAW_SEND >> 10} KiB a send",
                {
                    kind: partial(run, producer, batch_bytes, number)
                    for kind, run in contestants.items()
                },
                [harness.Ratio("loopback_small", "flight", "headgate", goal=3.0)]
                if small
                else ratios,
                turns=options.turns,
                size=number * batch_bytes,
                quick=options.quick,
            )


def batch_of(size: int) -> pa.RecordBatch:
    rows = size // ROW_BYTES
    numbers = np.arange(rows)
    return pa.record_batch({"key": numbers, "i": numbers, "x": numbers * 0.5, "y": numbers * 0.25})


# --- the producer's process ---


def produce(orders: Connection) -> None:
    """Carry out orders until the other end closes the connection."""
    flights = Flights(f"grpc://{HOST}:0")
    kinds = {"headgate": send_headgate, "raw": send_raw}
    while True:
        try:
            kind, size, number, options = orders.recv()
        except EOFError:
            flights.shutdown()
            return
        if kind == "flight":
            orders.send(flights.port)
        else:
            kinds[kind](orders, batch_of(size), number, **options)


def send_headgate(
    orders: Connection, batch: pa.RecordBatch, number: int, host: str, **options: Any
) -> None:
    secret = secrets.token_bytes(32)
    with hg.ShuffleEnvironment(listen=f"{host}:0", secret=secret, **options) as env:
        partition = env.create_result_partition(1, schema=batch.schema)
        orders.send((secret, partition.address(0)))
        with hg.RecordWriter(partition) as writer:
            for _ in range(number):
                writer.emit(batch)
        partition.wait_consumed(60)


def send_raw(orders: Connection, batch: pa.RecordBatch, number: int) -> None:
    content = memoryview(bytes(RAW_SEND))
    left = batch.num_rows * ROW_BYTES * number
    with socket.create_server((HOST, 0)) as server:
        orders.send(server.getsockname())
        connection, _ = server.accept()
        with connection:
            while left:
                left -= connection.send(content[:left])


class Flights(flight.FlightServerBase):
    """Answers DoGet: a ticket holds the bytes of a batch and the number of batches."""

    def do_get(self, _context: Any, ticket: flight.Ticket) -> flight.GeneratorStream:
        size, number = map(int, ticket.ticket.split(b","))
        batch = batch_of(size)
        return flight.RecordBatchStream(
            pa.RecordBatchReader.from_batches(batch.schema, (batch for _ in range(number)))
        )


# --- this process ---


def rows_of(batch: pa.RecordBatch) -> int:
    """Take the batches without reading their values."""
    return batch.num_rows


def headgate(
    orders: Connection,
    size: int,
    number: int,
    use: Callable[[pa.RecordBatch], int] = rows_of,
    host: str = HOST,
    **options: Any,
) -> float:
    orders.send(("headgate", size, number, {"host": host, **options}))
    secret, address = orders.recv()
    with hg.ShuffleEnvironment(secret=secret, **options) as env:
        started = time.perf_counter()
        gate = env.create_input_gate([address])
        rows = sum(use(batch) for batch in hg.RecordReader(gate))
        seconds = time.perf_counter() - started
    return checked(rows * ROW_BYTES, size * number, seconds)


def raw(orders: Connection, size: int, number: int) -> float:
    orders.send(("raw", size, number, {}))
    address = orders.recv()
    buffer = bytearray(RAW_SEND)
    received = 0
    started = time.perf_counter()
    with socket.create_connection(address) as connection:
        while count := connection.recv_into(buffer):
            received += count
    return checked(received, size * number, time.perf_counter() - started)


def by_flight(
    orders: Connection,
    size: int,
    number: int,
    use: Callable[[pa.RecordBatch], int] = rows_of,
) -> float:
    orders.send(("flight", size, number, {}))
    with flight.FlightClient(f"grpc://{HOST}:{orders.recv()}") as client:
        started = time.perf_counter()
        reader = client.do_get(flight.Ticket(f"{size},{number}"))
        rows = sum(use(chunk.data) for chunk in reader)
        seconds = time.perf_counter() - started
    return checked(rows * ROW_BYTES, size * number, seconds)


def checked(received: int, sent: int, seconds: float) -> float:
    if received != sent:
        raise AssertionError(f"{received} bytes came, {sent} were sent")
    return seconds
