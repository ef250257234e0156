"""Asks each executor for its facts: a Spark job of one task for each, so that none waits for another."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate.spark.driver.scheduler.executor_jobs import executors, is_running, row_on, submitted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self

    from pyspark import SparkContext

_LOG: Final = logging.getLogger("headgate.spark")
#: Seconds between two looks at Spark.
_LOOK: Final = 0.05
#: Seconds in which Spark must have ended cancelled jobs.
_CANCELLED: Final = 5.0
_LOCATION: Final = re.compile(r"executor_(.*)_([^_]+)")
#: The start of a task's error in that of its job, and the start of the JVM's stack.
_CAUSE: Final = "most recent failure: "
_STACK: Final = re.compile(r"\n(\tat |Driver stacktrace:)")


@dataclass(frozen=True, slots=True)
class Executor:
    """An executor.

    Attributes:
        location: Spark's name for it, as of a task's preferred location; empty in ``local[n]``.
        id: Spark's id.
        name: for people.
    """

    location: str
    id: str
    name: str

    @classmethod
    def at(cls, location: str) -> Executor:
        """Return the executor at a location."""
        match = _LOCATION.fullmatch(location)
        if match is None:
            return cls(location, "driver", "driver")
        return cls(location, match[2], f"{match[2]} ({match[1]})")


@dataclass(slots=True)
class Jobs:
    """Spark jobs of one task each. All of them are cancelled at the end of the ``with`` block.

    Attributes:
        context: the application.
        description: the description of the jobs.
        futures: in the JVM, by the number of the task.
        ended: the error of each job that has ended, empty if it has none.
    """

    context: SparkContext
    description: str
    futures: dict[int, Any] = field(default_factory=dict)
    ended: dict[int, str] = field(default_factory=dict)

    def __enter__(self) -> Self:
        """Return the jobs themselves."""
        return self

    def __exit__(self, *_: object) -> None:
        """Cancel all jobs, and wait until Spark says that they have ended."""
        for number, future in self.futures.items():
            if number not in self.ended:
                with self._tolerant():
                    future.cancel(False)
        deadline = time.monotonic() + _CANCELLED
        while time.monotonic() < deadline and self._alive():
            time.sleep(_LOOK)

    def start(
        self, number: int, location: str, function: Callable[[Iterator[Any]], Iterator[Any]]
    ) -> None:
        """Submit a job whose only row is the number."""
        self.ended.pop(number, None)
        before = self.context.getLocalProperty("spark.job.description")
        self.context.setLocalProperty("spark.job.description", self.description)
        try:
            self.futures[number] = submitted(
                row_on(self.context, number, location).mapPartitions(function)  # type: ignore[arg-type]
            )
        finally:
            self.context.setLocalProperty("spark.job.description", before)  # type: ignore[arg-type]

    def done(self) -> dict[int, list[bytes]]:
        """Return the rows of the jobs that have ended since the last call."""
        rows: dict[int, list[bytes]] = {}
        for number, future in self.futures.items():
            if number in self.ended or not future.isDone():
                continue
            try:
                rows[number] = [bytes(row) for row in future.get()]
                self.ended[number] = ""
            except Exception as error:  # noqa: BLE001 - py4j's, with the error of the task
                self.ended[number] = cause_of(str(error))
        return rows

    def errors(self) -> dict[int, str]:
        """Return the errors of the jobs that have failed by now."""
        self.done()
        return {number: text for number, text in self.ended.items() if text}

    def _alive(self) -> bool:
        alive = False
        for number, future in self.futures.items():
            if number not in self.ended:
                with self._tolerant():
                    alive |= not future.isDone()
        for future in self.futures.values():
            with self._tolerant():
                alive |= is_running(self.context, future)
        return alive

    @contextlib.contextmanager
    def _tolerant(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - py4j raises anything when Spark stops
            _LOG.debug("%s: Spark did not answer: %s", self.description, error)


def registered(context: SparkContext, expected: int, deadline: float) -> list[Executor]:
    """Return the executors, once as many as expected have registered, or the time is over."""
    while len(locations := executors(context)) < expected and time.monotonic() < deadline:
        time.sleep(_LOOK)
    return [Executor.at(location) for location in locations]


def probe(
    context: SparkContext, there: Sequence[Executor], tls: dict[str, str], deadline: float
) -> tuple[dict[str, dict[str, Any]], dict[str, str], dict[str, tuple[float, float]]]:
    """Return facts, errors of silent executors, and clocks, each by the executor's name.

    Args:
        context: the application.
        there: its executors.
        tls: paths of the deployment's certificates; empty if there are none.
        deadline: on the monotonic clock.
    """
    function = _probe(tls)
    facts: dict[str, dict[str, Any]] = {}
    clocks: dict[str, tuple[float, float]] = {}
    names = {executor.id: executor.name for executor in there}
    with Jobs(context, "headgate doctor: facts of executors") as jobs:
        begin = time.time()
        for number, executor in enumerate(there):
            jobs.start(number, executor.location, function)
        while time.monotonic() < deadline:
            for number, rows in jobs.done().items():
                values = _decoded(rows)
                # Spark may have started the task elsewhere, as its own executor was busy.
                name = names.get(str(values.get("executor")), there[number].name)
                if name not in facts:
                    facts[name] = values
                    clocks |= _clock(name, values.get("at"), begin, time.time())
                if there[number].name not in facts:
                    jobs.start(number, there[number].location, function)
            is_over = [n in jobs.ended or there[n].name in facts for n in range(len(there))]
            if all(is_over):
                break
            time.sleep(_LOOK)
        errors = jobs.errors()
    silent = {
        each.name: errors.get(n, "") for n, each in enumerate(there) if each.name not in facts
    }
    return facts, silent, clocks


def _probe(tls: dict[str, str]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function that needs no headgate where it runs."""
    from pyspark import cloudpickle  # noqa: PLC0415 - pyspark only where Spark is

    from headgate import _directories  # noqa: PLC0415 - pickled by value
    from headgate.spark.doctor import probe as module  # noqa: PLC0415 - pickled by value

    ours = (_directories, module)
    for package in ours:
        cloudpickle.register_pickle_by_value(package)  # type: ignore[no-untyped-call]
    try:
        functions = (module.facts, _directories.local_directories)
        pickled: bytes = cloudpickle.dumps(functions)  # type: ignore[no-untyped-call]
    finally:
        for package in ours:
            cloudpickle.unregister_pickle_by_value(package)  # type: ignore[no-untyped-call]

    def run(numbers: Iterator[Any]) -> Iterator[bytes]:
        import json  # noqa: PLC0415 - in the worker
        import pickle  # noqa: PLC0415 - in the worker

        list(numbers)
        facts, directories = pickle.loads(pickled)  # noqa: S301 - from the driver's own closure
        yield json.dumps(facts(directories(), tls)).encode()

    run.__name__ = "headgate_doctor"
    return run


def _decoded(rows: list[bytes]) -> dict[str, Any]:
    try:
        values = json.loads(rows[0])
    except (IndexError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _clock(name: str, at: object, begin: float, end: float) -> dict[str, tuple[float, float]]:
    """Return the difference to the driver's clock, as a moment between two of the driver's."""
    if not isinstance(at, int | float) or not abs(at) < 1e12:
        return {}
    return {name: (at - (begin + end) / 2, (end - begin) / 2)}


def cause_of(text: str) -> str:
    """Return the part of the error of a Spark job that is about its task, without the JVM's stack."""
    text = text.partition(_CAUSE)[2] or text
    return _STACK.split(text, maxsplit=1)[0].strip()
