"""States of the record, as plain values, whose runs a test gives."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from headgate.observe.edges import folded, matrix
from headgate.observe.record import CheckpointStats, Run, Stage, Task, Verdict, Worker
from headgate.observe.state import state_of

TIMES = {"input_ms": 1000, "function_ms": 2000, "emit_ms": 500, "blocked_ms": 500}


def task(role: str, number: int, **about: Any) -> dict[str, Any]:
    """Return a task."""
    times = TIMES if role == "map" else {**TIMES, "emit_ms": 0}
    done = Task(role, number, "done", 10, 100, 64, **times, host="node", attempt=number)
    return {**asdict(done), "started_ms": 0, "ended_ms": 4000, **about}


def stage(name: str, *inputs: str) -> dict[str, Any]:
    """Return a stage."""
    return {**asdict(Stage(name, 2, 100, 300, 0, 1, 0.75)), "inputs": list(inputs)}


def run(**about: Any) -> dict[str, Any]:
    """Return a run with two producers and two consumers."""
    names = ("source", "map", "exchange", "reduce", "sink")
    verdict = Verdict("skew", "reduce", 1, 0.9, "reduce 1 is busy 90 %", "split the hot key")
    whole = Run(
        mode="kept",
        name="ab12cd",
        number=1,
        state="done",
        seconds=5.0,
        started_at=1_790_000_000.5,
        rows=20,
        bytes=200,
        pages=3,
        rows_received=20,
        peak_bytes=64,
        producers=2,
        consumers=2,
        consumers_total=2,
        verdict=verdict,
        options={"memory": {"value": "64m", "source": "default"}},
        versions={"headgate": "1", "python": "3.11"},
        edges=matrix((n, *folded([10 * n, 5])) for n in (0, 1)),
        history=(
            {"at": 1.0, "seconds": 1.0, "rows": 5, "bytes": 50, "stages": {}},
            {"at": 2.0, "seconds": 1.0, "rows": 15, "bytes": 150, "stages": {}},
        ),
    )
    return {
        **whole.plain(),
        "stages": [stage(name, *names[n - 1 : n]) for n, name in enumerate(names)],
        "tasks": [task(role, n) for role in ("map", "reduce") for n in (0, 1)],
        **about,
    }


def stream(**about: Any) -> dict[str, Any]:
    """Return a streaming job."""
    checkpoint = CheckpointStats(7, 1_790_000_000_000, None, "complete", 30, 500, 1, 2, 3, 4)
    job = Run(
        mode="stream",
        name="orders",
        number=1,
        state="running",
        seconds=9.5,
        started_at=1_790_000_000.5,
        rows=5,
        tasks=(Task("map", 0, rows=5, input_ms=9000, function_ms=97, blocked_ms=3, started_ms=0),),
        stages=(Stage("map", 1, 9000, 97, 3, 0, 0.01),),
        checkpoints=(checkpoint,),
        workers=(Worker(0, "node", 7),),
    )
    return {**job.plain(), **about}


def state(*runs: dict[str, Any]) -> dict[str, Any]:
    """Return a state."""
    return state_of(list(runs), 1_790_000_010.0)
