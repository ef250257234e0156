"""Hooks and fixtures of all folders: watchdog, check for leftovers, session of Spark, the list of long tests."""

import re
from pathlib import Path

import pytest
from tests.kit import watchdog
from tests.kit.fixtures import (
    check_after,
    check_after_on_spark,
    mode,
    numbers,
    secrets,
    spark,
    whole_slots,
)
from tests.kit.leftovers import pytest_runtest_makereport

#: pytest finds these by their names here.
__all__ = ["mode", "numbers", "pytest_runtest_makereport", "secrets", "spark", "whole_slots"]

TESTS = Path(__file__).resolve().parent
PAGE = TESTS.parent / "docs" / "testing.md"
#: Seconds above which a test of ``make test`` needs a line with its reason.
LONG = 5.0

#: Folders whose tests are checked for leftovers, and how.
CHECKED = {
    "driver": check_after,
    "functions": check_after,
    "observe": check_after,
    "soak/ends": check_after_on_spark,
    "soak/spark": check_after_on_spark,
    "spark": check_after_on_spark,
    "stream/jobs": check_after,
}
#: Folders whose tests the watchdog ends if they hang. Tests elsewhere are quick, or have limits of their own.
WATCHED = {
    *CHECKED,
    "data_plane",
    "faults",
    "soak/browser",
    "soak/kafka",
    "soak/kit",
    "soak/network",
}


def folder_of(path):
    """Return the folder of a test below tests/."""
    return path.parent.relative_to(TESTS).as_posix()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Put the tests of some folders under the watchdog."""
    if folder_of(item.path) in WATCHED:
        return (yield from watchdog.pytest_runtest_protocol(item))
    return (yield)


@pytest.fixture(autouse=True)
def nothing_left(request):
    """Check each test of some folders for leftovers, when its own fixtures are gone."""
    check = CHECKED.get(folder_of(request.path))
    if check is None:
        yield
    else:
        yield from check(request)


def listed():
    """Return the tests that docs/testing.md lists as long, each as ``file::name`` below tests/."""
    section = PAGE.read_text(encoding="utf-8").partition("## Tests above five seconds")[2]
    return set(re.findall(r"^- `([\w/]+\.py::\w+)`", section, re.MULTILINE))


def pytest_terminal_summary(terminalreporter):
    """Name the long tests. None of them fails, as a busy machine makes any test long."""
    long = {}
    for report in terminalreporter.getreports("passed"):
        test = report.nodeid.removeprefix("tests/").partition("[")[0]
        quick = not test.startswith("soak/") and "soak" not in report.keywords
        if report.duration > LONG and quick:
            long[test] = max(report.duration, long.get(test, 0.0))
    if unlisted := {test: long[test] for test in long.keys() - listed()}:
        terminalreporter.section(f"above {LONG:g} s and not listed in docs/testing.md")
        for test, seconds in sorted(unlisted.items(), key=lambda found: -found[1]):
            terminalreporter.write_line(f"{seconds:.1f} s  {test}")
