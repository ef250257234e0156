"""Findings of the doctor, and the report that holds them, as text, HTML and JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final, Literal

from headgate.errors import from_code

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.errors import HeadgateError

#: ``ok``: nothing to do. ``warn``: an exchange may be slow or fail, or the fact is unknown. ``fail``: it will not work.
Level = Literal["ok", "warn", "fail"]
#: Version of the form of :meth:`Report.to_json`; it grows when a field changes its meaning or goes.
SCHEMA_VERSION: Final = 1

_RANKS: Final[dict[Level, int]] = {"ok": 0, "warn": 1, "fail": 2}
_MARKS: Final[dict[Level, str]] = {"ok": "ok", "warn": "WARN", "fail": "FAIL"}
_COLUMNS: Final = 100
#: Characters before the sentence of a finding.
_MARGIN: Final = 27
#: Most characters of a sentence: error texts come from outside.
_LONGEST: Final = 600
#: Most processes whose traces are printed.
_TRACES: Final = 8
_STYLE: Final = "text-align:left;vertical-align:top;padding:2px 8px"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Attributes:
        code: names the page of the catalogue, such as ``"HG-1102"``.
        level: ``"ok"``, ``"warn"`` or ``"fail"``.
        check: the check that found it.
        summary: one sentence with values and limits.
        remedy: alternatives separated by " · "; empty if there is nothing to do.
    """

    code: str
    level: Level
    check: str
    summary: str
    remedy: str = ""

    def error(self) -> HeadgateError:
        """Return the error of the finding's code."""
        return from_code(self.code, self.summary, remedy=self.remedy)


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of one examination.

    Attributes:
        headgate: version of the driver.
        master: of the application; ``"this machine"`` without Spark.
        executors: number of executors that Spark named.
        seconds: how long it took.
        findings: in the order of the checks.
        traces: process -> its last native events, as lines; for each that records any.
    """

    headgate: str
    master: str
    executors: int
    seconds: float
    findings: tuple[Finding, ...]
    traces: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def level(self) -> Level:
        """The worst level of all findings."""
        return max(self._levels(), key=_RANKS.__getitem__, default="ok")

    @property
    def exit_code(self) -> int:
        """0 if all is well, 1 with warnings, 2 with failures."""
        return _RANKS[self.level]

    def raise_for_failure(self) -> None:
        """Raise the error of the first failure; warnings raise nothing.

        Raises:
            HeadgateError: the class of the failure's code.
        """
        for finding in self.findings:
            if finding.level == "fail":
                raise finding.error()

    def to_json(self) -> dict[str, Any]:
        """Return plain values: ``schema_version``, the attributes, ``level``, ``exit_code``, a dict per finding."""
        return {
            "schema_version": SCHEMA_VERSION,
            "headgate": self.headgate,
            "master": self.master,
            "executors": self.executors,
            "seconds": round(self.seconds, 3),
            "level": self.level,
            "exit_code": self.exit_code,
            "findings": [asdict(finding) for finding in self.findings],
            "traces": {process: list(lines) for process, lines in self.traces.items() if lines},
        }

    def __str__(self) -> str:
        """Return the report as lines of at most 100 columns."""
        lines = [_cut(printable(self._title()))]
        for finding in self.findings:
            head = f" {_MARKS[finding.level]:<5} {finding.code:<8} {printable(finding.check):<11}"
            wrapped = _wrapped(finding.summary)
            lines.append(f"{head[: _MARGIN - 1]:<{_MARGIN}}{wrapped[0]}")
            lines += [" " * _MARGIN + line for line in wrapped[1:]]
            if finding.remedy:
                wrapped = _wrapped(finding.remedy, 3)
                lines.append(" " * _MARGIN + "-> " + wrapped[0])
                lines += [" " * (_MARGIN + 3) + line for line in wrapped[1:]]
        lines.append(self._verdict())
        return "\n".join(lines + self._traces())

    def _repr_html_(self) -> str:
        rows, traces = "".join(map(_row, self.findings)), "\n".join(self._traces())
        head = "".join(
            f'<th scope="col" style="{_STYLE}">{name}</th>'
            for name in ("level", "code", "check", "finding", "what to do")
        )
        return (
            f"<table><caption>{escape(printable(self._title()))}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
            f"<p>{escape(self._verdict().strip())}</p>"
            + (f"<pre>{escape(traces)}</pre>" if traces else "")
        )

    def _title(self) -> str:
        executors = _count(self.executors, "executor")
        return (
            f"headgate doctor {self.headgate} · {self.master} · {executors} · {self.seconds:.1f} s"
        )

    def _traces(self) -> list[str]:
        """Return the traces of the first processes as lines."""
        traced = {process: lines for process, lines in self.traces.items() if lines}
        shown: list[str] = []
        for process in list(traced)[:_TRACES]:
            shown.append(_cut(f" trace of {printable(process)} (UTC), the newest event last"))
            for line in traced[process]:
                shown += wrap(
                    printable(line), _COLUMNS, initial_indent="  ", subsequent_indent="    "
                )
        if len(traced) > _TRACES:
            more = _count(len(traced) - _TRACES, "more process")
            shown.append(f" traces of {more} are in the JSON")
        return shown

    def _levels(self) -> list[Level]:
        return [finding.level for finding in self.findings]

    def _verdict(self) -> str:
        levels = self._levels()
        counts = {level: levels.count(level) for level in _RANKS}
        counted = f"{counts['ok']} ok, {_count(counts['warn'], 'warning')}, {_count(counts['fail'], 'failure')}"
        more = "; more: python -m headgate explain CODE" if self.exit_code else ""
        return f" {counted}{more}"


def printable(text: str) -> str:
    """Return a text from outside without control characters, and not longer than a few lines."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return _cut(" ".join(shown.split()), _LONGEST)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{'e' * noun.endswith('s')}s"


def _cut(text: str, most: int = _COLUMNS) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _wrapped(text: str, indent: int = 0) -> list[str]:
    return wrap(printable(text), _COLUMNS - _MARGIN - indent) or [""]


def _row(finding: Finding) -> str:
    cells = (_MARKS[finding.level], finding.code, finding.check, finding.summary, finding.remedy)
    texts = "".join(f'<td style="{_STYLE}">{escape(printable(cell))}</td>' for cell in cells)
    return f"<tr>{texts}</tr>"
