"""Names functions that block the event loop of their calls: a thread looks where the thread of a loop is. Decision: ADR 0060.

Of the time between two looks at the same step of a loop, only what its thread has computed, and what it has slept, is sure to be
time in which the loop stood still. Time in which it waited for a processor does not count, as the kernel tells it, nor time in which it may
have waited for Python's lock: a thread that does wakes up at each switch interval.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.errors import UserFunctionError

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from headgate.stream.graph.metrics import Metrics

#: Seconds between two looks, and seconds for which a step must have blocked.
LOOK: Final = 0.025
BLOCKED: Final = 0.1
#: Most seconds of sleep between two looks that count: after more the whole process may have been stopped.
_LONGEST_SLEEP: Final = 0.2
#: A step of a loop: the frame of one callback.
_STEP: Final[CodeType] = asyncio.Handle._run.__code__  # noqa: SLF001 - there is no public one
#: Folders whose functions nobody means: those of Python, and then those of packages.
_PYTHON: Final = tuple(
    sysconfig.get_path(name) + os.sep
    for name in ("stdlib", "platstdlib")
    if sysconfig.get_path(name)
)
_PACKAGES: Final = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_HEADGATE: Final = f"{Path(__file__).parents[3]}{os.sep}"
_LOG: Final = logging.getLogger("headgate.stream")
_REMEDY: Final = "def f(row): ..., whose calls have a thread each · await asyncio.to_thread(f, row) · a client whose calls are awaited"


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """Times of a thread in seconds, as the kernel tells them.

    Attributes:
        ran: it has computed.
        waited: it has waited for a processor.
        turns: how often it began to run.
        sleeps: True if it does not run, nor wait for a processor.
    """

    ran: float
    waited: float
    turns: int
    sleeps: bool


def thread_times(native_id: int) -> ThreadTimes | None:
    """Return the times of a thread of this process; None if the kernel does not tell."""
    with suppress(OSError, ValueError, IndexError):
        folder = f"/proc/self/task/{native_id}"
        with open(f"{folder}/stat", "rb") as file:  # noqa: PTH123 - often
            state = file.read().rpartition(b")")[2].split(None, 1)[0]
        with open(f"{folder}/schedstat", "rb") as file:  # noqa: PTH123 - often
            ran, waited, turns = map(int, file.read().split()[:3])
        return ThreadTimes(ran / 1e9, waited / 1e9, turns, state in b"SD")
    return None


def sure_seconds(
    before: ThreadTimes | None, now: ThreadTimes | None, seconds: float, interval: float
) -> float:
    """Return for how long of the time between two looks a thread has computed, or slept without a wish for Python's lock.

    Args:
        before: its times at the first look.
        now: at the second.
        seconds: between them.
        interval: Python's switch interval in seconds.
    """
    if before is None or now is None:
        return 0.0
    ran = now.ran - before.ran
    slept = seconds - ran - (now.waited - before.waited) - interval * (now.turns - before.turns)
    # A wait for a processor is told when it is over.
    is_sleep = before.sleeps and now.sleeps
    return ran + (min(_LONGEST_SLEEP, max(0.0, slept)) if is_sleep else 0.0)


def step_of(frame: FrameType | None) -> tuple[FrameType | None, list[FrameType]]:
    """Return the frame of the step in which the thread of a loop is, and the frames within it, the innermost first.

    Args:
        frame: the innermost one of the thread.
    """
    within: list[FrameType] = []
    while frame is not None:
        if frame.f_code is _STEP:
            return frame, within
        within.append(frame)
        frame = frame.f_back
    return None, []


def place_in(frames: list[FrameType]) -> FrameType | None:
    """Return the innermost frame of a user's function, else the outermost one of a package; None for Headgate's own.

    Args:
        frames: of a step, the innermost first.
    """
    frames = [
        frame
        for frame in frames
        if not frame.f_code.co_filename.startswith((_HEADGATE, "<frozen"))
        and (not frame.f_code.co_filename.startswith(_PYTHON) or _is_of_package(frame))
    ]
    of_users = [frame for frame in frames if not _is_of_package(frame)]
    return next(iter(of_users or frames[-1:]), None)


def _is_of_package(frame: FrameType) -> bool:
    return any(folder in frame.f_code.co_filename for folder in _PACKAGES)


@dataclass(slots=True)
class WatchedLoop:
    """An event loop, and the step in which its thread was last.

    Attributes:
        thread: ident of its thread.
        native_id: of the thread.
        is_busy: True while there are calls.
        blocked: takes the place of a step that blocks, the seconds so far, and True at the first time.
        step: frame of the step; None if it was between two.
        at: time of the last look.
        times: of the thread, then.
        sure: seconds for which the step is sure to have blocked.
        places: these seconds by function.
        names: of all functions that were in a step, with the line where the first look saw each.
        place: where it blocks; empty before that is sure.
    """

    thread: int
    native_id: int
    is_busy: Callable[[], bool]
    blocked: Callable[[str, float, bool], None]
    step: FrameType | None = None
    at: float = 0.0
    times: ThreadTimes | None = None
    sure: float = 0.0
    places: dict[CodeType, float] = field(default_factory=dict)
    names: dict[CodeType, str] = field(default_factory=dict)
    place: str = ""

    def look(self, frame: FrameType | None, now: float, interval: float) -> None:
        """Note where the thread is.

        Args:
            frame: its innermost one.
            now: the time.
            interval: Python's switch interval in seconds.
        """
        step, within = step_of(frame)
        if step is None or step is not self.step:
            self._end()
        times = None if step is None else thread_times(self.native_id)
        if step is not None and step is self.step:
            self._go_on(within, sure_seconds(self.times, times, now - self.at, interval))
        self.step, self.at, self.times = step, now, times

    def _go_on(self, within: list[FrameType], sure: float) -> None:
        self.sure += sure
        frame = place_in(within)
        if frame is not None:
            code = frame.f_code
            name = f"{code.co_filename}:{frame.f_lineno} in {code.co_qualname}"
            self.names.setdefault(code, name)
            self.places[code] = self.places.get(code, 0.0) + sure
        if self.sure < BLOCKED or not self.places:
            return
        is_first = not self.place
        if is_first:
            self.place = self.names[max(self.places, key=lambda code: self.places[code])]
        self.blocked(self.place, self.sure, is_first)

    def _end(self) -> None:
        self.sure, self.place = 0.0, ""
        self.places.clear()


class BlockedCalls:
    """Counts the steps of an operator's calls that block their loop, by place, and tells the log of each place once.

    Args:
        name: of the calls, for the log.
        metrics: has the tally.
    """

    def __init__(self, name: str, metrics: Metrics) -> None:
        self._name = name
        self._tally = metrics.tally("calls_blocked")
        self._logged: set[str] = set()

    def __call__(self, place: str, seconds: float, is_first: bool) -> None:
        """Take what the watch has seen."""
        self._tally.add(place, int(is_first), size=round(seconds, 3))
        if place in self._logged:
            return
        self._logged.add(place)
        error = UserFunctionError(
            f"{self._name}: a function blocks the event loop of the calls, at {place}",
            asked=f"no step of a coroutine function above {BLOCKED:g} s",
            have=f"{seconds:.2f} s so far, in which no other call of the task went on",
            remedy=_REMEDY,
        )
        lines = str(error).split("\n")
        _LOG.warning("\n".join(["%s"] * len(lines)), *lines)


class LoopWatch:
    """Looks at the loops of this process, from one thread, while they have calls."""

    def __init__(self) -> None:
        self._loops: tuple[WatchedLoop, ...] = ()
        self._changing = threading.Lock()
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, loop: WatchedLoop) -> None:
        """Begin to look at a loop."""
        with self._changing:
            self._loops = (*self._loops, loop)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="headgate-watch", daemon=True
                )
                self._thread.start()

    def remove(self, loop: WatchedLoop) -> None:
        """Look at a loop no more."""
        with self._changing:
            self._loops = tuple(other for other in self._loops if other is not loop)
        self._wanted.set()

    def wake_up(self) -> None:
        """Look again, since a loop has calls."""
        if not self._wanted.is_set():
            self._wanted.set()

    def _run(self) -> None:
        while True:
            with self._changing:
                loops = self._loops
                if not loops:
                    self._thread = None
                    return
            busy = [loop for loop in loops if loop.is_busy()]
            if busy:
                self._look(busy)
                time.sleep(LOOK)
            else:
                self._wanted.wait()
                self._wanted.clear()

    @staticmethod
    def _look(loops: list[WatchedLoop]) -> None:
        frames, interval = sys._current_frames(), sys.getswitchinterval()  # noqa: SLF001 - documented
        now = time.monotonic()
        for loop in loops:
            loop.look(frames.get(loop.thread), now, interval)


#: Of this process.
WATCH: Final = LoopWatch()
