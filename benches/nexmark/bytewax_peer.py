"""Bytewax in an environment of its own, as two processes: see ``benches/nexmark/bytewax_program.py``."""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from benches import environments
from benches.environments import PeerError, end
from benches.nexmark.queries import KEYS

from headgate._changes import CHANGE_TYPE, last_changes

PACKAGES = ("bytewax==0.21.1", "pyarrow==26.0.1")
PROGRAM = Path(__file__).with_name("bytewax_program.py")
COLUMNS = {
    "q2": "auction price",
    "q11": "bidder bid_count window_start window_end",
    "q14": "auction bidder price bidTimeType dateTime extra c_counts",
    "q17": "auction day total_bids rank1_bids rank2_bids rank3_bids min_price max_price mean_price sum_price",
    "q18": "auction bidder price channel url dateTime extra",
    "q21": "auction bidder price channel channel_id",
    "q22": "auction bidder price channel dir1 dir2 dir3",
}
#: Queries that can group a batch before its rows are handled.
BATCHES = ("q17", "q18")


class Bytewax:
    """Dataflows of two processes with one worker each.

    Args:
        way: ``"rows"``, or ``"batches"`` for queries that group each batch first.
        batch_rows: rows in a batch of the input.

    Raises:
        PeerError: the environment cannot be had.
    """

    def __init__(self, way: str, batch_rows: int = 4096) -> None:
        self._way = way
        self._batch_rows = batch_rows
        self._python = environments.environment("bytewax", PACKAGES)

    def can(self, query: str) -> bool:
        return query in (COLUMNS if self._way == "rows" else BATCHES)

    def finishes(self, query: str) -> bool:
        return self.can(query)

    def seconds(self, query: str, events: Path) -> float:
        return self._run(query, events, None)

    def rows(self, query: str, events: Path) -> pa.Table:
        with tempfile.TemporaryDirectory(prefix="headgate-nexmark-") as folder:
            self._run(query, events, folder)
            lines = [
                json.loads(line)
                for path in sorted(Path(folder).glob("*.json"))
                for line in path.read_text(encoding="utf-8").splitlines()
            ]
        names = COLUMNS[query].split()
        table = pa.table(
            {name: [str(line[place]) for line in lines] for place, name in enumerate(names)}
        )
        if query not in KEYS:
            return table
        changes = table.append_column(CHANGE_TYPE, [["update_after"] * table.num_rows])
        return last_changes(changes, KEYS[query])[0]

    def _run(self, query: str, events: Path, rows: str | None) -> float:
        addresses = [f"127.0.0.1:{port}" for port in _free_ports(2)]
        with tempfile.TemporaryDirectory(prefix="headgate-nexmark-") as folder:
            order = {"query": query, "way": self._way, "batch_rows": self._batch_rows}
            order |= {"events": str(events), "rows": rows}
            started = time.perf_counter()
            processes = [
                subprocess.Popen(
                    [
                        str(self._python),
                        str(PROGRAM),
                        json.dumps(
                            {**order, "folder": folder, "process": n, "addresses": addresses}
                        ),
                    ],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
                for n in range(2)
            ]
            try:
                texts = [process.communicate(timeout=1200)[0] for process in processes]
            finally:
                for process in processes:
                    process.kill()
            seconds = time.perf_counter() - started
        if any(process.returncode for process in processes):
            raise PeerError(f"Bytewax failed at {query}:\n{end(''.join(texts))}")
        return seconds


def _free_ports(count: int) -> Sequence[int]:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(server.getsockname()[1]) for server in servers]
    for server in servers:
        server.close()
    return ports
