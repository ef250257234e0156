"""Names below a sink's path. All but data files start with "_", which readers ignore.

::

    part-<job>-<c>-<task>-<n>.parquet              visible data of checkpoint c; a batch has only 0
    day=2026-01-31/part-<job>-...                  the same, with a partition column
    _SUCCESS                                       marks a complete commit of the last batch
    _staging/<job>-<c>/_job.json                   the owner of a batch
    _staging/<job>-<c>/_commit.json                the journal of the checkpoint's decided commit
    _staging/<job>-<c>/<attempt>/part-<n>.parquet  a staged file
    _headgate/commits/<job>/<c>                    marks a committed checkpoint of a stream
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


def folder_name(job: str, number: int) -> str:
    """Return the name of the folder in which the files of a job's checkpoint are staged."""
    return f"{job}-{number}"


def staged_path(folder: str, attempt: str, name: str) -> str:
    """Return the path of a staged file."""
    return f"{STAGING}/{folder}/{attempt}/{name}"


def target_path(folder: str, number: int, name: str, partition: str) -> str:
    """Return the path at which a staged file becomes visible, in the folders of its partition."""
    target = f"part-{folder}-{number:05d}-{name.rpartition('-')[2]}"
    return f"{partition}/{target}" if partition else target


def marker_path(job: str, number: int | str) -> str:
    """Return the path of the marker of a job's checkpoint."""
    return f"{COMMITS}/{job}/{number}"


def marker_of(folder: str) -> str | None:
    """Return the path of the marker of a folder's checkpoint; None if it is no such folder."""
    job, _, number = folder.rpartition("-")
    return marker_path(job, number) if is_name(job) and number.isdecimal() else None


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
