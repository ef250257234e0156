"""The processes that answered, and their software: headgate, Python, pyarrow, pyspark, the machine's kind."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headgate.errors import ExecutorSilent, VersionError, VersionsDiffer, WorkerPythonError
from headgate.spark.doctor.context import those
from headgate.spark.doctor.findings import Finding, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.spark.doctor.context import Context, Facts

#: The start of Spark's error about a Python that it cannot use.
_NO_PYTHON: Final = (
    "PYTHON_VERSION_MISMATCH",
    "Python in worker has different version",
    "Cannot run program",
    "No module named 'pyspark'",
)
#: The oldest pyarrow that headgate works with.
_OLDEST_PYARROW: Final = 14
_INSTALL: Final = (
    "the wheel in the image of the executors · spark.archives with an environment that has it, "
    "and spark.pyspark.python in it"
)
#: Facts that must be equal, and their words for people.
_EQUAL: Final = {"pyarrow": "pyarrow", "pyspark": "pyspark", "machine": "architecture"}


def executors(context: Context) -> list[Finding]:
    """Say which executors answered."""
    if not context.master:
        return []
    findings = []
    broken = {n: e for n, e in context.silent.items() if any(text in e for text in _NO_PYTHON)}
    silent = {name: error for name, error in context.silent.items() if name not in broken}
    for name, error in broken.items():
        summary = f"executor {name} cannot run Python tasks: {_first_line(error)}"
        remedy = "PYSPARK_PYTHON=<a Python of the driver's version on every host>"
        findings.append(Finding(WorkerPythonError.code, "fail", "executors", summary, remedy))
    if silent:
        errors = [_first_line(error) for error in silent.values() if error.strip()]
        why = f": {errors[0]}" if errors else " within the time; it may be busy with other tasks"
        summary = f"no answer from executor {those(list(silent))}{why}"
        remedy = "look at its log and at its running tasks · run it again when slots are free"
        findings.append(Finding(ExecutorSilent.code, "fail", "executors", summary, remedy))
    if context.missing:
        summary = f"{context.missing} executors that the configuration asks for have not registered"
        remedy = "look at the cluster manager: it may have no room · fewer executors"
        findings.append(Finding(ExecutorSilent.code, "warn", "executors", summary, remedy))
    answered = len(context.executors)
    if not findings and not answered:
        summary = "Spark has no executor"
        remedy = "run it again once executors have registered"
        findings.append(Finding(ExecutorSilent.code, "fail", "executors", summary, remedy))
    if answered:
        of = answered + len(context.silent)
        summary = f"{answered} of {of} executors answered"
        findings.insert(0, Finding(ExecutorSilent.code, "ok", "executors", summary))
    return findings


def headgate(context: Context) -> list[Finding]:
    """Compare the versions of headgate; name the executors that have none."""
    version, check = context.driver.text("headgate"), "headgate"
    if not context.master:
        return [Finding(VersionError.code, "ok", check, f"headgate {version or 'unknown'}")]
    findings, others = [], context.executors
    without = [name for name, facts in others.items() if facts.text("headgate") is None]
    if without:
        error = others[without[0]].text("headgate_error") or "the reason is unknown"
        python = others[without[0]].text("executable") or "an unknown Python"
        summary = (
            f"executor {those(without)} cannot import headgate in {python}: {_first_line(error)}"
        )
        findings.append(Finding(WorkerPythonError.code, "fail", check, summary, _INSTALL))
    different = {
        name: facts.text("headgate")
        for name, facts in others.items()
        if facts.text("headgate") not in {None, version}
    }
    if different:
        values = ", ".join(sorted({f"headgate {version}" for version in different.values()}))
        summary = f"executor {those(list(different))} has {values}"
        remedy = "install the same version of headgate on the driver and on all executors"
        summary += f"; the driver has {version or 'an unknown one'}"
        findings.append(Finding(VersionError.code, "fail", check, summary, remedy))
    same = len(others) - len(without) - len(different)
    if same:
        summary = f"headgate {version} on the driver and {same} of {len(others)} executors"
        findings.insert(0, Finding(VersionError.code, "ok", check, summary))
    return findings


def versions(context: Context) -> list[Finding]:
    """Compare Python, pyarrow, pyspark and the kind of machine."""
    check, findings = "versions", []
    everyone = {"the driver": context.driver, **context.executors}
    pythons = {n: v for n, f in everyone.items() if (v := _minor(f.text("python"))) is not None}
    if len(set(pythons.values())) > 1:
        remedy = "PYSPARK_PYTHON=<a Python of the driver's version on every host>"
        summary = f"different versions of Python: {_by_value(pythons)}"
        findings.append(Finding(VersionsDiffer.code, "fail", check, summary, remedy))
    without = [
        name
        for name, facts in context.executors.items()
        if facts.has("pyarrow") and facts.text("pyarrow") is None
    ]
    if without:
        summary = f"executor {those(without)} cannot import pyarrow"
        findings.append(Finding(WorkerPythonError.code, "fail", check, summary, _INSTALL))
    for name, label in _EQUAL.items():
        values = {who: value for who, f in everyone.items() if (value := f.text(name)) is not None}
        if len(set(values.values())) > 1:
            summary = f"different {label}: {_by_value(values)}"
            remedy = f"the same {label} on the driver and on all executors"
            findings.append(Finding(VersionsDiffer.code, "warn", check, summary, remedy))
    old = [
        who
        for who, f in everyone.items()
        if 0 < (_major(f.text("pyarrow")) or 99) < _OLDEST_PYARROW
    ]
    if old:
        summary = f"pyarrow is older than {_OLDEST_PYARROW} on {those(old)}"
        remedy = f'pip install "pyarrow>={_OLDEST_PYARROW}"'
        findings.append(Finding(VersionsDiffer.code, "fail", check, summary, remedy))
    unknown = [who for who, facts in everyone.items() if facts.text("python") is None]
    if unknown:
        summary = f"the version of Python is unknown on {those(unknown)}"
        findings.append(Finding(VersionsDiffer.code, "warn", check, summary, "run it again"))
    if not findings:
        d = context.driver
        names = (("Python", "python"), ("pyarrow", "pyarrow"), ("pyspark", "pyspark"))
        parts = [f"{label} {d.text(name) or 'not there'}" for label, name in names]
        parts += [d.text("machine") or "unknown architecture", _libcs(everyone)]
        where = " on the driver" if context.master else ""
        where += " and all executors" if context.executors else ""
        findings.append(Finding(VersionsDiffer.code, "ok", check, ", ".join(parts) + where))
    return findings


def _libcs(everyone: Mapping[str, Facts]) -> str:
    return " and ".join(sorted({f.text("libc") or "unknown libc" for f in everyone.values()}))


def _minor(version: str | None) -> str | None:
    match = re.match(r"(\d+\.\d+)", version or "")
    return match[1] if match else None


def _major(version: str | None) -> int | None:
    match = re.match(r"(\d{1,6})", version or "")
    return int(match[1]) if match else None


def _by_value(values: Mapping[str, str]) -> str:
    """Return values with those that have them: ``3.11 (the driver), 3.12 (executor 2)``."""
    groups: dict[str, list[str]] = {}
    for who, value in values.items():
        groups.setdefault(value, []).append(who if who == "the driver" else f"executor {who}")
    return ", ".join(f"{value} ({those(who)})" for value, who in groups.items())


def _first_line(text: str) -> str:
    """Return the line of an error that says most: the last of a Python traceback, else the first."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    python = [n for n, line in enumerate(lines) if line.startswith("Traceback")]
    after = lines[python[-1] + 1 :] if python else []
    ends = [line for line in after if re.match(r"[\w.]+(Error|Exception)\b|\[", line)]
    chosen = next(iter([*ends, *lines]), "no text")
    return printable(chosen)[:240]
