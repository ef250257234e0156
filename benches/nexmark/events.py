"""The events of the bench: streams of a source, streams of files, and the files themselves, which are written once.

Files lie in two ways. ``ordered`` has many files of each kind, in the order of event times: sources that hand files out in
their order read them with any number of tasks. ``halves`` has two files of each kind, with every other row: for engines
that hand files out in any order, and whose two tasks each read one. Up to 200,000 events are one file of each kind in ``ordered``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from headgate.source import FileSource, NexmarkSource, WatermarkStrategy
from headgate.source.nexmark import NexmarkSplit
from headgate.stream import DataStream, stream

KINDS = ("person", "auction", "bid")
#: Rows may be four seconds late, as in the published tables.
TIMES = WatermarkStrategy.for_bounded_out_of_orderness(4000).with_timestamp_assigner("dateTime")
#: Events of all kinds in a file of ``ordered``.
EVENTS_PER_FILE = 200_000
ROW_GROUP = 65_536
HALVES = 2
#: Event time of the first event, in ms since 1970.
START = 1_436_918_400_000


class Nexmark:
    """The three streams, of the columns that a query reads; of all without names.

    Args:
        rows: makes a stream of a kind of rows, from the names of its columns.
    """

    def __init__(self, rows: Callable[[str, tuple[str, ...]], DataStream]) -> None:
        self._rows = rows

    def people(self, *columns: str) -> DataStream:
        return self._rows("person", columns)

    def auctions(self, *columns: str) -> DataStream:
        return self._rows("auction", columns)

    def bids(self, *columns: str) -> DataStream:
        return self._rows("bid", columns)


def generated(events: int | None, **options: Any) -> Nexmark:
    """Return the streams of the generator; options are those of ``NexmarkSource``."""

    def rows(kind: str, columns: tuple[str, ...]) -> DataStream:
        source = NexmarkSource(kind, events, **options)
        every = stream(source, watermarks=TIMES, name=kind)
        return every.map(lambda batch: batch.select(columns)) if columns else every

    return Nexmark(rows)


def of_files(folder: Path, batch_rows: int | None = None) -> Nexmark:
    """Return the streams of files; each reads only its columns."""

    def rows(kind: str, columns: tuple[str, ...]) -> DataStream:
        source = FileSource(
            str(folder / "ordered" / kind), columns=columns or None, batch_rows=batch_rows
        )
        timed = not columns or "dateTime" in columns
        return stream(source, watermarks=TIMES if timed else None, name=kind)

    return Nexmark(rows)


def written(folder: Path, events: int) -> Path:
    """Return the folder of so many events below another one; write them on first use."""
    whole = folder / f"nexmark-2-{events}"
    if not whole.exists():
        unfinished = folder / f".{whole.name}"
        shutil.rmtree(unfinished, ignore_errors=True)
        for kind in KINDS:
            _write_ordered(unfinished / "ordered" / kind, kind, events)
            for half in range(HALVES):
                path = unfinished / "halves" / kind / f"{half}.parquet"
                _write(path, NexmarkSource(kind, events), NexmarkSplit(half, HALVES, START))
        unfinished.rename(whole)
    return whole


def _write_ordered(folder: Path, kind: str, events: int) -> None:
    for number, first in enumerate(range(0, events, EVENTS_PER_FILE)):
        source = NexmarkSource(kind, min(first + EVENTS_PER_FILE, events))
        before = NexmarkSource(kind, first).rows
        _write(folder / f"{number:05}.parquet", source, NexmarkSplit(0, 1, START, before or 0))


def _write(path: Path, source: NexmarkSource, split: NexmarkSplit) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(path, source.schema, compression="snappy") as writer:
        for batch, *_ in source.open_split(split, 1):
            writer.write_batch(batch, row_group_size=ROW_GROUP)
