"""Workers of a streaming job as tasks of a Spark application: one Spark job with one task for each."""

from __future__ import annotations

import json
import logging
import queue
import secrets
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.control.cause import Cause
from headgate.errors import PeerLostError
from headgate.spark.confs import is_gone
from headgate.spark.driver.scheduler.executor_jobs import executors, is_running, row_on, submitted
from headgate.spark.portable import portable
from headgate.spark.tasks.stream_worker import WorkerTask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark import SparkContext
    from pyspark.resource import ResourceProfile

    from headgate.control.address import CoordinatorAddress
    from headgate.stream.job.pool import Endpoint

_LOG: Final = logging.getLogger("headgate.spark")
_BODY: Final = "headgate.spark.tasks.stream_worker"
#: Seconds between two looks at Spark.
_LOOK: Final = 0.25
#: Seconds between two log lines about workers that wait for a slot.
_SAY: Final = 10.0
#: Seconds in which stopped workers have to end before Spark kills them, which takes it two more.
_END: Final = 10.0
#: Seconds in which cancelled Spark jobs have to end.
_CANCELLED: Final = 20.0

#: Workers of streaming jobs that are not over, by application.
_resident: Final[Counter[str]] = Counter()
_LOCK: Final = threading.Lock()


def resident(context: SparkContext) -> int:
    """Return the number of workers that the streaming jobs of an application have."""
    with _LOCK:
        return _resident[context.applicationId]


@dataclass(slots=True)
class _Launch:
    """A Spark job that is a worker.

    Attributes:
        serial: counts the starts of the worker.
        future: the job, in the JVM.
        executor: the executor that it was meant for.
        since: time of its start.
        has_run: True once Spark was seen to run its task.
    """

    serial: int
    future: Any
    executor: str
    since: float
    has_run: bool = False


class SparkWorkers:
    """Workers that are tasks of a Spark application.

    Each worker is a Spark job of its own: a job that Spark gives up, since a process was killed in ``local[n]``, would
    end all of its tasks. All calls of Spark are made by one thread.

    Args:
        context: the application.
        job: pickled: graph, name, options of the environment.
        name: of the streaming job.
        endpoint: how workers reach the coordinator.
        profiles: of each worker the resource profile of its task; None for a slot.
        no_resources: the place in which these have no resources, as a clause; empty if they have some.
    """

    def __init__(
        self,
        context: SparkContext,
        job: bytes,
        name: str,
        endpoint: Endpoint,
        profiles: Sequence[ResourceProfile | None],
        no_resources: str,
    ) -> None:
        from pyspark import InheritableThread  # noqa: PLC0415 - pyspark only where Spark is

        self.size = len(profiles)
        self.no_resources = no_resources
        self.endpoint = endpoint
        self._context = context
        self._job = job
        self._title = f"headgate streaming job {name}"
        self._profiles = profiles
        self._function: Any = None
        self._starts: queue.SimpleQueue[tuple[int, int, CoordinatorAddress] | None] = (
            queue.SimpleQueue()
        )
        self._launches: dict[int, _Launch] = {}
        self._cancelled: list[_Launch] = []
        self._lock = threading.Lock()
        self._serials: Counter[int] = Counter()
        self._ended: dict[int, Cause] = {}
        self._warned_at = 0.0
        self._is_started = False
        # It has the caller's pool of Spark's scheduler.
        self._thread = InheritableThread(target=self._run, name="headgate-stream-jobs", daemon=True)

    def start(self, number: int, address: CoordinatorAddress) -> None:
        """Start a Spark job that is the worker; cancel the one before it."""
        with self._lock:
            self._serials[number] += 1
            self._ended.pop(number, None)
            self._starts.put((number, self._serials[number], address))
        if not self._is_started:
            self._is_started = True
            self._count(self.size)
            self._thread.start()

    def ended(self) -> Mapping[int, Cause]:
        """Return workers whose Spark job has ended."""
        with self._lock:
            ended, self._ended = self._ended, {}
            return ended

    def end_of(self, number: int) -> str:  # noqa: ARG002 - as others
        """Return nothing: PySpark's daemon has the kernel forget the exit status of its workers."""
        return ""

    def stop(self) -> None:
        """Wait for the Spark jobs; cancel those that do not end."""
        if self._is_started:
            self._starts.put(None)
            self._thread.join()
            self._count(-self.size)

    def _count(self, workers: int) -> None:
        with _LOCK:
            _resident[self._context.applicationId] += workers

    # The thread.

    def _run(self) -> None:
        is_grouped = False
        while True:
            try:
                start = self._starts.get(timeout=_LOOK)
            except queue.Empty:
                self._look()
                continue
            if start is None:
                break
            try:
                if not is_grouped:
                    group = f"headgate-stream-{secrets.token_hex(8)}"
                    self._context.setJobGroup(group, self._title)
                    is_grouped = True
                self._launch(*start)
            except Exception as error:  # noqa: BLE001 - py4j raises anything when Spark stops
                self._note(start[0], start[1], self._cause_of(error))
        self._end()

    def _launch(self, number: int, serial: int, address: CoordinatorAddress) -> None:
        before = self._launches.pop(number, None)
        if before is not None:
            before.future.cancel(False)
            self._cancelled.append(before)
        if self._function is None:
            self._function = portable(WorkerTask(address, self._job), _BODY, self._title)
        executor = self._least_loaded()
        rdd = row_on(self._context, number, executor)
        profile = self._profiles[number]
        if profile is not None:
            rdd = rdd.withResources(profile)
        rdd = rdd.mapPartitions(self._function)
        self._launches[number] = _Launch(serial, submitted(rdd), executor, time.monotonic())

    def _least_loaded(self) -> str:
        """Return the executor with the fewest workers, as Spark names its location; empty in ``local[n]``."""
        load = Counter(launch.executor for launch in self._launches.values())
        locations = executors(self._context)
        return min(locations, key=lambda location: load[location], default="")

    def _look(self) -> None:
        for number, launch in list(self._launches.items()):
            try:
                if not launch.future.isDone():
                    continue
                rows = [bytes(row) for row in launch.future.get()]
                cause = Cause.from_fields(json.loads(rows[0])) if rows else None
            except Exception as error:  # noqa: BLE001 - py4j raises anything when Spark stops
                cause = self._cause_of(error)
            del self._launches[number]
            ended = PeerLostError(f"the task of worker {number} of the streaming job has ended")
            self._note(number, launch.serial, cause or Cause.of(ended))
        self._cancelled = [launch for launch in self._cancelled if self._is_alive(launch)]
        self._say_who_waits()

    def _note(self, number: int, serial: int, cause: Cause) -> None:
        with self._lock:
            if self._serials[number] == serial:
                self._ended[number] = cause

    def _cause_of(self, error: Exception) -> Cause:
        if is_gone(self._context):
            return Cause(PeerLostError.code, "the Spark application has ended", text=str(error))
        first = str(error).strip().partition("\n")[0]
        summary = f"the Spark job of a worker of the streaming job failed: {first}"
        return Cause(PeerLostError.code, summary, text=str(error))

    def _say_who_waits(self) -> None:
        now = time.monotonic()
        late = [
            launch
            for launch in self._launches.values()
            if not launch.has_run and now - launch.since > _SAY
        ]
        if not late or now - self._warned_at < _SAY:
            return
        self._warned_at = now
        for launch in late:
            launch.has_run = self._runs(launch)
        waiting = sum(not launch.has_run for launch in late)
        if waiting:
            _LOG.warning("%s: %d of %d workers wait for a slot", self._title, waiting, self.size)

    def _runs(self, launch: _Launch) -> bool:
        """Return True if Spark runs the task, as far as it says."""
        try:
            return is_running(self._context, launch.future)
        except Exception:  # noqa: BLE001 - py4j raises anything when Spark stops
            return False

    def _end(self) -> None:
        for launch in self._launches.values():
            if not self._runs(launch):
                self._cancel(launch)
        if not self._await_all(_END):
            for launch in self._launches.values():
                self._cancel(launch)
            if not self._await_all(_CANCELLED):
                _LOG.warning("%s: Spark has not ended all of its tasks", self._title)

    def _cancel(self, launch: _Launch) -> None:
        try:
            launch.future.cancel(False)
        except Exception as error:  # noqa: BLE001 - py4j raises anything when Spark stops
            _LOG.debug("%s: a Spark job cannot be cancelled: %s", self._title, error)

    def _await_all(self, seconds: float) -> bool:
        """Return True once no task runs any more, False if ``seconds`` have passed first."""
        deadline = time.monotonic() + seconds
        while any(map(self._is_alive, [*self._launches.values(), *self._cancelled])):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def _is_alive(self, launch: _Launch) -> bool:
        try:
            return not launch.future.isDone() or self._runs(launch)
        except Exception:  # noqa: BLE001 - py4j raises anything when Spark stops
            return False
