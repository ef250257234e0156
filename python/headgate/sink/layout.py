"""Names below a sink's path. All but data files start with "_", which readers ignore.

::

    part-<job>-<task>-<n>.parquet              visible data
    _SUCCESS                                   marks a complete commit of the last job
    _staging/<job>/_job.json                   the owner of the job
    _staging/<job>/_commit.json                the journal of the job's decided commit
    _staging/<job>/<attempt>/part-<n>.parquet  a staged file
    _headgate/commits/<query>/<batch>          marks a committed batch of a streaming query
"""

from __future__ import annotations

from typing import Final

from headgate.sink.api import check_name

STAGING: Final = "_staging"
JOB: Final = "_job.json"
JOURNAL: Final = "_commit.json"
SUCCESS: Final = "_SUCCESS"
MARKERS: Final = "_headgate"
COMMITS: Final = f"{MARKERS}/commits"
#: Suffix of a file that :meth:`Storage.write_atomic` has not finished.
PARTIAL: Final = ".partial"


def staged_path(job: str, attempt: str, name: str) -> str:
    """Return the path of a staged file."""
    return f"{STAGING}/{job}/{attempt}/{name}"


def target_path(job: str, number: int, name: str) -> str:
    """Return the path at which a staged file becomes visible."""
    return f"part-{job}-{number:05d}-{name.rpartition('-')[2]}"


def marker_path(query: str, batch: int | str) -> str:
    """Return the path of the marker of a streaming query's batch."""
    return f"{COMMITS}/{query}/{batch}"


def batch_job(query: str, batch: int) -> str:
    """Return the name of the job of a streaming query's batch."""
    return f"{query}-{batch}"


def marker_of(job: str) -> str | None:
    """Return the path of the marker of a batch's job; None if it is no such job."""
    query, _, number = job.rpartition("-")
    return marker_path(query, number) if is_name(query) and number.isdecimal() else None


def is_hidden(path: str) -> bool:
    """Return True if readers ignore a relative path: a component starts with "_" or "."."""
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def is_name(text: str) -> bool:
    """Return True if a text is a valid name of a job or an attempt."""
    try:
        check_name(text)
    except ValueError:
        return False
    return True
