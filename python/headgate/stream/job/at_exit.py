"""A script that ends while a job runs: it waits for the job, and ends as it does."""

from __future__ import annotations

import logging
import os
import sys
import threading
import weakref
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headgate.stream.job.master import JobMaster

_LOG: Final = logging.getLogger("headgate.stream")
#: Jobs of this process, with their names.
_JOBS: Final[weakref.WeakKeyDictionary[JobMaster, str]] = weakref.WeakKeyDictionary()
#: Seconds between two looks for a signal.
_LOOK: Final = 0.5


def wait_at_exit(job: JobMaster, name: str) -> None:
    """Let this process end after a job, unless an error or an interrupt ends it."""
    _JOBS[job] = name
    _register()


@cache
def _register() -> None:
    # Pools of threads are closed before the functions of atexit run, and a job needs them.
    register: Any = threading._register_atexit  # type: ignore[attr-defined]  # noqa: SLF001
    register(_wait)


def _wait() -> None:
    """Wait for all jobs that run. A script that failed, and an interpreter that a person types into, do not wait."""
    has_failed = getattr(sys, "last_value", None) is not None
    if has_failed or hasattr(sys, "ps1") or sys.flags.interactive:
        return
    try:
        failures = [job.failure for job, name in list(_JOBS.items()) if _is_waited_for(job, name)]
    except KeyboardInterrupt:
        _LOG.warning("interrupted: the jobs that run end with this process")
        _end(130)
    for failure in filter(None, failures):
        sys.stderr.write(f"{failure}\n")
    if any(failures):
        _end(1)


def _is_waited_for(job: JobMaster, name: str) -> bool:
    if job.state.is_over:
        return False
    _LOG.warning(
        "the script has ended, and job %s runs: waiting for its end (Ctrl-C ends it). Call await_termination() or "
        "stop() of what start() returns, to say so in the script",
        name,
    )
    while not job.wait(_LOOK):
        pass
    return True


def _end(code: int) -> None:
    """End this process with an exit code, which functions at its exit cannot set."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
