"""States of the record, as plain values."""

from __future__ import annotations

from typing import Any

from headgate.observe.edges import folded, matrix
from headgate.observe.runs import SCHEMA_VERSION

TIMES = {"input_ms": 1000, "function_ms": 2000, "emit_ms": 500, "blocked_ms": 500}


def task(role: str, number: int, **about: Any) -> dict[str, Any]:
    """Return a task."""
    times = TIMES if role == "map" else {**TIMES, "emit_ms": 0}
    return {
        "role": role,
        "task": number,
        "state": "done",
        "rows": 10,
        "bytes": 100,
        "peak_bytes": 64,
        **times,
        "host": "node",
        "attempt": number,
        "started_ms": 0,
        "ended_ms": 4000,
        **about,
    }


def stage(name: str) -> dict[str, Any]:
    """Return a stage."""
    times = {"idle_ms": 100, "busy_ms": 300, "back_pressured_ms": 0}
    return {"name": name, "tasks": 2, **times, "busiest": 1, "busiest_share": 0.75}


def run(**about: Any) -> dict[str, Any]:
    """Return a run with two producers and two consumers."""
    return {
        "exchange_id": "ab12cd",
        "run": 1,
        "state": "done",
        "error": "",
        "error_summary": "",
        "seconds": 5.0,
        "mode": "kept",
        "producers": 2,
        "consumers": 2,
        "consumers_total": 2,
        "rows": 20,
        "bytes": 200,
        "pages": 3,
        "rows_received": 20,
        "peak_bytes": 64,
        "file_bytes": 0,
        "made_again": 0,
        "failed_attempts": 0,
        "started_at": 1_790_000_000.5,
        "tasks": [task(role, n) for role in ("map", "reduce") for n in (0, 1)],
        "more_tasks": [],
        "stages": [stage(name) for name in ("source", "map", "exchange", "reduce", "sink")],
        "verdict": {
            "kind": "skew",
            "stage": "reduce",
            "task": 1,
            "share": 0.9,
            "text": "reduce 1 is busy 90 %",
            "advice": "split the hot key",
        },
        "options": {"memory": {"value": "64m", "source": "default"}},
        "versions": {"headgate": "1", "python": "3.11"},
        "edges": matrix((n, *folded([10 * n, 5])) for n in (0, 1)),
        "history": [
            {"at": 1.0, "seconds": 1.0, "rows": 5, "bytes": 50, "stages": {}},
            {"at": 2.0, "seconds": 1.0, "rows": 15, "bytes": 150, "stages": {}},
        ],
        **about,
    }


def stream(**about: Any) -> dict[str, Any]:
    """Return a streaming job."""
    checkpoint = {
        "checkpoint": 7,
        "triggered": 1_790_000_000_000,
        "savepoint": False,
        "status": "complete",
        "duration": 30,
        "bytes": 500,
        "barrier": 1,
        "alignment": 2,
        "sync": 3,
        "in_flight": 4,
        "reason": "",
    }
    return {
        "name": "orders",
        "started_at": 1_790_000_000.5,
        "state": "running",
        "attempt": 1,
        "restarts": 0,
        "failure": None,
        "bottleneck": None,
        "tasks": [{"name": "map", "index": 0, "rows": 5, "busy": 100, "blocked": 3}],
        "workers": [{"number": 0, "host": "node", "pid": 7}],
        "checkpoints": [checkpoint],
        **about,
    }


def state(*runs: dict[str, Any], streams: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    """Return a state."""
    return {
        "schema_version": SCHEMA_VERSION,
        "headgate": "1.2.3",
        "now": 1_790_000_010.0,
        "runs": list(runs),
        "streams": list(streams),
    }
