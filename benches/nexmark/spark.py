"""Spark in a process of its own: see ``benches/nexmark/spark_program.py``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from benches.environments import PeerError
from benches.nexmark import spark_stateful
from benches.nexmark.queries import KEYS
from benches.nexmark.spark_program import SQL, UNFINISHED

SPARK_TIME = pa.timestamp("us", "UTC")
ROOT = Path(__file__).parents[2]
#: The queries of each way.
ABLE = {"sql": frozenset(SQL), "stateful": frozenset(spark_stateful.QUERIES)}


class Spark:
    """A session.

    Args:
        process: its driver.
        way: ``"sql"``, or ``"stateful"`` for ``transformWithStateInPandas``.
    """

    def __init__(self, process: subprocess.Popen[str], way: str) -> None:
        self._process = process
        self._way = way

    def can(self, query: str) -> bool:
        return query in ABLE[self._way]

    def finishes(self, query: str) -> bool:
        return query not in UNFINISHED

    def seconds(self, query: str, events: Path) -> float:
        return self._answer(query, events, None)

    def rows(self, query: str, events: Path) -> pa.Table:
        with tempfile.TemporaryDirectory(prefix="headgate-nexmark-") as folder:
            self._answer(query, events, f"{folder}/rows")
            rows = ds.dataset(f"{folder}/rows").to_table()
        times = [
            f.with_type(pa.timestamp("us")) if f.type == SPARK_TIME else f for f in rows.schema
        ]
        rows = rows.cast(pa.schema(times))
        if query in KEYS:  # each update has the whole row: the last one of a key counts
            keys = list(KEYS[query])
            last = (
                rows.group_by(keys).aggregate([("batch", "max")]).rename_columns([*keys, "batch"])
            )
            rows = rows.join(last, [*keys, "batch"], join_type="inner")
        return rows

    def _answer(self, query: str, events: Path, rows: str | None) -> float:
        stdin = self._process.stdin
        assert stdin is not None
        order = {"way": self._way, "query": query, "events": str(events), "rows": rows}
        stdin.write(json.dumps(order) + "\n")
        stdin.flush()
        return float(answer_of(self._process))


@contextmanager
def spark() -> Iterator[Callable[[str], Spark]]:
    """Run a session until the block ends; yield a function that returns the engine of a way.

    Raises:
        PeerError: it does not start.
    """
    command = [sys.executable, "-m", "benches.nexmark.spark_program"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    )
    try:
        answer_of(process)
        yield partial(Spark, process)
    finally:
        process.kill()
        process.communicate()


def answer_of(process: subprocess.Popen[str]) -> str:
    """Return the next answer of a program.

    Raises:
        PeerError: it failed, or has ended.
    """
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("ANSWER "):
            answer = line.removeprefix("ANSWER ").strip()
            if answer.startswith("failed"):
                raise PeerError(answer)
            return answer
    raise PeerError(f"{process.args} has ended")
