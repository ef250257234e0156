"""Which stage of an exchange is the slowest, in one sentence; or nothing when that is not sure.

The rule is Flink's, as its web interface teaches it: the cause is not who is back-pressured, but
the first busy one downstream of it. The worst task decides, never the mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from headgate.spark.progress.task_stats import TaskStats

if TYPE_CHECKING:
    from collections.abc import Iterable

Kind = Literal[
    "source-busy",
    "jvm-feed",
    "map-busy",
    "exchange",
    "reduce-busy",
    "skew",
    "sink",
    "waiting-for-slots",
]

#: Seconds of a run below which nothing is said.
MIN_SECONDS: Final = 2.0
#: Part of its time from which a task counts as back-pressured, or a producer as one stage's.
MOST: Final = 0.5
#: Part of its time from which a consumer counts as busy.
BUSY: Final = 0.6
#: A single consumer is busy, and the others at most this part of it: skew.
SKEW: Final = 0.5
#: ms of a task below which its parts say nothing.
_MIN_TASK_MS: Final = 1000
#: The same where both halves wait for each other: that may be the start of a run, too.
_MIN_EXCHANGE_MS: Final = 5000
#: Of two stages that are the slowest in different tasks, the one with so much more time in all.
_CLEARLY: Final = 1.5
#: The producers were done, and the consumers went on for so many times their time.
_TAIL: Final = 2.0
#: Stands for all producers.
_ALL: Final = -1

_ADVICE: Final[dict[str, str]] = {
    "source-busy": "read fewer columns, filter in the source, or give it more splits and slots",
    "jvm-feed": "let the producers read the source themselves: exchange(source, spark=spark, ...)",
    "map-busy": "make map faster, or give the producers more slots",
    "exchange": "send fewer or narrower columns",
    "reduce-busy": "make reduce faster, or use more partitions",
    "skew": "more partitions will not help; split the hot key, or aggregate in map first",
    "sink": "make faster what comes after the exchange",
    "waiting-for-slots": "fewer partitions, or more slots",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The slowest stage of a run.

    Attributes:
        kind: what it is.
        stage: ``"source"``, ``"map"``, ``"exchange"``, ``"reduce"`` or ``"sink"``.
        task: the task that shows it best; None where it is no single task.
        share: the part of its time that this task spent on it, 0 to 1.
        text: the sentence, with its evidence.
        advice: what may help.
    """

    kind: Kind
    stage: str
    task: int | None
    share: float
    text: str
    advice: str


def verdict(
    tasks: Iterable[TaskStats],
    seconds: float,
    *,
    reads_splits: bool = False,
    waits_for_slots: bool = False,
) -> Verdict | None:
    """Name the slowest stage of a run, or None when it is too early or not clear.

    Args:
        tasks: of the run.
        seconds: since its start.
        reads_splits: whether producers read a source themselves, instead of the JVM's rows.
        waits_for_slots: whether consumers hold all slots, and no producer can start.
    """
    if seconds < MIN_SECONDS:
        return None
    if waits_for_slots:
        return _made("waiting-for-slots", "source", None, 1.0, "no slot is free for the producers")
    tasks = list(tasks)
    producers = _telling([task for task in tasks if task.role == "map"])
    consumers = [task for task in tasks if task.role == "reduce"]
    longest = max((task.wall_ms for task in consumers), default=0)
    blocked = [task.blocked_ms / task.wall_ms for task in producers]
    are_blocked = bool(blocked) and max(blocked) > MOST
    if are_blocked or _is_tail(tasks, longest):
        found = _downstream(consumers, longest, blocked)
        if are_blocked or found is not None:
            return found
    if longest and max(map(_load, consumers)) / longest > MOST:
        return None  # both halves work: neither clearly waits for the other
    return _upstream(producers, reads_splits=reads_splits)


def _telling(producers: list[TaskStats]) -> list[TaskStats]:
    """Return the tasks that ran long enough; their sum where many short ones came in waves."""
    long = [task for task in producers if task.wall_ms >= _MIN_TASK_MS]
    if long:
        return long
    names = ("input_ms", "function_ms", "emit_ms", "blocked_ms")
    total = TaskStats("map", _ALL, **{n: sum(getattr(t, n) for t in producers) for n in names})
    return [total] if total.wall_ms >= MIN_SECONDS * 1000 else []


def _is_tail(tasks: list[TaskStats], longest: int) -> bool:
    """Tell whether producers were done early, and consumers went on."""
    producers = [task for task in tasks if task.role == "map"]
    needed = max((task.wall_ms for task in producers), default=0)
    over = all(task.state != "running" for task in producers)
    return needed > 0 and over and longest >= _TAIL * needed


def _downstream(consumers: list[TaskStats], longest: int, blocked: list[float]) -> Verdict | None:
    if longest < _MIN_TASK_MS:
        return None
    worst = max(consumers, key=_load)
    busy, taken = worst.function_ms / longest, worst.blocked_ms / longest
    if taken > MOST:
        text = f"what follows the exchange lets consumer {worst.task} wait {_percent(taken)}"
        return _made("sink", "sink", worst.task, taken, f"{text} of the time")
    if busy >= BUSY:
        return _reduce(consumers, worst, longest, blocked)
    both_wait = blocked and min(blocked) > MOST and _load(worst) / longest < MOST
    if both_wait and longest >= _MIN_EXCHANGE_MS:
        text = f"producers wait {_percent(max(blocked))} of the time, and consumers are idle"
        return _made("exchange", "exchange", None, max(blocked), text)
    return None


def _reduce(
    consumers: list[TaskStats], worst: TaskStats, longest: int, blocked: list[float]
) -> Verdict:
    busy = worst.function_ms / longest
    text = f"reduce {worst.task} is busy {_percent(busy)}"
    others = [task for task in consumers if task is not worst]
    if others:
        next_busy = max(task.function_ms for task in others) / longest
        text += f", the others at most {_percent(next_busy)}"
        if next_busy <= SKEW * busy and max(map(_load, others)) / longest <= MOST:
            rows = sum(task.rows for task in consumers)
            if rows:
                text += f"; it got {_percent(worst.rows / rows)} of the rows"
            return _made("skew", "reduce", worst.task, busy, text)
    if blocked:
        text += f"; producers wait up to {_percent(max(blocked))} of the time"
    return _made("reduce-busy", "reduce", worst.task, busy, text)


def _upstream(producers: list[TaskStats], *, reads_splits: bool) -> Verdict | None:
    worst: dict[str, tuple[float, int]] = {}
    total = dict.fromkeys(("source", "map", "exchange"), 0)
    for producer in producers:
        for stage in total:
            spent = producer.of(stage)[1]
            share = spent / producer.wall_ms
            total[stage] += spent
            if share > max(MOST, worst.get(stage, (0.0, 0))[0]):
                worst[stage] = share, producer.task
    ranked = sorted(worst, key=lambda stage: total[stage], reverse=True)
    if not ranked or (len(ranked) > 1 and total[ranked[0]] < _CLEARLY * total[ranked[1]]):
        return None
    stage = ranked[0]
    share, number = worst[stage]
    who = "the producers" if number == _ALL else f"producer {number}"
    task = None if number == _ALL else number
    if stage == "source" and not reads_splits:
        text = f"the JVM is waited for: {_percent(share)} of the time of {who}"
        return _made("jvm-feed", stage, task, share, text)
    kinds: dict[str, tuple[Kind, str]] = {
        "source": ("source-busy", "reading the source"),
        "map": ("map-busy", "map"),
        "exchange": ("exchange", "putting rows into pages"),
    }
    kind, what = kinds[stage]
    return _made(kind, stage, task, share, f"{what} takes {_percent(share)} of the time of {who}")


def _load(task: TaskStats) -> int:
    return task.function_ms + task.blocked_ms


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _made(kind: Kind, stage: str, task: int | None, share: float, text: str) -> Verdict:
    return Verdict(kind, stage, task, share, text, _ADVICE[kind])
