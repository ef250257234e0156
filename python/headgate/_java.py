"""Check for the Java that Spark needs; Spark's own error for a missing Java is a page of text."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from headgate.errors import JavaNotFound

#: The oldest Java that Spark 4 runs on.
OLDEST: Final = 17


def require_java() -> int:
    """Return the major version of the Java that Spark will start.

    Raises:
        JavaNotFound: there is no Java, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    where = f"JAVA_HOME={home!r}" if home else "JAVA_HOME is not set, PATH is searched"
    version = _version(java) if java else None
    if version is None:
        raise JavaNotFound("Java not found", asked=f"Java {OLDEST} or newer, for Spark", have=where)
    if version < OLDEST:
        raise JavaNotFound(
            f"Java {version} is too old",
            asked=f"Java {OLDEST} or newer, for Spark",
            have=f"Java {version} in {java}",
        )
    return version


def _version(java: str) -> int | None:
    try:
        done = subprocess.run(  # noqa: S603 - the program that Spark itself would start
            [java, "-version"], check=False, capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # Before 9 it was "1.8.0_392", since then "17.0.15".
    version = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(version[1]) if version else None
