"""Runs that a test makes up, and a state of the record with three of them: one that goes on, one that failed, and a job."""

import copy
import random
from dataclasses import asdict, replace

from headgate.observe.record import CallStage, CheckpointStats, Failure, Run, Stage, Task, Verdict
from headgate.observe.stages import stages_of_exchange
from headgate.observe.state import state_of
from headgate.observe.verdict import verdict_of_exchange

#: An error text that a terminal or a browser would obey.
HOSTILE = '</script><img src=x onerror="fail()">\x1b[2J\u2028"'
EXCHANGE = "936b0c5d" * 4
RUNNING = f"{EXCHANGE}/2"
FAILED = "3fa1/1"
#: A producer and two consumers, one of which has most of the rows.
SKEWED = (
    Task("map", 0, "done", rows=1500, bytes=15_000, input_ms=500, function_ms=2000),
    Task("reduce", 0, "done", rows=1200, bytes=1200, input_ms=300, function_ms=9700),
    Task("reduce", 1, "done", rows=100, bytes=100, input_ms=9700, function_ms=300),
)
STAGES = ("source", "map", "exchange", "reduce", "sink")


def run_of(*tasks, **about):
    """Return a run with zeros but for what is given."""
    about = {"name": "78" * 16, "number": 1, "state": "running", "seconds": 1.0, **about}
    return Run(mode="kept", tasks=tasks, **about)


def skewed(**about):
    """Return a run whose first reduce has most of the work."""
    about = {"seconds": 10.0, "rows": 1500, "bytes": 15_000, "rows_received": 1300, **about}
    counts = {"producers": 1, "consumers": 2, "consumers_total": 2}
    verdict = verdict_of_exchange(SKEWED, about["seconds"])
    return run_of(*SKEWED, **counts, stages=stages_of_exchange(SKEWED), verdict=verdict, **about)


class MadeUp:
    """A run to draw: it is what the test sets, and as long as it has lasted."""

    def __init__(self, progress="auto", **about):
        self.made, self.progress, self.started = skewed(**about), progress, 100.0

    @property
    def key(self):
        return "kept", self.made.name, self.made.number

    def look(self, now):
        return replace(self.made, seconds=now - self.started)


def task(role, number, *, busy, pressed, idle, **more):
    """Return a task with these ms, as a plain value."""
    times = {"input_ms": idle, "function_ms": busy, "blocked_ms": pressed}
    about = {"peak_bytes": 1 << 20, "host": f"node-{'ab'[number % 2]}", "attempt": 10 + number}
    sizes = {"rows": 1000 + number, "bytes": 50_000 * (number + 1)}
    return {**asdict(Task(role, number, started_ms=100, **times, **about, **sizes)), **more}


def stage(name, idle, busy, pressed, tasks=4, busiest=3, share=0.97, inputs=None):
    """Return a stage with these ms."""
    place = STAGES.index(name) if name in STAGES else 0
    before = STAGES[place - 1 : place] if inputs is None else inputs
    return Stage(name, tasks, idle, busy, pressed, busiest, share, tuple(before))


def slot(at, rows, **stages):
    """Return a second of the history; stages have ms idle, busy and back-pressured."""
    names = ("idle", "busy", "back_pressured")
    spent = {name: dict(zip(names, times, strict=True)) for name, times in stages.items()}
    return {"at": at, "seconds": 1.0, "rows": rows, "bytes": 100 * rows, "stages": spent}


def _running():
    run = Run(
        mode="kept",
        name=EXCHANGE,
        number=2,
        state="running",
        seconds=42.5,
        started_at=1_790_000_000.0,
        rows=5_100_000,
        bytes=412_000_000,
        pages=1600,
        rows_received=5_000_000,
        peak_bytes=61_000_000,
        splits_done=10,
        producers_running=4,
        producers_total=4,
        consumers=4,
        consumers_running=4,
        consumers_total=4,
        failures=(Failure(9, "HG-3001", "executor 2 was lost", "map", 3, "node-b"),),
        verdict=Verdict("skew", "reduce", 3, 0.97, "reduce 3 is busy 97 %", "salt the key"),
        stages=(
            stage("source", 300, 100, 3600),
            stage("map", 400, 1100, 2500),
            stage("exchange", 1500, 20, 2480),
            stage("reduce", 1800, 2200, 0),
            stage("sink", 3990, 0, 0, busiest=None, share=0.0),
        ),
        edges={
            "producers": [0, 1],
            "consumers": [0, 1],
            "producers_each": 1,
            "consumers_each": 1,
            "bytes": [[1000, 2000], [3000, 9000]],
        },
        options={
            "memory": {"value": "64m", "source": "argument"},
            "tls": {"value": "off", "source": "default"},
        },
        versions={"headgate": "0.1.0", "python": "3.11.9"},
        history=tuple(
            slot(1_790_000_000 + n, 1000 * n, map=(100, 300, 600), reduce=(450, 550, 0))
            for n in range(1, 40)
        ),
    )
    maps = [task("map", n, busy=300, pressed=620, idle=80) for n in range(4)]
    reduces = [task("reduce", n, busy=410, pressed=0, idle=590) for n in range(3)]
    reduces.append(task("reduce", 3, busy=970, pressed=0, idle=30, host="node-b"))
    return {**run.plain(), "tasks": [*maps, *reduces]}


def _failed():
    run = run_of(
        name="3fa1",
        state="failed",
        error="HG-6001",
        error_summary=HOSTILE,
        failed_attempts=4,
        file_bytes=1_000_000,
        failures=(Failure(10, "", HOSTILE, "map", 0, "node-a"),),
        stages=(stage("map", 100, 900, 0, tasks=1, busiest=0, share=0.9, inputs=()),),
    )
    tasks = [task("map", 0, busy=900, pressed=0, idle=100, host=HOSTILE, ended_ms=1100)]
    return {**run.plain(), "tasks": tasks}


def calls(operator, **more):
    """Return figures of an operator whose calls wait for their service."""
    means = {"under_way": 63.5, "for_rate": 1.0, "for_breaker": 0.0, "for_retries": 0.25}
    times = {"full": 0.97, "busy": 0.125, "per_second": 315.0, "p50_ms": 202.0, "p99_ms": 410.0}
    about = {"stage": "source", "tasks": 1, "most": 64, "rate": None, "rate_asked": None}
    text = f"{operator} waits for its service"
    about |= {"errors": {"TimeoutError": 12}, "last_error": "TimeoutError", "text": text}
    about |= {"waits_for": "service", "advice": "raise in_flight="}
    return CallStage(operator, **{**means, **times, **about, **more})


def _stream():
    at = 1_790_000_000_000
    figures = {"barrier": 5, "alignment": 4, "sync": 3, "in_flight": 2000}
    source = {"rows": 10, "batches": 2, "input_ms": 25, "function_ms": 25, "blocked_ms": 5}
    return Run(
        mode="stream",
        name="clicks",
        number=2,
        state="running",
        seconds=42.0,
        started_at=1_790_000_000.5,
        rows=10,
        restarts=1,
        tasks=(Task("source", 0, started_ms=0, **source),),
        stages=(stage("source", 25, 25, 5, tasks=1, busiest=0, share=0.45, inputs=()),),
        checkpoints=(
            CheckpointStats(7, at, None, "complete", 120, 4096, **figures),
            CheckpointStats(8, at, None, "failed", None, 0, **figures, reason=HOSTILE),
            CheckpointStats(9, at, None, "pending", None, 0, **figures),
        ),
        calls=(calls("embed"), calls(HOSTILE, rate=50.0, rate_asked=100.0, waits_for="rate")),
    ).plain()


_STATE = state_of([_running(), _failed(), _stream()], 1_790_000_042.5)


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
