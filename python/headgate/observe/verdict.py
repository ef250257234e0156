"""Names the stage that limits a run in one sentence, or nothing if no stage clearly does.

The rule is that of Flink's web interface: the cause is not a back-pressured task, but the first
busy task downstream of it. The worst task decides, never the mean. Only shares and ratios of times
decide, above minimum times, so neither the order of the tasks nor a common factor matters.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from headgate.observe.numbers import share as percent
from headgate.observe.record import Task, Verdict
from headgate.observe.stages import times_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

#: Origin of what producers get: a source that they read, the JVM, or an exchange before in the same tasks.
Feed: TypeAlias = Literal["source", "jvm", "exchange"]
#: Minimum seconds of an exchange for a verdict.
MIN_SECONDS: Final = 2.0
#: Share of its time above which a task counts as back-pressured, or as busy in one stage.
MOST: Final = 0.5
#: Share of its time from which a consumer counts as busy.
BUSY: Final = 0.6
#: It is skew if all other tasks are busy for at most this share of the busiest one's time.
SKEW: Final = 0.5
#: Minimum ms of a task for its shares to count.
_MIN_TASK_MS: Final = 1000
#: If tasks disagree on the slowest stage, minimum ratio of its total time to that of the second.
_CLEARLY: Final = 1.5
#: A host is slow if each of its tasks takes this many times as long per row as any task elsewhere.
SLOW_HOST: Final = 2.0
#: Minimum tasks on a slow host, and on all others.
_MIN_HOST_TASKS: Final = 2
#: Share of its time that a task must wait for a stage of a streaming job, and that a task of the stage must work.
_WAITED: Final = 0.1
_WORKED: Final = 0.3
#: Task number that stands for all producers.
_ALL: Final = -1

#: Kind -> a change that may help.
ADVICE: Final = {
    "source-busy": "read fewer columns, filter in the source, or give it more splits and slots",
    "chain-feed": "look at the run of the exchange before, whose reduce makes the rows in the same tasks",
    "jvm-feed": "let the producers read the source themselves: exchange(source, spark=spark, ...)",
    "map-busy": "make map faster, or give the producers more slots",
    "exchange": "send fewer or narrower columns",
    "reduce-busy": "make reduce faster, for example by a call for many keys (headgate.per_groups); more partitions help "
    "where slots are free",
    "skew": "more partitions will not help; merge rows before they are sent (combine=), or split the hot key",
    "sink": "make the code after the exchange faster",
    "disk": "use faster local disks, or compression",
    "remote-read": "send fewer or narrower columns, compress them, or raise memory, so that more is on its way; "
    "look at the network, and at the disks of the other hosts",
    "slow-host": "look at that host: other load, a slower processor, a failing disk",
    "operator-busy": "make its functions faster, or start the job with a higher parallelism",
    "operator-skew": "a higher parallelism will not help; split the hot key, or aggregate before key_by()",
}
#: Origin of the rows that producers get, if they do not read a source -> kind of a verdict, and the origin in words.
_WAITS: Final = {
    "jvm": ("jvm-feed", "the JVM"),
    "exchange": ("chain-feed", "the exchange before"),
}


def verdict_of_job(tasks: Iterable[Task], inputs: Mapping[str, Sequence[str]]) -> Verdict | None:
    """Return the stage of a streaming job that others wait for and that waits for no other.

    A stage that is blocked passes on the waits of a later one, so the last one in a chain of waits is named.

    Args:
        tasks: with their times of the last seconds.
        inputs: stage -> the stages that send to it.
    """
    stages: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        if task.wall_ms > 0:
            stages[task.role].append(task)
    waits = {name: max(map(_blocked, mine)) for name, mine in stages.items()}
    limits: list[tuple[float, Task, list[str]]] = []
    for name, mine in stages.items():
        worst = _most(mine, _busy)
        senders = sorted({sender for sender in inputs[name] if waits.get(sender, 0.0) >= _WAITED})
        if senders and _busy(worst) >= max(_WORKED, _blocked(worst)):
            limits.append((_busy(worst), worst, senders))
    if not limits:
        return None
    share, worst, senders = max(limits, key=lambda limit: limit[0])
    waited = max(waits[sender] for sender in senders)
    verb = "waits" if len(senders) == 1 else "wait"
    text = f"{' and '.join(senders)} {verb} {percent(waited)} of the time for {worst.role}, whose busiest task works "
    text += f"{percent(share)} of the time"
    others = [_busy(task) for task in stages[worst.role] if task is not worst]
    is_skewed = bool(others) and max(others) <= SKEW * share
    if is_skewed:
        text += f", the others at most {percent(max(others))}"
    kind = "operator-skew" if is_skewed else "operator-busy"
    return Verdict(kind, worst.role, worst.task, share, text, ADVICE[kind])


def verdict_of_exchange(
    tasks: Iterable[Task], seconds: float, *, feed: Feed | None = "jvm"
) -> Verdict | None:
    """Return the slowest stage of an exchange, whose two sides run one after the other.

    It is a stage of the side whose tasks took longer in all.

    Args:
        tasks: the tasks that have ended.
        seconds: seconds since the start of the run.
        feed: the origin of what the producers get; None if it is not the same for all.
    """
    if seconds < MIN_SECONDS:
        return None
    tasks = list(tasks)
    producers = [task for task in tasks if task.role == "map"]
    consumers = [task for task in tasks if task.role == "reduce"]
    if sum(task.wall_ms for task in consumers) > sum(task.wall_ms for task in producers):
        long = _long_enough(consumers)
        disk = _waiting(long, "disk_ms", "disk", "files to be read")
        # The shares of short consumers count if one is long, or in their sum.
        judged = long if [task.task for task in long] == [_ALL] else consumers
        return (
            disk
            or (_downstream(judged) if long else None)
            or _waiting(long, "link_ms", "remote-read", "rows from other hosts")
        )
    long = _long_enough(producers)
    disk = _waiting(long, "disk_ms", "disk", "files to be written")
    return disk or _upstream(long, feed)


def _long_enough(tasks: list[Task]) -> list[Task]:
    """Return the tasks that ran long enough, or their sum if many short ones ran in waves."""
    long = [task for task in tasks if task.wall_ms >= _MIN_TASK_MS]
    if long or not tasks:
        return long
    thread = ("input_ms", "function_ms", "emit_ms", "blocked_ms")
    names = (*thread, "disk_ms", "link_ms")
    sums = {name: sum(getattr(task, name) for task in tasks) for name in names}
    total = Task(tasks[0].role, _ALL, **sums)
    return [total] if total.wall_ms >= MIN_SECONDS * 1000 else []


def _waiting(tasks: list[Task], name: str, kind: str, what: str) -> Verdict | None:
    """Return a verdict if a task waited most of its time, which threads beside it may have done too."""

    def share(task: Task) -> float:
        waited: int = getattr(task, name)
        return min(1.0, waited / task.wall_ms)

    worst = _most(tasks, share) if tasks else None
    if worst is None or share(worst) <= MOST:
        return None
    return _verdict(kind, "exchange", worst, share(worst), f"waiting for {what}")


def _downstream(consumers: list[Task]) -> Verdict | None:
    longest = max(task.wall_ms for task in consumers)
    worst = _most(consumers, _load)
    busy, blocked = worst.function_ms / longest, worst.blocked_ms / longest
    if blocked > MOST:
        return _verdict("sink", "sink", worst, blocked, "waiting for the code after it")
    if busy < BUSY:
        return None
    slow = _slow_host(consumers, "reduce", busy)
    if slow is not None:
        return slow
    name = "reduce" if worst.task == _ALL else f"reduce {worst.task}"
    kind, text = "reduce-busy", f"{name} is busy {percent(busy)}"
    others = [task for task in consumers if task is not worst]
    if others:
        least, next_busy = (f(task.function_ms for task in others) / longest for f in (min, max))
        also = f"all others at least {percent(least)}"
        text += f", {also if least >= BUSY else f'the others at most {percent(next_busy)}'}"
        if next_busy <= SKEW * busy and max(map(_load, others)) / longest <= MOST:
            kind, rows = "skew", sum(task.rows for task in consumers)
            text += f"; it got {percent(worst.rows / rows)} of the rows" if rows else ""
    return Verdict(kind, "reduce", _number(worst), busy, text, ADVICE[kind])


def _upstream(producers: list[Task], feed: Feed | None) -> Verdict | None:
    worst: dict[str, tuple[float, Task]] = {}
    total = dict.fromkeys(("source", "map", "exchange"), 0)
    for stage in total if producers else ():
        total[stage] = sum(times_in(stage, task)[1] for task in producers)
        by = partial(_share, stage)
        most = _most(producers, by)
        share = by(most)
        if share > MOST:
            worst[stage] = share, most
    ranked = sorted(worst, key=lambda stage: total[stage], reverse=True)
    if not ranked or (len(ranked) > 1 and total[ranked[0]] < _CLEARLY * total[ranked[1]]):
        return None
    stage = ranked[0]
    share, task = worst[stage]
    if stage == "source" and feed != "source":
        if feed is None:
            return None
        kind, origin = _WAITS[feed]
        return _verdict(kind, stage, task, share, f"waiting for {origin}")
    slow = None if stage == "exchange" else _slow_host(producers, stage, share)
    if slow is not None:
        return slow
    kinds = {
        "source": ("source-busy", "reading the source"),
        "map": ("map-busy", "map"),
        "exchange": ("exchange", "writing rows into pages"),
    }
    kind, work = kinds[stage]
    return _verdict(kind, stage, task, share, work)


def _slow_host(tasks: list[Task], stage: str, share: float) -> Verdict | None:
    """Return a verdict if all tasks of one host take far longer per row than all others.

    Their shares of time tell nothing of it: a function may take all of each task's time, on a fast host too.
    """
    if any(not task.host for task in tasks):
        return None
    paces: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for task in tasks:
        if task.rows:
            paces[task.host].append((times_in(stage, task)[1] / task.rows, task.task))
    for host, here in paces.items():
        there = [
            pace for other, paces_there in paces.items() if other != host for pace, _ in paces_there
        ]
        if min(len(here), len(there)) < _MIN_HOST_TASKS:
            continue
        slow, _ = min(here)
        _, number = min(here, key=lambda pace_and_task: (-pace_and_task[0], pace_and_task[1]))
        if max(there) and slow >= SLOW_HOST * max(there):
            work = "reading the source" if stage == "source" else stage
            times = f"{slow / max(there):.1f} times as long per row on {host} as elsewhere"
            text = f"{work} takes at least {times}"
            return Verdict("slow-host", stage, number, share, text, ADVICE["slow-host"])
    return None


def _most(tasks: list[Task], by: Callable[[Task], float]) -> Task:
    """Return the task with the most; of equal ones the first by number, whatever their order."""
    return max(tasks, key=lambda task: (by(task), -task.task))


def _share(stage: str, task: Task) -> float:
    """Return the share of its time that a task spends in a stage."""
    return times_in(stage, task)[1] / task.wall_ms


def _verdict(kind: str, stage: str, task: Task, share: float, work: str) -> Verdict:
    """Return a verdict about work that takes a share of the time of a task, or of all of its role."""
    name = "producer" if task.role == "map" else "consumer"
    who = f"the {name}s" if task.task == _ALL else f"{name} {task.task}"
    text = f"{work} takes {percent(share)} of the time of {who}"
    return Verdict(kind, stage, _number(task), share, text, ADVICE[kind])


def _number(task: Task) -> int | None:
    return None if task.task == _ALL else task.task


def _busy(task: Task) -> float:
    return task.busy_ms / task.wall_ms


def _blocked(task: Task) -> float:
    return task.blocked_ms / task.wall_ms


def _load(task: Task) -> int:
    return task.function_ms + task.blocked_ms
