"""The bench's part about losses: what is paid for while workers and drivers are killed."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from benches import harness
from benches.calls.jobs import RATE, SERVICE
from benches.calls.program import Program, kill_one, wait_until

from headgate.testing import Service

#: Kills of workers and of the driver.
WORKERS, DRIVERS = 10, 2
#: Calls paid for per row that the goal allows.
ALLOWED = 1.005
SEED = 39
#: Calls that the service has answered, or would have answered.
BEGUN = ("answered", "abandoned", "replayed")
OURS = (sys.executable, "-m", "benches.calls.ours")
#: Rows whose results are remembered, and calls that the service knows again.
REMEMBERED: dict[str, Any] = {"memo": "id", "call_id": "id", "rate": f"{RATE}/s"}


def paid(turns: int, *, quick: bool) -> None:
    """Count what is paid for, without exchanges and with them."""
    rows = 3000 if quick else 20_000
    workers, drivers = (2, 1) if quick else (WORKERS, DRIVERS)
    print(f"\ncalls_paid: {rows:,} rows, {workers} kills of workers and {drivers} of the driver")
    ratios, measured = {}, {}
    for name, exchanges in (("calls_paid", False), ("calls_paid_exchanges", True)):
        kinds = ["worker"] * workers + ["driver"] * drivers
        figures = with_losses(rows, kinds, exchanges=exchanges)
        ratios[name], measured[name] = ALLOWED / figures["paid"], figures
        print(
            f"  {name:<22}{figures['paid']:.4f} paid for per row, {figures['begun']:.4f} begun, "
            f"{figures['seconds']:.1f} s"
        )
    harness.report("calls_paid", ratios, dict.fromkeys(ratios, 1.0), quick=quick, **measured)


def with_losses(rows: int, kinds: list[str], *, exchanges: bool) -> dict[str, float]:
    """Run a job with kills at random moments; return the calls paid for and begun per row, and the seconds."""
    draw = random.Random(SEED)
    draw.shuffle(kinds)
    moments = sorted(draw.uniform(0.03, 0.97) for _ in kinds)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-")))
        service = stack.enter_context(Service(**SERVICE, idempotent=True))
        order = {"url": service.url, "rows": rows, "folder": str(folder), "interval": 1}
        order |= {"exchanges": exchanges, "options": REMEMBERED}
        pids = folder / "pids"
        pids.mkdir()

        def start() -> Program:
            program = stack.enter_context(Program(OURS, order, folder / "log"))
            program.begin()
            return program

        started, program = time.perf_counter(), start()
        for kind, moment in zip(kinds, moments, strict=True):
            wait_until(lambda moment=moment: answers(service) >= moment * rows, program)
            if kind == "worker":
                kill_one(pids, draw)
            else:
                program.kill()
                program = start()
        program.finish()
        seconds = time.perf_counter() - started
        numbers = pq.read_table(folder / "out")["id"].to_pylist()
        if sorted(numbers) != list(range(rows)):
            raise AssertionError(f"{len(numbers)} rows, {len(set(numbers))} of {rows} are there")
    outcomes = Counter(service.calls()["outcome"].to_pylist())
    bill = pc.sum(service.ledger()["paid"]).as_py()
    begun = sum(outcomes[name] for name in BEGUN)
    return {"paid": bill / rows, "begun": begun / rows, "seconds": seconds}


def answers(service: Service) -> int:
    """Return the number of calls that the service has answered."""
    return int(pc.sum(pc.equal(service.calls()["outcome"], "answered")).as_py() or 0)
