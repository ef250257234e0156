"""At the end of a run, names the long tests that are not in the list of docs/testing.md; can fail for them."""

import os
import re
import time
from pathlib import Path

import pytest
from tests.kit.fixtures import (
    mode,
    nothing_left,
    numbers,
    pytest_runtest_makereport,
    pytest_runtest_protocol,
    secrets,
    spark,
    whole_slots,
)

#: pytest finds these by their names here.
__all__ = [
    "mode",
    "nothing_left",
    "numbers",
    "pytest_runtest_makereport",
    "pytest_runtest_protocol",
    "secrets",
    "spark",
    "whole_slots",
]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "testing.md"
#: Seconds above which a test of ``make test`` needs a line with its reason.
LONG = 5.0
#: With HEADGATE_TEST_STRICT=1 a run fails if an unlisted test takes more seconds of its own than this.
TOO_LONG = 1.5 * LONG
#: The property of a report that has these seconds.
OWN = "own seconds"
#: The kernel's sums of the time in which some task of the machine waited for a core, a disk or memory.
PRESSURE = [Path("/proc/pressure", name) for name in ("cpu", "io", "memory")]


def listed():
    """Return the tests that docs/testing.md lists as long, each as ``file::name`` below tests/."""
    section = PAGE.read_text(encoding="utf-8").partition("## Tests above five seconds")[2]
    return set(re.findall(r"^- `([\w/]+\.py(?:::\w+)+)`", section, re.MULTILINE))


def stalled():
    """Return the seconds since boot in which tasks waited for each other; infinite where the kernel does not tell."""
    try:
        texts = [path.read_text(encoding="ascii") for path in PRESSURE]
    except OSError:
        return float("inf")
    return sum(int(re.match(r"some .*total=(\d+)", text)[1]) / 1e6 for text in texts)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item):
    """Note the seconds of a test in which no task of the machine waited: others cannot make them more."""
    waited, started = stalled(), time.monotonic()
    try:
        return (yield)
    finally:
        waited = stalled() - waited
        item.user_properties.append((OWN, time.monotonic() - started - waited))


def unlisted(reports, seconds, limit):
    """Return the tests without a line on the page that take more than ``limit`` seconds, the longest first."""
    long = {}
    for report in reports:
        test = report.nodeid.removeprefix("tests/").partition("[")[0]
        quick = not test.startswith("soak/") and "soak" not in report.keywords
        if quick and seconds(report) > max(limit, long.get(test, 0.0)):
            long[test] = seconds(report)
    return sorted(((long[test], test) for test in long.keys() - listed()), reverse=True)


def own_seconds(report):
    """Return the seconds of a test that no other work of the machine explains."""
    return dict(report.user_properties).get(OWN, 0.0)


def pytest_terminal_summary(terminalreporter):
    """Name the long tests, however busy the machine is."""
    passed = terminalreporter.getreports("passed")
    if found := unlisted(passed, lambda report: report.duration, LONG):
        terminalreporter.section(f"above {LONG:g} s and not listed in docs/testing.md")
        for seconds, test in found:
            terminalreporter.write_line(f"{seconds:.1f} s  {test}")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    """Fail a strict run for tests that are long by themselves."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("HEADGATE_TEST_STRICT") != "1" or terminal is None:
        return
    if too_long := unlisted(terminal.getreports("passed"), own_seconds, TOO_LONG):
        names = ", ".join(f"{test} ({seconds:.1f} s)" for seconds, test in too_long)
        terminal.write_line(f"\ntoo long by themselves, and not listed in docs/testing.md: {names}")
        session.exitstatus = session.exitstatus or 1
