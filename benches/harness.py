"""Shared by all benches: interleaved turns, medians, RATIO lines, result files, a description of the machine.

A bench has named contestants: functions that do the work once and return the seconds it took. They run in
turn, so that other load on the machine falls on all of them; the first turn is not counted. A ratio is the
median over the turns of "their seconds over ours": above 1, ours is faster.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("headgate", "pyarrow", "numpy", "polars", "pyspark")

#: A ratio whose interquartile range over median is above this says little.
NOISY = 0.25


@dataclass(frozen=True)
class Ratio:
    """A comparison: the seconds of ``over`` divided by those of ``under``.

    If ``over`` names several contestants, the one with the smallest median counts. ``goal`` is None if
    none is set.
    """

    name: str
    over: str | tuple[str, ...]
    under: str
    goal: float | None = None


def arguments(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser for the options of every bench: ``--turns`` and ``--quick``."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=5, help="counted turns, by default 5")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run at all")
    return parser


@contextmanager
def process(body: Callable[[Connection], None]) -> Iterator[Connection]:
    """Run ``body`` in a new process; yield our end of its connection and close it at the end."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    other = context.Process(target=body, args=(there,), daemon=True)
    other.start()
    there.close()
    try:
        yield here
    finally:
        here.close()
        other.join(10)


def machine() -> dict[str, str | int]:
    """Describe the machine and the versions."""
    cpus = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    fields = {name.strip(): value.strip() for name, _, value in (c.partition(":") for c in cpus)}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found: dict[str, str | int] = {
        "cpu": " ".join(fields.get(name, "?") for name in ("model name", "cpu family", "model")),
        "cores": os.cpu_count() or 0,
        "memory_gib": round(memory / 2**30),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def commit() -> str:
    """Return the commit; it is marked if the working tree differs from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(command, cwd=RESULTS.parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def compare(
    bench: str,
    what: str,
    contestants: dict[str, Callable[[], float]],
    ratios: Sequence[Ratio],
    *,
    turns: int,
    size: int,
    quick: bool = False,
) -> list[float]:
    """Run all contestants in turn; print and store seconds, rates and ratios; return the ratios.

    Args:
        bench: name of the result file.
        what: one sentence, printed above the figures and stored with them.
        contestants: functions by name that return their seconds; all move the same data.
        ratios: the comparisons.
        turns: counted turns; one uncounted turn comes first.
        size: bytes that each contestant moves, for the rates.
        quick: True if sizes are small: no RATIO line is printed and no file written.
    """
    seconds = measure(bench, contestants, turns=turns)
    print(f"\n{bench}: {what}")
    print("machine: " + ", ".join(f"{key} {value}" for key, value in machine().items()))
    for name, times in seconds.items():
        median = statistics.median(times)
        print(
            f"  {name:<34}{median:>9.3f} s   {min(times):.3f}-{max(times):.3f}"
            f"{size / median / 1e6:>9,.0f} MB/s"
        )
    found = [_ratio(ratio, seconds, quick=quick) for ratio in ratios]
    if not quick:
        store(bench, what=what, bytes=size, seconds=seconds, ratios=found)
    return [float(str(ratio["median"])) for ratio in found]


def compare_memory(
    bench: str, what: str, sizes: dict[str, list[int]], allowed: float, *, quick: bool = False
) -> None:
    """Print and store sizes, and the ratio of what is allowed to the median of the largest.

    Args:
        bench: name of the result file and of the ratio, whose goal is 1.
        what: one sentence, printed above the figures and stored with them.
        sizes: the measured bytes by case.
        allowed: the most bytes that no case should exceed.
        quick: True if sizes are small: no RATIO line is printed and no file written.
    """
    print(f"\n{bench}: {what}")
    for name, found in sizes.items():
        words = f"{min(found) / 2**20:.0f}-{max(found) / 2**20:.0f}"
        print(f"  {name:<34}{statistics.median(found) / 2**20:>9.0f} MiB   {words}")
    median = allowed / max(map(statistics.median, sizes.values()))
    print(f"{'TRIED' if quick else 'RATIO'} {bench} {median:.2f} goal 1", flush=True)
    if not quick:
        ratio = {"name": bench, "goal": 1.0, "median": median}
        store(bench, what=what, bytes_by_case=sizes, ratios=[ratio])


def measure(
    bench: str, contestants: dict[str, Callable[[], float]], *, turns: int
) -> dict[str, list[float]]:
    """Run all contestants in turn; return the seconds of the counted turns."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(turns + 1):
        for name, run in contestants.items():
            gc.collect()
            took = run()
            if turn:
                seconds[name].append(took)
            if sys.stderr.isatty():
                print(f"  {bench}: turn {turn} of {turns}, {name} {took:.3f} s", file=sys.stderr)
    return seconds


def median_ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Return the median over the turns of one contestant's seconds over another's."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def report(
    bench: str,
    ratios: dict[str, float],
    goals: dict[str, float],
    *,
    quick: bool,
    **measured: object,
) -> None:
    """Print ratios with their goals, and store them with what was measured.

    Args:
        bench: name of the result file.
        ratios: by name.
        goals: by the same names.
        quick: True if sizes are small: no RATIO line is printed and no file written.
        measured: what else the file gets.
    """
    show_ratios(ratios, goals, quick=quick)
    if not quick:
        store(bench, **measured, ratios=ratios)


def show_ratios(ratios: dict[str, float], goals: dict[str, float], *, quick: bool) -> None:
    """Print ratios with their goals, as the last lines of a bench."""
    for name, ratio in ratios.items():
        print(
            f"{'TRIED' if quick else 'RATIO'} {name} {ratio:.2f} goal {goals[name]:g}", flush=True
        )


def store(bench: str, **found: object) -> None:
    """Write the results of a bench to a file, with the machine, the commit and the date."""
    write(bench, {"bench": bench, **circumstances(), **found})


def amend(bench: str, found: dict[str, dict[str, object]]) -> None:
    """Write results by name to the file of a bench, each with the machine, the commit and the date; keep its other results."""
    path = RESULTS / f"{bench}.json"
    results = json.loads(path.read_text(encoding="utf-8"))["results"] if path.exists() else {}
    results |= {name: circumstances() | result for name, result in found.items()}
    write(bench, {"bench": bench, "results": results})


def circumstances() -> dict[str, object]:
    """Return what a result depends on: the date, the commit and the machine."""
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return {"when": when, "commit": commit(), "machine": machine()}


def write(bench: str, record: dict[str, object]) -> None:
    """Write the file of a bench."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{bench}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _ratio(ratio: Ratio, seconds: dict[str, list[float]], *, quick: bool) -> dict[str, object]:
    rivals = (ratio.over,) if isinstance(ratio.over, str) else ratio.over
    rival = min(rivals, key=lambda name: statistics.median(seconds[name]))
    pairs = zip(seconds[rival], seconds[ratio.under], strict=True)
    values = sorted(over / under for over, under in pairs)
    median = statistics.median(values)
    quarter = len(values) // 4
    spread = (values[-1 - quarter] - values[quarter]) / median
    words = f"  {rival} over {ratio.under}: {values[0]:.2f} to {values[-1]:.2f}"
    if spread > NOISY:
        words += f"; middle half spreads {spread:.0%}, too noisy to say much"
    print(words)
    goal = "-" if ratio.goal is None else f"{ratio.goal:g}"
    name = "TRIED" if quick else "RATIO"
    print(f"{name} {ratio.name} {median:.2f} goal {goal}", flush=True)
    return {**asdict(ratio), "over": rival, "median": median, "values": values, "spread": spread}
