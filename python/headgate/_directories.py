"""Where Spark lets a process keep temporary files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

#: Variables that name them, and what parts the paths: what each Python worker gets from its executor, what
#: a cluster manager gives an executor, and what YARN gives a container.
_VARIABLES: Final = (
    ("SPARK_LOCAL_DIRS", ","),
    ("SPARK_EXECUTOR_DIRS", os.pathsep),
    ("LOCAL_DIRS", ","),
)


def local_directories(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return Spark's local directories; none where this process does not run for Spark.

    Args:
        environ: environment variables, by default those of the process.
    """
    environ = os.environ if environ is None else environ
    for variable, separator in _VARIABLES:
        paths = [path.strip() for path in environ.get(variable, "").split(separator)]
        if found := tuple(path for path in paths if path):
            return found
    return ()
