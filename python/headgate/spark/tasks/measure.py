"""The body of a task that makes the rows of an input to measure them, and keeps none."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.spark.tasks import function_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from headgate.spark.tasks.function_task import FunctionTask

#: Column of the only row of a task: the bytes of its rows in memory.
SIZE: Final = "bytes long"


@dataclass(frozen=True, slots=True)
class MeasureTask:
    """A task that measures its part of an input.

    Attributes:
        makes: the rows of the input.
        most: bytes after which the task stops, since the input is too large then.
    """

    makes: FunctionTask
    most: int


def run(task: MeasureTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield a row with the bytes of the rows, or with those so far once they are too many."""
    import pyarrow as pa  # noqa: PLC0415 - only workers need it

    size = 0
    with closing(function_task.run(task.makes, batches)) as rows:
        for batch in rows:
            size += batch.nbytes
            if size > task.most:
                break
    yield pa.RecordBatch.from_pydict({"bytes": pa.array([size], pa.int64())})
