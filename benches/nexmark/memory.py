"""Peak resident memory of a query: that of all processes of its run together, ours and each peer's.

A run has processes of its own, which start for it: ours a Python process with two workers, Flink a JVM, Spark a driver with its
JVM and workers, Bytewax two processes. Every 50 ms their resident memory is summed; memory that processes share counts in each.
The JVMs may fill 8 GiB each before they collect garbage, so theirs is what they take, not what they need. Each query runs once.
"""

from __future__ import annotations

import os
import threading
from argparse import Namespace
from collections import defaultdict
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from benches import environments, harness
from benches.nexmark.engines import FEW, Engine, opened, surviving
from benches.nexmark.events import written
from benches.nexmark.ours import Apart

QUERIES = ("q5", "q9", "q17", "q18", "q20")
PEERS = ("flink", "spark", "bytewax")
#: Seconds between two looks.
EVERY = 0.05
PAGE = os.sysconf("SC_PAGE_SIZE")


def run(options: Namespace) -> None:
    """Run each query once in each engine; print and store the peaks."""
    events = options.events or (FEW * 4 if options.quick else 10_000_000)
    folder = written(environments.cache(), events)
    peers = PEERS if options.peers is None else options.peers
    peaks: dict[str, dict[str, int]] = {}
    for query in options.queries or QUERIES:
        peaks[query] = {"headgate": peak(Apart(2), query, folder)}
        for name in peers:
            with ExitStack() as stack:
                # Within the stack, so that a JVM has no memory of the query before.
                for engine in opened(stack, [name]).values():
                    failed: set[str] = set()
                    if engine.can(query):
                        size = surviving(name, failed, partial(peak, engine, query, folder))
                        peaks[query] |= {} if failed else {name: int(size)}
        sizes = ", ".join(f"{name} {size / 1e9:.2f} GB" for name, size in peaks[query].items())
        print(f"  {query}: {sizes}", flush=True)
    if not options.quick:
        harness.store("nexmark_memory", events=events, peaks=peaks)


def peak(engine: Engine | Apart, query: str, events: Path) -> int:
    """Run a query; return the most resident memory of the processes below this one, in bytes."""
    most, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(EVERY):
            most[0] = max(most[0], resident(os.getpid()))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        engine.seconds(query, events)
    finally:
        ended.set()
        watcher.join()
    return most[0]


def resident(root: int) -> int:
    """Return the resident memory of all processes below another one, in bytes."""
    children = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            _, parent, *_ = (
                path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            )
            children[int(parent)].append(int(path.parent.name))
    total, below = 0, list(children[root])
    while below:
        process = below.pop()
        below += children[process]
        with suppress(OSError):
            statm = Path(f"/proc/{process}/statm").read_text(encoding="ascii")
            total += int(statm.split()[1]) * PAGE
    return total
