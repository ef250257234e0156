"""Metrics of the functions of users: counters, gauges, histograms and tallies of one task, and their sums over tasks."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from headgate.errors import StateError

#: Most metrics of an operator: each is sent every second, and is a series of its own wherever it is kept.
_MOST: Final = 100
#: Most limits of a histogram.
_MOST_BOUNDS: Final = 64
#: Most texts of a tally, and the name of all further ones; most characters of a text.
_MOST_TEXTS: Final = 20
_OTHERS: Final = "others"
_LONGEST_TEXT: Final = 200
_BOUNDS: Final = tuple(float(f"{first}e{power}") for power in range(-3, 4) for first in (1, 2, 5))

#: Operator -> metric -> its kind and figures, as values that JSON has.
PlainMetrics: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Any]]]


class Counter:
    """A number that only grows. The one of a job is the sum over its tasks, since the start of the attempt.

    Any thread may add to it.

    Attributes:
        value: of this task.
    """

    kind: Final = "counter"

    def __init__(self) -> None:
        self.value = 0
        self._adding = threading.Lock()

    def add(self, number: int = 1) -> None:
        """Add to it.

        Raises:
            StateError: the number is below 0.
        """
        if number < 0:
            raise StateError(
                f"a counter cannot take back {number}", remedy="a gauge for what falls"
            )
        with self._adding:
            self.value += int(number)

    def plain(self) -> dict[str, Any]:
        """Return its figures."""
        return {"kind": self.kind, "value": self.value}


class Gauge:
    """The latest of several numbers. A job has the one of each task.

    Attributes:
        value: of this task; None before the first.
    """

    kind: Final = "gauge"

    def __init__(self) -> None:
        self.value: float | None = None

    def set(self, number: float) -> None:
        """Replace it.

        Raises:
            StateError: it is no finite number.
        """
        value = float(number)
        if not math.isfinite(value):
            raise StateError(f"a gauge cannot be {number}", remedy="a finite number")
        self.value = value

    def plain(self) -> dict[str, Any]:
        """Return its figures."""
        return {"kind": self.kind, "value": self.value}


class Histogram:
    """Counts of numbers by their size. The one of a job is the sum over its tasks. Any thread may add to it.

    Args:
        bounds: the upper limits of its buckets, which belong to them; the last bucket has no limit.
    """

    kind: Final = "histogram"

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = np.array(bounds, np.float64)
        self._counts = np.zeros(len(bounds) + 1, np.int64)
        self._sum = 0.0
        self._adding = threading.Lock()

    def observe(self, values: Any) -> None:
        """Count numbers; nulls, NaN and infinite ones do not count.

        Args:
            values: a number, or an Arrow or numpy array or a list of numbers.
        """
        if isinstance(values, (pa.Array, pa.ChunkedArray)):
            values = values.drop_null().cast(pa.float64()).to_numpy()
        numbers = np.atleast_1d(np.asarray(values, np.float64))
        numbers = numbers[np.isfinite(numbers)]
        places = np.searchsorted(self._bounds, numbers)
        with self._adding:
            self._counts += np.bincount(places, minlength=len(self._counts))
            self._sum += float(numbers.sum())

    def plain(self) -> dict[str, Any]:
        """Return its figures."""
        return {
            "kind": self.kind,
            "bounds": self._bounds.tolist(),
            "counts": self._counts.tolist(),
            "sum": self._sum,
        }


class Tally:
    """How often each of a few texts occurred, such as the kind of an error. The one of a job is the sum over its tasks.

    Any thread may add to it. The first 20 texts count one by one, all others as ``"others"``.

    Attributes:
        refresh: called before its figures are read, by any thread; it may add to it. None for nothing.
    """

    kind: Final = "tally"

    def __init__(self) -> None:
        #: Text -> how often it occurred, and the largest size.
        self._entries: dict[str, tuple[int, float]] = {}
        self._last = ""
        self._adding = threading.Lock()
        self.refresh: Callable[[], None] | None = None

    def add(self, text: str, number: int = 1, *, size: float = 0.0, about: str = "") -> None:
        """Count a text.

        Args:
            text: what occurred, of which 200 characters count.
            number: how often; 0 if only a size is new.
            size: for example seconds: the largest one is kept.
            about: more of this time, in as many characters: it is the ``last`` one then, in place of the text.

        Raises:
            StateError: the number is below 0, or the size is no finite number.
        """
        if number < 0 or not math.isfinite(size):
            raise StateError(
                f"a tally cannot count {number} of size {size}", remedy="a finite number from 0"
            )
        text = str(text)[:_LONGEST_TEXT]
        with self._adding:
            _add_to(self._entries, text, int(number), float(size))
            self._last = (str(about)[:_LONGEST_TEXT] or text) if number else self._last

    def plain(self) -> dict[str, Any]:
        """Return its figures."""
        if self.refresh is not None:
            self.refresh()
        with self._adding:
            values = {text: list(entry) for text, entry in self._entries.items()}
            return {"kind": self.kind, "values": values, "last": self._last}


def _add_to(entries: dict[str, tuple[int, float]], text: str, number: int, size: float) -> None:
    """Add to the number of a text, or of the others if there are too many."""
    if text not in entries and len(entries) >= _MOST_TEXTS:
        text = _OTHERS
    before, largest = entries.get(text, (0, 0.0))
    entries[text] = before + number, max(largest, size)


_Metric = TypeVar("_Metric", Counter, Gauge, Histogram, Tally)


class Metrics:
    """The metrics of one operator in one task; ``context.metrics`` of a function. Source: Flink's MetricGroup.

    The same name gives the same metric. All are shown by ``query.status.metrics``, the live page, the report, Prometheus
    and OpenTelemetry, at most a second old, and count from the start of the attempt.
    """

    def __init__(self) -> None:
        self._metrics: dict[str, Counter | Gauge | Histogram | Tally] = {}

    def counter(self, name: str) -> Counter:
        """Return the counter of a name.

        Raises:
            StateError: the name is no text, or that of another kind of metric, or there are too many.
        """
        return self._of_kind(name, Counter, Counter)

    def gauge(self, name: str) -> Gauge:
        """Return the gauge of a name; errors as of :meth:`counter`."""
        return self._of_kind(name, Gauge, Gauge)

    def histogram(self, name: str, bounds: Sequence[float] = _BOUNDS) -> Histogram:
        """Return the histogram of a name.

        Args:
            name: of the metric.
            bounds: the upper limits of its buckets, in order; by default 1, 2 and 5 times the powers of 10 from 0.001 to
                1,000. Those of the first call count.

        Raises:
            StateError: as of :meth:`counter`, or the limits are none.
        """
        return self._of_kind(name, Histogram, lambda: Histogram(_checked_bounds(name, bounds)))

    def tally(self, name: str) -> Tally:
        """Return the tally of a name; errors as of :meth:`counter`."""
        return self._of_kind(name, Tally, Tally)

    def plain(self) -> dict[str, dict[str, Any]]:
        """Return the figures of all metrics that have some. Any thread may ask."""
        figures = {name: metric.plain() for name, metric in tuple(self._metrics.items())}
        return {name: plain for name, plain in figures.items() if _has_figures(plain)}

    def _of_kind(self, name: str, kind: type[_Metric], make: Callable[[], _Metric]) -> _Metric:
        metric = self._metrics.get(name)
        if metric is None:
            self._check_new(name)
            metric = self._metrics[name] = make()
        if not isinstance(metric, kind):
            raise StateError(f"metric {name!r} is a {metric.kind}, not a {kind.kind}")
        return metric

    def _check_new(self, name: Any) -> None:
        if not isinstance(name, str) or not name:
            raise StateError(
                f"metric {name!r} has no name", remedy='context.metrics.counter("rows")'
            )
        if len(self._metrics) >= _MOST:
            raise StateError(
                f"metric {name!r} is one too many",
                have=f"at most {_MOST} of an operator",
                remedy="names that do not contain values of rows",
            )


def _has_figures(plain: Mapping[str, Any]) -> bool:
    return plain.get("value", 0) is not None and plain.get("values", True) != {}


def _checked_bounds(name: str, bounds: Sequence[float]) -> Sequence[float]:
    limits = [float(bound) for bound in bounds]
    is_ordered = all(low < high for low, high in pairwise(limits))
    if not 0 < len(limits) <= _MOST_BOUNDS or not is_ordered or not all(map(math.isfinite, limits)):
        raise StateError(
            f"bounds={list(bounds)!r} of the histogram {name!r}",
            have=f"1 to {_MOST_BOUNDS} finite numbers, each above the one before",
            remedy="bounds=[0.01, 0.1, 1, 10]",
        )
    return limits


def merged(tasks: Iterable[tuple[int, PlainMetrics]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the metrics of a job from those of its tasks.

    Args:
        tasks: number of each task within its operator, and its metrics.

    Returns:
        For each operator and name the ``kind``. A counter has the ``value`` of all tasks, a gauge the ``values`` of each task
        by its number, a histogram ``count``, ``sum``, ``bounds`` and the ``counts`` of its buckets, a tally the ``values`` of its
        texts, each a number and the largest size, and the ``last`` text of a task.
    """
    job: dict[str, dict[str, dict[str, Any]]] = {}
    for index, operators in tasks:
        for operator, metrics in operators.items():
            of_operator = job.setdefault(operator, {})
            for name, plain in metrics.items():
                of_operator[name] = _sum(of_operator.get(name), plain, index)
    return job


def _sum(before: dict[str, Any] | None, plain: Mapping[str, Any], index: int) -> dict[str, Any]:
    kind = plain["kind"]
    if kind == Gauge.kind:
        values = {} if before is None else before["values"]
        return {"kind": kind, "values": {**values, str(index): plain["value"]}}
    if kind == Counter.kind:
        return {"kind": kind, "value": plain["value"] + (0 if before is None else before["value"])}
    if kind == Tally.kind:
        return _tallied(before or {"values": {}, "last": ""}, plain)
    bounds, counts, total = plain["bounds"], plain["counts"], plain["sum"]
    if before is not None:
        total += before["sum"]
        if bounds == before["bounds"]:
            counts = [left + right for left, right in zip(counts, before["counts"], strict=True)]
        else:  # of tasks that chose other limits: only what has none can be summed
            bounds, counts = [], [sum(counts) + sum(before["counts"])]
    return {"kind": kind, "count": sum(counts), "sum": total, "bounds": bounds, "counts": counts}


def _tallied(before: Mapping[str, Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sum of two tallies."""
    entries = {text: (number, size) for text, (number, size) in before["values"].items()}
    for text, (number, size) in plain["values"].items():
        _add_to(entries, text, number, size)
    values = {text: list(entry) for text, entry in entries.items()}
    return {"kind": Tally.kind, "values": values, "last": plain["last"] or before["last"]}
