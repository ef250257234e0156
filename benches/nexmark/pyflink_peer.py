"""PyFlink in thread mode on a cluster of two TaskManagers, each with a Python of its own: see ``pyflink_program.py``."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from benches import environments, flink_cluster, pyflink
from benches.nexmark import flink, oracle
from benches.nexmark.queries import KEYS
from benches.nexmark.spark import answer_of

PROGRAM = Path(__file__).with_name("pyflink_program.py")
QUERIES = ("q11", "q17", "q18")
OPTIONS = {**pyflink.SETTINGS["throughput"], "restart-strategy.type": "none"}


class PyFlink:
    """Jobs of a program that is connected to a cluster.

    Args:
        process: the program.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def can(self, query: str) -> bool:
        return query in QUERIES

    def finishes(self, query: str) -> bool:
        return self.can(query)

    def seconds(self, query: str, events: Path) -> float:
        return self._answer(query, events, None)

    def rows(self, query: str, events: Path) -> pa.Table:
        with tempfile.TemporaryDirectory(prefix="headgate-nexmark-") as folder:
            file = Path(folder) / "rows"
            self._answer(query, events, str(file))
            return oracle.last_rows(file, KEYS.get(query))

    def _answer(self, query: str, events: Path, rows: str | None) -> float:
        stdin = self._process.stdin
        assert stdin is not None
        # As Flink's SQL, whose rows may be late if two tasks begin one after the other.
        layout, tasks = ("halves", 2) if rows is None else ("ordered", 1)
        order = {
            "query": query,
            "tables": flink.tables(events, layout),
            "rows": rows,
            "tasks": tasks,
        }
        stdin.write(json.dumps(order) + "\n")
        stdin.flush()
        return float(answer_of(self._process))


@contextmanager
def started() -> Iterator[PyFlink]:
    """Run the cluster and the program until the block ends.

    Raises:
        PeerError: a part of it cannot be had.
    """
    python = pyflink.environment()
    packages = pyflink.packages(python)
    libraries = packages / "pyflink"
    connectors = environments.downloaded("flink_jars.sh")
    jars = [
        libraries / "lib" / "*",
        *(libraries / "opt").glob("flink-python-*.jar"),
        connectors / "*",
    ]
    # The interpreter in a TaskManager does not know of the environment.
    variables = {"PYTHONPATH": str(packages)}
    with flink_cluster.cluster(jars, 2, managed="128m", environment=variables) as cluster:
        options = {
            **OPTIONS,
            **flink.CHECKPOINTS,
            "execution.checkpointing.dir": f"file://{cluster.folder}/kept",
        }
        files = [str(path) for path in sorted(connectors.glob("*.jar"))]
        order = {"rest": cluster.rest, "jars": files, "options": options}
        process = subprocess.Popen(
            [str(python), "-P", str(PROGRAM), json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables, "FLINK_LOG_DIR": str(cluster.folder)},
        )
        try:
            answer_of(process)
            yield PyFlink(process)
        finally:
            process.kill()
            process.communicate()
