"""A source whose splits were planned when the plan was made: each task reads its share of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate._kinds import kind_of
from headgate.errors import SourceError
from headgate.source.planning import read_splits
from headgate.spark.ddl_cast import DdlCast
from headgate.spark.tasks.function_task import FunctionTask
from headgate.spark.tasks.function_task import run as call
from headgate.spark.tasks.identity import numbers_in

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    import pyarrow as pa

    from headgate.batches import BatchFunction
    from headgate.source import Source


@dataclass(frozen=True, slots=True)
class PlannedSource:
    """A source and its splits. A task that runs again reads the splits that it had.

    Attributes:
        source: the source.
        name: of the source.
        version: the version of the split serializer that wrote the splits.
        shares: for each task, the ids and bytes of its splits.
        slots: tasks that run at the same time, as far as the driver knew.
    """

    source: Source[pa.RecordBatch, Any, Any]
    name: str
    version: int
    shares: tuple[tuple[tuple[str, bytes], ...], ...]
    slots: int

    def records(self, tasks: list[int]) -> Generator[pa.RecordBatch, None, None]:
        """Yield the source's batches for the tasks with these numbers.

        Raises:
            SourceError: the source failed; the error names the splits that were being read. Or it emitted
                a record that is not a batch.
        """
        splits = [split for number in tasks for split in self.shares[number]]
        readers = max(1, min(self.slots, len(self.shares)))
        index = tasks[0] % readers if tasks else 0
        records = read_splits(self.source, self.version, splits, index=index, parallelism=readers)
        yield from map(self._checked, records)

    def _checked(self, record: object) -> pa.RecordBatch:
        import pyarrow as pa  # noqa: PLC0415 - only workers need it

        if isinstance(record, pa.RecordBatch):
            return record
        raise SourceError(
            f"source {self.name!r} emitted {kind_of(record)}, not an Arrow batch",
            asked="pyarrow.RecordBatch",
            have=type(record).__name__,
        )

    def splits_of(self, tasks: list[int]) -> int:
        """Return how many splits the tasks with these numbers have."""
        return sum(len(self.shares[number]) for number in tasks)


@dataclass(frozen=True, slots=True)
class SourceTask:
    """A task that reads its share of a source and calls ``map``; Spark's own shuffle moves the rows.

    Attributes:
        source: the source.
        map: makes the rows; None where they are those of the source.
        input_schema: schema of the source's batches.
        schema: of the rows.
        option: the option that declares the schema of ``map``.
    """

    source: PlannedSource
    map: BatchFunction | None
    input_schema: pa.Schema
    schema: pa.Schema
    option: str


def run(task: SourceTask, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the tasks with these numbers."""
    records = task.source.records(numbers_in(numbers))
    if task.map is None:
        yield from DdlCast(task.schema, "the source", task.option).all(records)
    else:
        yield from call(
            FunctionTask("map", task.map, task.input_schema, task.schema, task.option), records
        )
