"""The user's call for a report."""

from __future__ import annotations

import os
from pathlib import Path

from headgate._arguments import instance, takes, whole
from headgate.errors import OptionError
from headgate.observe.report.files import write
from headgate.observe.runs import RUNS


@takes(
    path=instance("a path", str, os.PathLike, remedy='"report.html" · "run.json"'), runs=whole(1)
)
def report(path: str | os.PathLike[str] = "report.html", runs: int | None = None) -> Path:
    """Write what the driver knows of its last runs into one file, also of runs that failed or go on.

    You can open the page without a network or a server. It has error texts, host names and the values of options,
    but no rows, no secrets and no environment variables. docs/report.md explains its parts.

    Args:
        path: of the file, which is replaced at once when the new one is complete. ``.html`` or ``.htm`` writes
            the page; ``.json`` writes the same as data, of which ``python -m headgate report`` makes the page.
        runs: number of runs, the newest ones; all that the record has if not given, at most 32.

    Returns:
        The absolute path.

    Raises:
        OptionError: the path has another suffix or cannot be written, or ``runs`` is not above 0.
        PackageNotFound: the extra "ui" is not installed, which a page needs and JSON does not.
    """
    state = RUNS.state()
    try:
        return write({**state, "runs": state["runs"][:runs]}, path)
    except OSError as error:
        file = Path(path).absolute()
        missing = not file.parent.is_dir()
        raise OptionError(
            f"path={os.fspath(path)!r} cannot be written: {error.strerror or error}",
            asked=str(file),
            have=f"{file.parent} is no folder" if missing else "",
            remedy="make the folder · another path",
        ) from error
