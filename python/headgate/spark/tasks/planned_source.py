"""A source whose splits were planned when the plan was made: each task reads its share of them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate._kinds import kind_of
from headgate.errors import SourceError
from headgate.source.planning import read_splits

if TYPE_CHECKING:
    from collections.abc import Generator

    import pyarrow as pa

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
        read = read_splits(self.source, self.version, splits, index=index, parallelism=readers)
        with closing(read) as records:
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
