"""The bench's part about other programs that call a service: as they are, and after the kill of a process."""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from benches import environments, flink_cluster, harness, pyflink
from benches.calls.jobs import IN_FLIGHT, RATE, SERVICE, TASKS
from benches.calls.limits import share_of_limit
from benches.calls.losses import OURS, REMEMBERED, SEED, answers
from benches.calls.program import Program, kill_one, wait_until
from benches.environments import PeerError

from headgate.testing import Service

PROGRAM = Path(__file__).with_name("peer_program.py")
PACKAGES = {
    "Ray Data": ("ray[data]==2.60.0", "pyarrow==26.0.1"),
    "Daft": ("daft==0.7.26", "pyarrow==25.0.1"),
}
#: By program: the name of its ratios.
NAMES = {
    "mapInArrow": "calls_by_hand",
    "Ray Data": "calls_ray",
    "Daft": "calls_daft",
    "PyFlink": "calls_pyflink",
}
#: The goals: time, and what a kill costs.
FASTER, LESS = 1.0, 3.0


@dataclass(frozen=True)
class Run:
    """What a program did.

    Attributes:
        seconds: of the job.
        share: of the service's limit.
        again: calls that were paid for beside one per row.
    """

    seconds: float
    share: float
    again: int


def peers(turns: int, *, quick: bool) -> None:
    """Compare the times in turns, then what one kill costs each."""
    rows = 1000 if quick else 20_000
    runs: dict[str, list[Run]] = {"headgate": []}
    for name in NAMES:
        try:
            command_of(name)
        except PeerError as error:
            print(f"no comparison with {name}: {error}")
        else:
            runs[name] = []
    for _ in range(min(turns, 2)):
        for name in list(runs):
            with_reason(runs, name, rows, is_killed=False)
    # Half as many rows, so that the time of a job without a loss is half of that above.
    lost: dict[str, list[Run]] = {name: [] for name in runs}
    for name in runs:
        with_reason(lost, name, rows // 2, is_killed=True)
    print_runs(rows, runs, lost)
    ratios = ratios_of(runs, lost)
    goals = {name: FASTER if name in NAMES.values() else LESS for name in ratios}
    harness.report(
        "calls_peers",
        ratios,
        goals,
        quick=quick,
        undisturbed={name: [vars(run) for run in of_name] for name, of_name in runs.items()},
        lost={name: vars(run) for name, (run,) in lost.items()},
    )


def print_runs(rows: int, runs: dict[str, list[Run]], lost: dict[str, list[Run]]) -> None:
    print(f"\ncalls: {rows:,} calls of a service that takes {RATE}/s")
    for name, of_name in runs.items():
        share = statistics.median(run.share for run in of_name)
        print(f"  {name:<12}{seconds_of(of_name):>8.2f} s   {share:.2f} of the limit")
    print(f"\ncalls: {rows // 2:,} calls, and the kill of a process that calls")
    for name, (run,) in lost.items():
        print(
            f"  {name:<12}{run.seconds:>8.2f} s, {cost(run, runs[name]):.2f} s by the kill;"
            f" {run.again:,} calls paid for again"
        )


def ratios_of(runs: dict[str, list[Run]], lost: dict[str, list[Run]]) -> dict[str, float]:
    """Return what others take, over what Headgate takes."""
    ratios, (ours,) = {}, lost["headgate"]
    for name, ratio in NAMES.items():
        if name in runs:
            ratios[ratio] = seconds_of(runs[name]) / seconds_of(runs["headgate"])
        if name in lost:
            (run,) = lost[name]
            ratios[f"{ratio}_again"] = run.again / max(1, ours.again)
            costs = cost(run, runs[name]) / cost(ours, runs["headgate"])
            ratios[f"{ratio}_after"] = costs
    return ratios


def seconds_of(runs: Sequence[Run]) -> float:
    return statistics.median(run.seconds for run in runs)


def cost(run: Run, undisturbed: Sequence[Run]) -> float:
    """Return the seconds that a kill costs; a job of half of the rows takes half of the time."""
    return max(0.1, run.seconds - seconds_of(undisturbed) / 2)


def with_reason(runs: dict[str, list[Run]], name: str, rows: int, *, is_killed: bool) -> None:
    """Run a program once; one that fails is left out, and the reason printed."""
    try:
        runs[name].append(measured(name, rows, is_killed=is_killed))
    except (PeerError, flink_cluster.FlinkError, AssertionError) as error:
        if name == "headgate":
            raise
        print(f"no comparison with {name}: {error}")
        del runs[name]


def command_of(name: str) -> Sequence[str]:
    """Return the words of a program.

    Raises:
        PeerError: its environment cannot be had.
    """
    if name == "headgate":
        return OURS
    python = Path(sys.executable)
    if name == "PyFlink":
        python = pyflink.environment()
    elif name in PACKAGES:
        python = environments.environment(name.split(maxsplit=1)[0].lower(), PACKAGES[name])
    return (str(python), "-P", str(PROGRAM), name)


def measured(name: str, rows: int, *, is_killed: bool) -> Run:
    """Run a program once.

    Raises:
        PeerError: it failed.
    """
    draw, restart = random.Random(SEED), f"{name} starts again"
    with (
        tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder,
        Service(**SERVICE) as service,
        cluster_of(name) as cluster,
    ):
        pids = Path(folder) / "pids"
        pids.mkdir()
        order = {"url": service.url, "rows": rows, "folder": folder, "in_flight": IN_FLIGHT}
        order |= {"exchanges": False, "options": REMEMBERED, "interval": 1, **cluster.order}
        log = Path(folder) / "log"
        with Program(command_of(name), order, log, cluster.environ) as program:
            program.begin()
            started = time.perf_counter()
            if is_killed:
                wait_until(lambda: answers(service) >= rows // 2, program)
                kill_one(pids, draw)
            try:
                program.finish()
            except PeerError:
                if not is_killed or any(pids.iterdir()):
                    raise
                print(f"  {restart}: the process that calls is all of it")
                with Program(command_of(name), order, log, cluster.environ) as second:
                    second.begin()
                    second.finish()
            seconds = time.perf_counter() - started
    ledger = service.ledger()
    bill = int(pc.sum(ledger["paid"]).as_py())
    return Run(seconds, share_of_limit(service, rows, seconds), bill - rows)


@dataclass(frozen=True)
class Cluster:
    """What a program needs beside its order."""

    order: dict[str, Any]
    environ: dict[str, str]


@contextmanager
def cluster_of(name: str) -> Iterator[Cluster]:
    """Yield what a program needs; PyFlink has a cluster with a TaskManager for each task."""
    if name != "PyFlink":
        yield Cluster({}, {})
        return
    libraries = pyflink.packages(pyflink.environment())
    paths = f"{libraries}:{PROGRAM.parents[2]}"
    with (
        flink_cluster.cluster(
            pyflink.jars_of(libraries), TASKS, managed="128m", environment={"PYTHONPATH": paths}
        ) as cluster,
    ):
        environ = {"PYTHONPATH": paths, "FLINK_LOG_DIR": str(cluster.folder)}
        yield Cluster({"rest": cluster.rest}, environ)
