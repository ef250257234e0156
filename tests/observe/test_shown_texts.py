"""Whole texts of runs: shown.txt has what ``print(stats)`` and ``python -m headgate top`` write."""

from dataclasses import replace
from pathlib import Path

from tests.kit import stored
from tests.kit.runs import run_of, skewed, state

from headgate.observe.top import lines
from headgate.observe.view import view


def only(number):
    """Return a state of one run."""
    shown = state()
    return {**shown, "runs": [shown["runs"][number]]}


NAMES = {
    "lines": lines,
    "only": only,
    "replace": replace,
    "run_of": run_of,
    "skewed": skewed,
    "view": view,
}


def test_the_texts_of_runs():
    stored.check(Path(__file__).parent / "shown.txt", lambda call: eval(call, NAMES))
