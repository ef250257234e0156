"""Compares the Python of the tasks with the driver's, where both are on this host."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from headgate.errors import WorkerPythonError
from headgate.spark.confs import is_connect
from headgate.spark.connect import master_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROBE: Final = "import sys, pyarrow, headgate; print('%d.%d' % sys.version_info[:2])"
#: Seconds in which the probe must end.
_LIMIT: Final = 60


def check_workers(session: SparkSession) -> None:
    """Refuse a Python for tasks that could not run them. Elsewhere than on this host it is not known.

    Raises:
        WorkerPythonError: it has no headgate or pyarrow, or is another version of Python.
    """
    if is_connect(session) or not master_of(session).startswith("local"):
        return
    python = session.sparkContext.pythonExec
    path = shutil.which(python)
    # Links are not followed: the Python of an environment is a link to one without its packages.
    if path is None or os.path.abspath(path) != os.path.abspath(sys.executable):  # noqa: PTH100
        problem = _problem(python)
        if problem:
            raise WorkerPythonError(
                f"the Python that runs the tasks {problem}",
                asked=f"PYSPARK_PYTHON={python}" + ("" if path is None else f", which is {path}"),
                have=f"the driver's Python, {sys.executable}",
                remedy='os.environ["PYSPARK_PYTHON"] = sys.executable, before the session is created · '
                "activate the environment",
                details={"python": path or python},
            )


@lru_cache
def _problem(python: str) -> str:
    """Return why a Python could not run tasks; empty if it could."""
    try:
        done = subprocess.run(  # noqa: S603 - Spark starts the same program
            [python, "-c", _PROBE], check=False, capture_output=True, text=True, timeout=_LIMIT
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cannot be started: {error}"
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return f"cannot import headgate: {lines[-1] if lines else f'exit code {done.returncode}'}"
    drivers = f"{sys.version_info[0]}.{sys.version_info[1]}"
    version = done.stdout.split()[-1]
    return "" if version == drivers else f"is Python {version}, and the driver's is {drivers}"
