"""Throughput by batch size, by number of channels and by number of subpartitions, each with its peers.

The measurements are those of the benches loopback, channels and scatter; here one size changes from point to
point. All points of a sweep run in turn. ``python -m benches plots`` draws the results.

The peer of many channels is one TCP socket each, watched by epoll. Subpartitions share a pool of 64 MiB: each
has two segments, so the more subpartitions there are, the smaller their segments, up to 256 KiB.
"""

from __future__ import annotations

import statistics
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial

from benches import channels, harness, loopback, many_sockets, scatter

#: Bytes of a batch, and bytes of all batches together.
BATCHES = {
    1 << 10: 16 << 20,
    4 << 10: 64 << 20,
    32 << 10: 256 << 20,
    256 << 10: 512 << 20,
    2 << 20: 512 << 20,
    16 << 20: 512 << 20,
}
CHANNELS = (1, 3, 10, 30, 100, 300, 1000)
CHANNEL_BYTES = 256 << 20
SUBPARTITIONS = (1, 4, 16, 64, 250, 1000, 2000)
ROWS = 2_000_000
POOL = 64 << 20
LARGEST_SEGMENT = 256 << 10

#: One point of one line: its function, and the bytes that it moves.
Points = dict[tuple[str, int], tuple[Callable[[], float], int]]


def main(arguments: Sequence[str]) -> None:
    options = harness.arguments(__doc__).parse_args(arguments)
    by_batch_size(options)
    by_channels(options)
    by_subpartitions(options)


def by_batch_size(options: Namespace) -> None:
    contestants = {
        "headgate": partial(loopback.headgate, same_host_link="off"),
        "same host": loopback.headgate,
        "raw socket": loopback.raw,
        "flight": loopback.by_flight,
    }
    with harness.process(loopback.produce) as producer:
        points: Points = {}
        for size, total in BATCHES.items():
            number = total // size // (16 if options.quick else 1)
            for name, run in contestants.items():
                points[name, size] = (partial(run, producer, size, number), size * number)
        what = (
            f"one channel, two processes, TCP on {loopback.HOST}, and Headgate without TCP; raw socket: "
            f"the same bytes, {loopback.RAW_SEND >> 10} KiB a send"
        )
        sweep("sweep_batch_size", what, "bytes of a batch", points, options)


def by_channels(options: Namespace) -> None:
    number = CHANNEL_BYTES // channels.BATCH_BYTES // (16 if options.quick else 1)
    pieces = CHANNEL_BYTES // many_sockets.PIECE // (16 if options.quick else 1)
    with (
        harness.process(channels.produce) as producer,
        harness.process(many_sockets.produce) as sender,
    ):
        points: Points = {}
        for count in CHANNELS:
            read = partial(channels.read, producer, count, number, blocked=False)
            points["headgate", count] = (read, number * channels.BATCH_BYTES)
            read = partial(many_sockets.read, sender, count, pieces)
            points["a socket each", count] = (read, pieces * many_sockets.PIECE)
        what = f"batches of {channels.BATCH_BYTES:,} bytes, two processes, TCP on {channels.HOST}"
        sweep("sweep_channels", what, "channels", points, options)


def by_subpartitions(options: Namespace) -> None:
    table = scatter.rows_of(ROWS // (40 if options.quick else 1), strings=False)
    with scatter.one_core():
        points: Points = {}
        for parts in SUBPARTITIONS:
            segment = LARGEST_SEGMENT
            while POOL // segment < 2 * parts:
                segment //= 2
            runs = {
                "headgate": partial(scatter.headgate, table, parts, segment),
                "polars whole": partial(scatter.polars, table, len(table), parts),
                "polars batches": partial(scatter.polars, table, scatter.BATCH_ROWS, parts),
            }
            for name, run in runs.items():
                points[name, parts] = (run, table.nbytes)
        what = (
            f"{len(table):,} rows of 4 columns of 8 bytes by a hash of the first, one core; "
            f"Headgate and 'batches' in batches of {scatter.BATCH_ROWS:,} rows"
        )
        sweep("sweep_subpartitions", what, "subpartitions", points, options)


def sweep(name: str, what: str, axis: str, points: Points, options: Namespace) -> None:
    """Run all points in turn; print their rates, and store their seconds."""
    runs = {f"{line}, {at:,}": run for (line, at), (run, _) in points.items()}
    seconds = harness.measure(name, runs, turns=options.turns)
    found = [
        {"line": line, "at": at, "bytes": size, "seconds": seconds[f"{line}, {at:,}"]}
        for (line, at), (_, size) in points.items()
    ]
    print(f"\n{name}: {what}")
    print("machine: " + ", ".join(f"{key} {value}" for key, value in harness.machine().items()))
    for point in found:
        rate = point["bytes"] / statistics.median(point["seconds"]) / 1e6
        print(f"  {point['at']:>12,} {axis:<18}{point['line']:<18}{rate:>9,.0f} MB/s", flush=True)
    if not options.quick:
        harness.store(name, what=what, axis=axis, points=found)
