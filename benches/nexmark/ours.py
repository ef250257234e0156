"""Our side of the bench; worker processes import this module."""

from __future__ import annotations

import os
import tempfile
import time
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from benches import harness
from benches.nexmark.events import of_files
from benches.nexmark.queries import FOLDERS, KEYS, QUERIES

from headgate._changes import last_changes
from headgate.sink import FileSink, FunctionSink


class Headgate:
    """Our jobs, of two tasks for each operator.

    Args:
        workers: number of processes.
        batch_rows: rows in a batch of a source, at most; None for its default.
        interval: time between checkpoints; None for none.
        options: more ones of ``run()``.
    """

    def __init__(
        self,
        workers: int,
        batch_rows: int | None = None,
        *,
        interval: str | None = "10s",
        **options: object,
    ) -> None:
        self._batch_rows = batch_rows
        self._options = {"parallelism": 2, "workers": workers, **options}
        self._interval = interval

    def can(self, query: str) -> bool:
        return query in QUERIES

    def finishes(self, query: str) -> bool:
        return self.can(query)

    def seconds(self, query: str, events: Path) -> float:
        with tempfile.TemporaryDirectory(prefix="headgate-nexmark-") as folder:
            result = QUERIES[query](of_files(events, self._batch_rows))
            sink = FunctionSink(nothing)
            if query in FOLDERS:
                sink = FileSink(f"{folder}/result", partition_by=FOLDERS[query])
            started = time.perf_counter()
            result.sink(sink).run(
                checkpoint=f"{folder}/checkpoints", interval=self._interval, **self._options
            )
            return time.perf_counter() - started

    def rows(self, query: str, events: Path) -> pa.Table:
        with tempfile.TemporaryDirectory(prefix="headgate-nexmark-") as folder:
            sink = FileSink(f"{folder}/result", partition_by=FOLDERS.get(query, ()))
            QUERIES[query](of_files(events, self._batch_rows)).sink(sink).run(**self._options)
            names = pa.schema([(name, pa.string()) for name in FOLDERS.get(query, ())])
            folders = ds.partitioning(names, flavor="hive") if query in FOLDERS else None
            rows = ds.dataset(f"{folder}/result", partitioning=folders).to_table()
        return last_changes(rows, KEYS[query])[0] if query in KEYS else rows


class OneCore(Headgate):
    """Our jobs of one task for each operator, in one process on one core: what an executor of one core has."""

    def __init__(self) -> None:
        super().__init__(1, parallelism=1)

    def seconds(self, query: str, events: Path) -> float:
        cores = os.sched_getaffinity(0)
        # The worker inherits it.
        os.sched_setaffinity(0, {min(cores)})
        try:
            return super().seconds(query, events)
        finally:
            os.sched_setaffinity(0, cores)


class Apart:
    """Our jobs, started by a process of their own, which has loaded nothing else.

    Args:
        workers: number of processes.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def seconds(self, query: str, events: Path) -> float:
        body = partial(answer, self._workers, query, events)
        with harness.process(body) as connection:
            return float(connection.recv())


def answer(workers: int, query: str, events: Path, connection: Connection) -> None:
    """Send the seconds of a query."""
    connection.send(Headgate(workers).seconds(query, events))


def nothing(batch: pa.RecordBatch) -> None:
    """Take rows."""
