"""A state of the record, as the driver makes it: a run that goes on, one that failed, and a stream."""

import copy
import random

#: An error text that a terminal or a browser would obey.
HOSTILE = '</script><img src=x onerror="fail()">\x1b[2J\u2028"'
EXCHANGE = "936b0c5d" * 4
RUNNING = f"{EXCHANGE}/2"
FAILED = "3fa1/1"


def task(role, number, *, busy, pressed, idle, **more):
    """Return a task with these ms."""
    return {
        "role": role,
        "task": number,
        "state": "running",
        "rows": 1000 + number,
        "bytes": 50_000 * (number + 1),
        "peak_bytes": 1 << 20,
        "input_ms": idle,
        "function_ms": busy,
        "emit_ms": 0,
        "blocked_ms": pressed,
        "host": f"node-{'ab'[number % 2]}",
        "attempt": 10 + number,
        "started_ms": 100,
        "ended_ms": None,
        **more,
    }


def stage(name, idle, busy, pressed, tasks=4, busiest=3, share=0.97):
    """Return a stage with these ms."""
    return {
        "name": name,
        "tasks": tasks,
        "idle_ms": idle,
        "busy_ms": busy,
        "back_pressured_ms": pressed,
        "busiest": busiest,
        "busiest_share": share,
    }


def slot(at, rows, **stages):
    """Return a second of the history; stages have ms idle, busy and back-pressured."""
    names = ("idle", "busy", "back_pressured")
    spent = {name: dict(zip(names, times, strict=True)) for name, times in stages.items()}
    return {"at": at, "seconds": 1.0, "rows": rows, "bytes": 100 * rows, "stages": spent}


def _running():
    maps = [task("map", n, busy=300, pressed=620, idle=80) for n in range(4)]
    reduces = [task("reduce", n, busy=410, pressed=0, idle=590) for n in range(3)]
    reduces.append(task("reduce", 3, busy=970, pressed=0, idle=30, host="node-b"))
    return {
        "exchange_id": EXCHANGE,
        "run": 2,
        "state": "running",
        "error": "",
        "seconds": 42.5,
        "producers": 0,
        "consumers": 4,
        "rows": 5_100_000,
        "bytes": 412_000_000,
        "pages": 1600,
        "rows_received": 5_000_000,
        "peak_bytes": 61_000_000,
        "splits_done": 10,
        "error_summary": "",
        "tasks": [*maps, *reduces],
        "stages": [
            stage("source", 300, 100, 3600),
            stage("map", 400, 1100, 2500),
            stage("exchange", 1500, 20, 2480),
            stage("reduce", 1800, 2200, 0),
            stage("sink", 3990, 0, 0, busiest=None, share=None),
        ],
        "mode": "kept",
        "file_bytes": 0,
        "producers_running": 4,
        "producers_total": 4,
        "consumers_running": 4,
        "consumers_total": 4,
        "made_again": 0,
        "failed_attempts": 0,
        "verdict": {
            "stage": "reduce",
            "task": 3,
            "text": "reduce 3 is busy 97 %",
            "advice": "salt the key",
        },
        "schema_version": 6,
        "started_at": 1_790_000_000.0,
        "options": {
            "memory": {"value": "64m", "source": "argument"},
            "tls": {"value": "off", "source": "default"},
        },
        "versions": {"headgate": "0.1.0", "python": "3.11.9"},
        "edges": {
            "producers": [0, 1],
            "consumers": [0, 1],
            "producers_each": 1,
            "consumers_each": 1,
            "bytes": [[1000, 2000], [3000, 9000]],
        },
        "history": [
            slot(1_790_000_000 + n, 1000 * n, map=(100, 300, 600), reduce=(450, 550, 0))
            for n in range(1, 40)
        ],
        "failures": [
            {
                "role": "map",
                "task": 3,
                "attempt": 9,
                "host": "node-b",
                "error": "HG-3001",
                "summary": "executor 2 was lost",
            }
        ],
    }


def _failed():
    run = _running()
    run.update(
        exchange_id="3fa1",
        run=1,
        state="failed",
        error="HG-6001",
        error_summary=HOSTILE,
        failed_attempts=4,
        failures=[
            {
                "role": "map",
                "task": 0,
                "attempt": 10,
                "host": "node-a",
                "error": "",
                "summary": HOSTILE,
            }
        ],
        file_bytes=1_000_000,
        verdict=None,
        edges=None,
        history=[],
        tasks=[task("map", 0, busy=900, pressed=0, idle=100, host=HOSTILE, ended_ms=1100)],
        stages=[stage("map", 100, 900, 0, tasks=1, busiest=0, share=0.9)],
    )
    return run


def _stream():
    checkpoint = {
        "triggered": 1_790_000_000_000,
        "savepoint": None,
        "barrier": 5,
        "alignment": 4,
        "sync": 3,
        "in_flight": 2000,
    }
    done = {"status": "complete", "duration": 120, "bytes": 4096, "reason": ""}
    gone = {"status": "failed", "duration": None, "bytes": 0, "reason": HOSTILE}
    pending = {"status": "pending", "duration": None, "bytes": 0, "reason": ""}
    return {
        "name": "clicks",
        "started_at": 1_790_000_000.5,
        "state": "running",
        "attempt": 2,
        "restarts": 1,
        "failure": None,
        "tasks": [
            {"name": "source", "index": 0, "rows": 10, "batches": 2, "busy": 30, "blocked": 5}
        ],
        "checkpoints": [
            {"checkpoint": 7, **checkpoint, **done},
            {"checkpoint": 8, **checkpoint, **gone},
            {"checkpoint": 9, **checkpoint, **pending},
        ],
        "bottleneck": None,
    }


_STATE = {
    "schema_version": 1,
    "headgate": "0.1.0",
    "now": 1_790_000_042.5,
    "runs": [_running(), _failed()],
    "streams": [_stream()],
}


def state():
    """Return a state of one's own, which a test may change."""
    return copy.deepcopy(_STATE)


def wide(tasks, seed=1):
    """Return a state whose newest run has this many tasks of each role, and a full matrix."""
    found, dice = state(), random.Random(seed)
    run = found["runs"][0]
    run["tasks"] = [
        task(role, number, busy=dice.randrange(1000), pressed=dice.randrange(1000), idle=50)
        for role in ("map", "reduce")
        for number in range(tasks)
    ]
    side = min(tasks, 64)
    run["edges"] = {
        "producers": [n * tasks // side for n in range(side)],
        "consumers": [n * tasks // side for n in range(side)],
        "producers_each": tasks // side,
        "consumers_each": tasks // side,
        "bytes": [[dice.randrange(1 << 30) for _ in range(side)] for _ in range(side)],
    }
    return found
