"""The facts of the checks: plain values of driver, executors and the session, any of which may be missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from headgate.spark.confs import is_true
from headgate.spark.doctor.findings import Finding


class Facts:
    """The facts of one process, by the names that :mod:`headgate.spark.doctor.probe` gives them.

    Nothing is taken for granted: a fact that is missing, or is of another type than asked for, is None.

    Args:
        values: of the probe, which ran in another process.
    """

    def __init__(self, values: object = None) -> None:
        self._values = values if isinstance(values, Mapping) else {}

    def text(self, name: str) -> str | None:
        """Return a text; None if it is unknown."""
        value = self._values.get(name)
        return value if isinstance(value, str) and value else None

    def number(self, name: str) -> float | None:
        """Return a number that is not negative; None if it is unknown."""
        value = self._values.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        return value if 0 <= value < float("inf") else None

    def has(self, name: str) -> bool:
        """Return True if the probe has found the fact, be it None."""
        return name in self._values

    def part(self, name: str) -> Facts:
        """Return the facts below a name; none if there are none."""
        return Facts(self._values.get(name))

    def parts(self, name: str) -> list[Facts]:
        """Return a list of facts below a name."""
        values = self._values.get(name)
        return [Facts(value) for value in values] if isinstance(values, list | tuple) else []


@dataclass(frozen=True, slots=True)
class Pair:
    """Measurements between two executors.

    Attributes:
        reader: the executor that read.
        writer: the executor that wrote.
        rate: bytes per second; None if it was not measured.
        link: ``"tcp"`` or ``"same_host"``; empty if unknown.
        error: why nothing was read; empty if it was, or if the pair was not tried.
        code: of the error.
    """

    reader: str
    writer: str
    rate: float | None = None
    link: str = ""
    error: str = ""
    code: str = ""

    @property
    def name(self) -> str:
        """The direction of the rows, for people."""
        return f"{self.writer} -> {self.reader}"


@dataclass(frozen=True, slots=True)
class Crew:
    """Answers of the executors that took part in the exchange between pairs.

    Attributes:
        driver: address at which they reached the driver.
        invited: executors that were asked to take part.
        joined: executors that reached the driver -> their own address.
        errors: executors that did not -> the error, empty if nothing was heard.
        busy: executors whose task Spark started on another one.
        pairs: all pairs, measured or not.
        is_alone: True if the pairs are two processes of the only executor.
        traces: executor -> the last native events of its process.
    """

    driver: str = ""
    invited: tuple[str, ...] = ()
    joined: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    busy: tuple[str, ...] = ()
    pairs: Sequence[Pair] = ()
    is_alone: bool = False
    traces: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Context:
    """The facts of one examination.

    Attributes:
        driver: facts of the driver's process.
        executors: facts by executor, of those that answered.
        silent: executors that Spark named and that did not answer -> the error, empty if none was heard.
        clocks: executor -> seconds by which its clock is ahead of the driver's, and the uncertainty.
        missing: executors that were expected and did not register with Spark.
        confs: Spark's configuration.
        options: of the exchange, parsed.
        slots: tasks that run at the same time; None if unknown.
        crew: what pairs of executors did; None if there was no such step.
        master: of the application; empty without Spark.
    """

    driver: Facts = field(default_factory=Facts)
    executors: Mapping[str, Facts] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)
    clocks: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    missing: int = 0
    confs: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    slots: int | None = None
    crew: Crew | None = None
    master: str = ""

    @property
    def processes(self) -> dict[str, Facts]:
        """The processes whose machine matters: all executors, or this process where there are none."""
        return dict(self.executors) if self.master else {"this process": self.driver}

    def is_set(self, conf: str) -> bool:
        """Return True if a conf of Spark is true."""
        return is_true(self.confs, conf)


#: A check: looks at what is known, and asks nobody.
Check: TypeAlias = Callable[[Context], list[Finding]]


def those(names: Sequence[str]) -> str:
    """Return names of executors for a sentence: all of them, or the first few."""
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"
