"""PyFlink in thread mode, each job on a cluster of its own with a TaskManager for each task: see ``pyflink_program.py``."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from benches import environments, flink_cluster, pyflink
from benches.environments import PeerError
from benches.nexmark import flink, oracle
from benches.nexmark.queries import KEYS

PROGRAM = Path(__file__).with_name("pyflink_program.py")
QUERIES = ("q11", "q17", "q18")
OPTIONS = {**pyflink.SETTINGS["throughput"], "restart-strategy.type": "none"}


class PyFlink:
    """Jobs of PyFlink.

    Raises:
        PeerError: its environment cannot be had.
    """

    def __init__(self) -> None:
        self._python = pyflink.environment()
        self._connectors = environments.downloaded("flink_jars.sh")

    def can(self, query: str) -> bool:
        return query in QUERIES

    def finishes(self, query: str) -> bool:
        return self.can(query)

    def seconds(self, query: str, events: Path) -> float:
        return self._run(query, flink.tables(events), None, tasks=2)

    def rows(self, query: str, events: Path) -> pa.Table:
        with tempfile.TemporaryDirectory(prefix="headgate-nexmark-") as folder:
            file = Path(folder) / "rows"
            # As in Flink's SQL, rows may be late if two tasks begin one after the other.
            self._run(query, flink.tables(events, "ordered"), str(file), tasks=1)
            return oracle.last_rows(file, KEYS.get(query))

    def _run(self, query: str, tables: list[str], rows: str | None, tasks: int) -> float:
        libraries = pyflink.packages(self._python)
        jars = [*pyflink.jars_of(libraries), self._connectors / "*"]
        # The interpreter in a TaskManager does not know of the environment.
        variables = {"PYTHONPATH": str(libraries)}
        with flink_cluster.cluster(jars, tasks, managed="128m", environment=variables) as cluster:
            folder = {"execution.checkpointing.dir": f"file://{cluster.folder}/kept"}
            pids = cluster.folder / "pids"
            pids.mkdir()
            order = {
                "rest": cluster.rest,
                "jars": [str(path) for path in sorted(self._connectors.glob("*.jar"))],
                "options": {**OPTIONS, **flink.CHECKPOINTS, **folder},
                "query": query,
                "tables": tables,
                "rows": rows,
                "tasks": tasks,
                "pids": str(pids),
            }
            answer = pyflink.answer(PROGRAM, self._python, order, cluster, variables)
            # Flink falls back to process mode without an error.
            workers = {int(path.name) for path in pids.iterdir()}
            if workers != set(cluster.task_managers):
                raise PeerError(f"not in thread mode: Python ran in {workers}")
            return float(answer["seconds"])
