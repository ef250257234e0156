"""The runs of kept exchanges, as far as their tasks have told of them; and the sweep of their files.

A run is one exchange in one SQL execution of Spark. The driver has no other part in it.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.accumulators import Accumulator, AddingAccumulatorParam

from headgate._process import host_id
from headgate.spark.driver.kept.hosts import KeptHosts
from headgate.spark.driver.kept.kills import RunKills
from headgate.spark.driver.kept.outcome import DONE, RUNNING, Outcome, failed
from headgate.spark.driver.kept.stages import RunStages
from headgate.spark.tasks.kept_lifetime import sweep
from headgate.spark.tasks.report import run_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from headgate._process import MemoryGroup
    from headgate.observe.record import Failure
    from headgate.spark.driver.kept.spark_tasks import RunningTask, SparkTasks
    from headgate.spark.driver.kept.stages import StageCounts
    from headgate.spark.progress.settings import ExchangeSettings
    from headgate.spark.tasks.notice import Notice
    from headgate.spark.tasks.report import Role, TaskReport

_LOG: Final = logging.getLogger("headgate.spark")
_UNSETTLED: Final = (
    "iteration %s: the last round still changed rows (%d in partition %d, maybe others): give more "
    'rounds, or until="unchanged"'
)
#: Most runs that are kept at once; the oldest are forgotten.
_MOST: Final = 100
#: Most exchanges whose options are kept, as nobody tells of the end of each.
_MOST_SETTINGS: Final = 1_000
#: Task attempts that are remembered: more than end between two sweeps.
_REMEMBERED: Final = 10_000
#: Seconds between two looks at the files and at the application's end.
_LOOK: Final = 1.0


@dataclass(slots=True)
class KeptRun:
    """One exchange in one SQL execution.

    Attributes:
        exchange: name of the exchange, of all its inputs; of the iteration if it has parts.
        partitions: consumers of a part, if all of them run.
        number: of the run among those of kept exchanges in this application.
        execution: id of the SQL execution, of the newest part; None if an RDD's action started it.
        started: when its first known task began, in seconds of the driver's monotonic clock.
        heard: when the last report or notice came.
        producers: name of the input and number of a task -> its newest report.
        consumers: the same for the consumers.
        made_again: reports of producers that had reported before.
        failures: attempts that failed, of the tasks that succeeded later.
        ended: attempt -> when its report came.
        stages: those of its tasks, with the tasks that run.
        failed: stage and attempt -> how many attempts at tasks failed, and those that are known.
        parts: SQL executions so far; above 1 only for an iteration.
        is_unsettled: True once a task has said that the last round of an iteration changed rows.
        kills: those in the control groups of its tasks.
    """

    exchange: str
    partitions: int
    number: int
    execution: int | None
    started: float
    heard: float
    producers: dict[tuple[str, int], TaskReport] = field(default_factory=dict)
    consumers: dict[tuple[str, int], TaskReport] = field(default_factory=dict)
    made_again: int = 0
    failures: int = 0
    ended: dict[int, float] = field(default_factory=dict)
    stages: RunStages = field(default_factory=RunStages)
    failed: dict[tuple[int, int], tuple[int, Sequence[Failure]]] = field(default_factory=dict)
    parts: int = 1
    is_unsettled: bool = False
    kills: RunKills = field(default_factory=lambda: RunKills(None))

    def add(self, report: TaskReport, now: float) -> None:
        """Take a report."""
        task = report.record
        role: Role = "map" if task.role == "map" else "reduce"
        tasks = self.producers if role == "map" else self.consumers
        key = report.exchange, task.task
        before = tasks.get(key)
        failures = report.failures
        if before is not None and failures > before.failures:
            # Spark counts the attempt whose output was lost too, and that one had succeeded.
            failures -= before.failures + 1
        if role == "map" and before is not None:
            self.made_again += 1
        tasks[key] = report
        self.kills.add(report)
        self.ended[report.attempt] = now
        self.stages.roles[report.stage] = role
        self.failures += failures
        self.started = min(self.started, now - task.wall_ms / 1000)
        self.heard = now


class KeptRuns:
    """The kept exchanges of one application.

    Args:
        session: one of its sessions.
        began: called with each new run.
        look: asks Spark for the counts of these stages.
        tasks: asks Spark for its tasks.
        group: the control group of the driver if all tasks run beside it; None if they do not, or none is seen.
    """

    def __init__(
        self,
        session: SparkSession,
        began: Callable[[KeptRuns, KeptRun], object],
        look: Callable[[Iterable[int]], Mapping[int, StageCounts]],
        tasks: SparkTasks,
        group: MemoryGroup | None = None,
    ) -> None:
        context = session.sparkContext
        self.application: str = context.applicationId
        self._session = session
        self._began = began
        self._look = look
        self._tasks = tasks
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._runs: dict[tuple[str, int | None], KeptRun] = {}
        #: Those that have not ended as far as it is known.
        self._live: dict[int, KeptRun] = {}
        self._host = host_id()
        self._group = group
        #: Local directories of executors on this host -> the number of files reported from there.
        self._directories: dict[tuple[str, ...], int] = {}
        #: The newest task attempts that left files on this host and succeeded.
        self._succeeded: deque[int] = deque(maxlen=_REMEMBERED)
        self._sweeps = False
        self.hosts = KeptHosts()
        #: Run -> the settings of its exchange.
        self.settings: dict[str, ExchangeSettings] = {}
        #: Exchange -> the iteration whose part it is.
        self._iterations: dict[str, str] = {}
        #: Iterations whose call has not returned, so that more parts may come.
        self._open: set[str] = set()
        #: Takes the reports of tasks to this object.
        plain: Accumulator[Any] = context.accumulator([], AddingAccumulatorParam([]))
        self.reports: Accumulator[Any] = _Reports(plain.aid, self._hear)

    def add_settings(self, exchange: str, settings: ExchangeSettings, iteration: str = "") -> None:
        """Take the settings of an exchange, for the record of its runs.

        Args:
            exchange: its name.
            settings: of it.
            iteration: the iteration whose part it is, if it is one.
        """
        with self._lock:
            self.settings[iteration or exchange] = settings
            if iteration:
                self._iterations[exchange] = iteration
            table: dict[str, Any]
            for table in (self.settings, self._iterations):
                while len(table) > _MOST_SETTINGS:
                    del table[next(iter(table))]

    @contextmanager
    def iterating(self, iteration: str) -> Iterator[None]:
        """Let the run of an iteration go on for as long as this context lasts, also between its parts."""
        self._open.add(iteration)
        try:
            yield
        finally:
            self._open.discard(iteration)

    def live(self) -> list[KeptRun]:
        """Return the runs that go on. Asks Spark only about runs that did so the last time, or are new."""
        with self._lock:
            runs = list(self._live.values())
        going_on = [run for run in runs if self.outcome(run) == RUNNING]
        with self._lock:
            for number in {run.number for run in runs} - {run.number for run in going_on}:
                self._live.pop(number, None)
        return going_on

    def look(self, run: KeptRun) -> None:
        """Bring the counts of a run's tasks that run up to date."""
        if not self._is_gone:
            run.stages.take(self._look(list(run.stages.roles)))

    def running(self, run: KeptRun) -> list[tuple[Role, RunningTask]]:
        """Return the tasks of a run that run now and have not reported. Asks Spark."""
        stages = [] if self._is_gone else run.stages.that_run()
        tasks = [
            (role, task) for stage, at, role in stages for task in self._tasks.running(stage, at)
        ]
        return [(role, task) for role, task in tasks if task.attempt not in run.ended]

    def failures(self, run: KeptRun) -> list[Failure]:
        """Return attempts at tasks of a run that failed. Asks Spark if there are more than the last time."""
        for stage, at, number in [] if self._is_gone else run.stages.that_failed():
            counted, _ = run.failed.get((stage, at), (0, ()))
            if number > counted:
                run.failed[stage, at] = number, self._tasks.failed(stage, at)
        return [
            replace(failure, role=run.stages.roles[stage])
            for (stage, _), (_, failures) in list(run.failed.items())
            for failure in failures
        ]

    @property
    def _is_gone(self) -> bool:
        return self._session.sparkContext._jsc is None  # noqa: SLF001 - as PySpark checks it

    def outcome(self, run: KeptRun) -> Outcome:
        """Return the state of a run and its error, as Spark knows them."""
        outcome = self._outcome(run)
        return RUNNING if outcome == DONE and run.exchange in self._open else outcome

    def _outcome(self, run: KeptRun) -> Outcome:
        # A union of an exchange with itself has more tasks than partitions.
        consumers = max(run.partitions * run.parts, run.stages.tasks("reduce") or 0)
        if len(run.consumers) >= consumers or self._is_gone:
            return DONE
        if run.execution is None:
            self.look(run)
            runs = run.stages.running("map") + run.stages.running("reduce")
            return RUNNING if runs else DONE
        store = self._session._jsparkSession.sharedState().statusStore()  # noqa: SLF001 - no public way
        stored = store.execution(run.execution)
        if not stored.isDefined():
            return DONE
        execution = stored.get()
        if not execution.completionTime().isDefined():
            return RUNNING
        text = execution.errorMessage()
        error = str(text.get()) if text.isDefined() else ""
        return failed(error) if error else DONE

    def forget(self, exchange: str) -> None:
        """Drop the runs of an exchange that nobody can run any more."""
        with self._lock:
            for key in [key for key in self._runs if key[0] == exchange]:
                self._live.pop(self._runs.pop(key).number, None)

    def start(self, notice: Notice) -> None:
        """Take a notice of a task that has started. Later ones of the same stage add nothing."""
        now = time.monotonic()
        with self._lock:
            run = self._run(notice.exchange, notice.execution, notice.partitions, now)
            run.stages.roles[notice.stage] = notice.role
            run.heard = now
            self._live[run.number] = run

    def _hear(self, reports: Iterable[TaskReport]) -> None:
        """Take the reports of a task; called in the thread of PySpark's accumulator server."""
        now = time.monotonic()
        with self._lock:
            unsettled = [report for report in reports if self._add(report, now)]
        for report in unsettled:
            _LOG.warning(_UNSETTLED, report.exchange[:4], report.changed, report.record.task)

    def _add(self, report: TaskReport, now: float) -> bool:
        """Take a report; return True for the first of an iteration whose last round changed rows."""
        run = self._run(run_of(report.exchange), report.execution, report.partitions, now)
        is_first = report.changed > 0 and not run.is_unsettled
        run.is_unsettled |= report.changed > 0
        run.add(report, now)
        if report.server is not None:
            self.hosts.add(report.exchange, report.record.task, report.attempt, report.server)
        if report.file_bytes and report.host == self._host:
            files = self._directories.get(report.directories, 0)
            self._directories[report.directories] = files + 1
            self._succeeded.append(report.attempt)
            self._sweep_from_now_on()
        return is_first

    def _run(self, exchange: str, execution: int | None, partitions: int, now: float) -> KeptRun:
        name = self._iterations.get(exchange, exchange)
        key = name, None if name != exchange else execution
        run = self._runs.get(key)
        if run is not None and (execution or 0) > (run.execution or 0):
            run.execution, run.parts = execution, run.parts + 1
        if run is None:
            run = KeptRun(name, partitions, next(self._numbers), execution, now, now)
            run.kills = RunKills(self._group)
            self._runs[key] = self._live[run.number] = run
            while len(self._runs) > _MOST:
                oldest = self._runs.pop(next(iter(self._runs)))
                self._live.pop(oldest.number, None)
            self._began(self, run)
        return run

    def _sweep_from_now_on(self) -> None:
        if not self._sweeps:
            self._sweeps = True
            threading.Thread(target=self._sweep, name="headgate-sweep", daemon=True).start()

    def _sweep(self) -> None:
        """Sweep until no file is left. Workers sweep too, but only while they run producers."""
        while not self._is_gone:
            time.sleep(_LOOK)
            with self._lock:
                files, succeeded = dict(self._directories), frozenset(self._succeeded)
            empty = [each for each in files if not self._has_files(each, succeeded)]
            with self._lock:
                for directories in empty:
                    # Unless a file was reported meanwhile.
                    if self._directories[directories] == files[directories]:
                        del self._directories[directories]
                if not self._directories:
                    self._sweeps = False
                    return

    @staticmethod
    def _has_files(directories: tuple[str, ...], succeeded: frozenset[int]) -> bool:
        try:
            return sweep(directories, succeeded)
        except OSError as error:
            _LOG.warning("files of kept exchanges stay until their executor ends: %s", error)
            return False


class _Reports(Accumulator[Any]):
    """An accumulator that hands what it gets to a function and keeps nothing."""

    def __init__(self, number: int, hear: Callable[[Any], None]) -> None:
        # Workers get an ordinary accumulator with an empty list.
        super().__init__(number, [], AddingAccumulatorParam([]))
        self._hear = hear

    def add(self, term: Any) -> None:
        """Hand over the reports. An error here would end PySpark's connection for all accumulators."""
        try:
            self._hear(term)
        except Exception:  # noqa: BLE001 - whatever it is, see above
            _LOG.exception("reports of tasks were lost")
