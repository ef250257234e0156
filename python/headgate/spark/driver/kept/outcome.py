"""How an SQL execution with a kept exchange, or an attempt at one of its tasks, ended, by Spark's text of the error."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from headgate.observe.record import Failure

_CODE: Final = re.compile(r"\[(HG-\d{4})\]")
#: Spark's name of the failure of a task whose executor was lost.
_LOST: Final = "ExecutorLostFailure"
#: Most characters of a summary of several lines.
_MOST: Final = 600


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
    summary = next((line for line in lines if not line.startswith(" ")), "")
    if not is_python and _LOST in error:
        # Kubernetes says why in the lines below.
        summary = " ".join(error.partition("\nDriver stacktrace")[0].split())[:_MOST]
    state = "cancelled" if "cancelled" in error.lower() else "failed"
    return Outcome(state, code[1] if code else "", summary)


def failure_of(task: int, attempt: int, host: str, error: str) -> Failure:
    """Return an attempt at a task, whose role is not known here, that ended with this error text of Spark."""
    cause = failed(error)
    return Failure(attempt, cause.code, cause.summary, "", task, host)
