"""Spark's directories for temporary files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

#: Environment variables and their separators, set for a Python worker by its executor, for an
#: executor by a cluster manager, and for a container by YARN.
_VARIABLES: Final = (
    ("SPARK_LOCAL_DIRS", ","),
    ("SPARK_EXECUTOR_DIRS", os.pathsep),
    ("LOCAL_DIRS", ","),
)


def local_directories(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return Spark's local directories; none if this process does not run for Spark.

    Args:
        environ: environment variables; those of the process if not given.
    """
    environ = os.environ if environ is None else environ
    for variable, separator in _VARIABLES:
        paths = [path.strip() for path in environ.get(variable, "").split(separator)]
        if directories := tuple(path for path in paths if path):
            return directories
    return ()
