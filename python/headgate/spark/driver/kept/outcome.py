"""How an SQL execution with a kept exchange, or an attempt at one of its tasks, ended, by Spark's text of the error."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from headgate.observe.record import Failure

_CODE: Final = re.compile(r"\[(HG-\d{4})\]")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    Attributes:
        state: "running", "done", "failed" or "cancelled".
        code: of the error of ours that failed it, or "".
        summary: one line that says why it failed, or "".
    """

    state: str
    code: str = ""
    summary: str = ""


RUNNING: Final = Outcome("running")
DONE: Final = Outcome("done")


def failed(error: str) -> Outcome:
    """Return the outcome of an SQL execution, or of an attempt at a task, that ended with this error text of Spark."""
    code = _CODE.search(error)
    # Below a Python traceback, or the first line.
    _, is_python, traceback = error.partition("Traceback (most recent call last):\n")
    lines = traceback.splitlines() if is_python else error.splitlines()
    return Outcome(
        "cancelled" if "cancelled" in error.lower() else "failed",
        code[1] if code else "",
        next((line for line in lines if not line.startswith(" ")), ""),
    )


def failure_of(task: int, attempt: int, host: str, error: str) -> Failure:
    """Return an attempt at a task, whose role is not known here, that ended with this error text of Spark."""
    cause = failed(error)
    return Failure(attempt, cause.code, cause.summary, "", task, host)
