"""At the end of a run, names the long tests that are not in the list of docs/testing.md."""

import re
from pathlib import Path

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
