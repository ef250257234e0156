"""Journals, links and staged files as another user could leave them below a sink's path."""

import pytest
from tests.kit import sinks

from headgate.errors import SinkError
from headgate.sink import CommitterContext, FileSink, write
from headgate.sink.journal import Journal, Move

JOB, QUERY = "f00d", "q"
PART = f"part-{JOB}-00000-00000.parquet"
STAGED = f"_staging/{JOB}/a1/part-00000.parquet"
TEXT = b"kept private"
SIZE = len(TEXT)


def plant(path, *, name=JOB, job=JOB, moves=(), removes=(), marker=None, rows=0):
    """Write a journal, and a staged file that it may name, as another user could."""
    folder = path / "_staging" / name
    (folder / "a1").mkdir(parents=True)
    (folder / "a1" / "part-00000.parquet").write_bytes(TEXT)
    journal = Journal(job, tuple(moves), tuple(removes), marker, rows)
    (folder / "_commit.json").write_bytes(journal.to_json())


def stream(path):
    """Return the committer of a stream that replaces all rows, also by none."""
    return FileSink(path, mode="overwrite").create_committer(CommitterContext(QUERY))


def actions(path):
    """Return the uses of a path that look at its staging folder, by name."""
    return {
        "recover": FileSink(path, stale_after=0).recover,
        **{
            mode: lambda mode=mode: write(sinks.numbers(0, 3), FileSink(path, mode=mode))
            for mode in ("error", "append", "overwrite")
        },
        "stream": lambda: stream(path).commit(0, []),
    }


ACTIONS = ("recover", "error", "append", "overwrite", "stream")


def refused(path, action, said):
    """Check that an action is refused with a text; return the error."""
    with pytest.raises(SinkError, match=said) as caught:
        actions(path)[action]()
    assert caught.value.code == "HG-6004"
    assert caught.value.remedy
    assert caught.value.details["path"].startswith(str(path))
    return str(caught.value)


def move(source=STAGED, target=PART, size=SIZE):
    return {"moves": [Move(source, target, size)]}
