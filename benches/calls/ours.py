"""Headgate's program of the bench ``calls``: a driver with two worker processes; see ``program.py``.

Its order has the ``url`` of the service, ``rows``, the ``folder`` of the job and its output, ``exchanges`` if there is
one before the calls and one behind them, ``options`` of the calls, and the seconds between checkpoints, 0 for none.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from benches.calls.jobs import ANSWERS, TASKS, asked

from headgate.sink import FileSink
from headgate.source import NumberSequenceSource
from headgate.stream import ProcessFunction, stream


class Pass(ProcessFunction):
    """Emits the rows of each key as they come."""

    def process(self, batch: pa.RecordBatch, context: Any) -> pa.RecordBatch:
        return batch


def main() -> None:
    order = json.loads(sys.argv[1])
    folder = Path(order["folder"])
    numbers = stream(NumberSequenceSource(0, order["rows"], splits=TASKS), name="numbers")
    if order["exchanges"]:
        numbers = numbers.key_by("id")
    answers = asked(numbers, order["url"], str(folder / "pids"), **order["options"])
    if order["exchanges"]:
        answers = answers.key_by("id").process(Pass, schema=ANSWERS, name="behind")
    job = answers.sink(FileSink(str(folder / "out"), mode="append"), name="files")
    saved = {}
    if order["interval"]:
        saved = {"checkpoint": str(folder / "checkpoints"), "interval": order["interval"]}
    print("READY", flush=True)
    sys.stdin.readline()
    job.run(workers=TASKS, parallelism=TASKS, restarts=100, restart_delay=0.1, **saved)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
