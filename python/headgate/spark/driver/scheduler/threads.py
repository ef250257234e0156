"""Stacks of the driver's threads: those of its JVM, read through py4j, and those of this process."""

from __future__ import annotations

import sys
import traceback
from typing import Any, Final

#: Packages whose code plans, lists files, schedules or collects on the driver.
_PACKAGES: Final = (
    "org.apache.hadoop.",
    "org.apache.spark.rdd.",
    "org.apache.spark.scheduler.",
    "org.apache.spark.sql.",
)
#: Threads that run tasks, or feed a task's Python worker: with ``local[n]`` they are in the driver.
_OF_TASKS: Final = ("Executor task launch worker", "stdout writer for")
#: Frames of a thread that stand for its place, from the innermost of those packages on.
_FRAMES: Final = 12
#: Frames of a Python stack in an error.
_MAX_STACK: Final = 12


def driver_threads(scala: Any) -> tuple[bool, str]:
    """Return True if a driver thread computes or waits for the network, and the stacks of all.

    Args:
        scala: Spark's own context.
    """
    dump = scala.getExecutorThreadDump("driver")
    computes, places = False, []
    for thread in dump.get() if dump.isDefined() else ():
        name = str(thread.threadName())
        if name.startswith(_OF_TASKS):
            continue
        frames = _frames(str(thread.stackTrace().toString()))
        if frames:
            computes |= str(thread.threadState().toString()) == "RUNNABLE"
            places.append(f"{name}: {' < '.join(frames[:_FRAMES])}")
    return computes, "\n".join(sorted(places))


def _frames(stack: str) -> list[str]:
    """Return the frames from the innermost one of Spark's code outwards; empty if there is none."""
    lines = (line.strip().rpartition("//")[2] for line in stack.splitlines())
    frames: list[str] = []
    for line in lines:
        if frames or line.startswith(_PACKAGES):
            frames.append(line)
    return frames


def python_stack(ident: int) -> str:
    """Return the innermost frames of a thread of this process; empty when it has ended."""
    frame = sys._current_frames().get(ident)  # noqa: SLF001 - documented, for debuggers
    if frame is None:
        return ""
    return "".join(traceback.format_stack(frame)[-_MAX_STACK:]).rstrip("\n")
