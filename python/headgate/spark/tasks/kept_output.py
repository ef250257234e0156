"""Output of a producer of a kept exchange: a file of pages, or few rows in ordinary memory.

With a thousand partitions a producer often has a few rows for each. Pages in segments would cost it a
segment, a part of a file and several reads for each partition. So the first batches wait until the
output has ended, or is large. A small one becomes one page per partition, each as large as its rows.

Decision: ADR 0026.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import headgate as hg
from headgate._closing import Closing
from headgate.kept import keep_small
from headgate.writer import WriterStats

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from headgate.options import EnvironmentOptions
    from headgate.partition import KeptSubpartition
    from headgate.spark.tasks.timing import Clock

#: Largest output of a producer, in bytes, that travels through Spark's shuffle whatever its pages. So
#: small that one consumer can get it from a thousand producers.
_INLINE: Final = 256 << 10
#: Largest page that travels so in a larger output. It costs less than to map a file.
_PAGE: Final = 4 << 10
#: Bytes of rows that wait in memory, at most.
_WAITING: Final = 4 << 20
#: Batches that wait in memory, at most: each is copied.
_BATCHES: Final = 64
#: More than any output.
_UNLIMITED: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class KeptPartition:
    """The output that a producer keeps.

    Attributes:
        subpartitions: those that have rows.
        rows: rows of each of them.
        totals: of the rows, pages and their bytes.
        peak_bytes: peak usage of the pool.
        disk_ms: ms of waiting for files to be written.
    """

    subpartitions: Sequence[KeptSubpartition]
    rows: Sequence[int]
    totals: WriterStats
    peak_bytes: int
    disk_ms: int = 0


class KeptOutput(Closing):
    """Takes the batches of one producer, places their rows, and keeps them.

    As a context manager it frees the memory at the end of the block.

    Args:
        schema: of the batches.
        selector: places their rows.
        num_partitions: subpartitions.
        options: of the environment.
        clock: gets the time in which the output waits for memory.
        is_inline: True if no consumer could open a file.
    """

    def __init__(
        self,
        schema: pa.Schema,
        selector: Any,
        num_partitions: int,
        options: EnvironmentOptions,
        clock: Clock,
        *,
        is_inline: bool,
    ) -> None:
        self._schema = schema
        self._selector = selector
        self._num_partitions = num_partitions
        self._options = options
        self._clock = clock
        self._inline = _UNLIMITED if is_inline else _INLINE
        #: Copies of the batches so far, since a function may change its own later. None once the output
        #: is written to pages in segments.
        self._waiting: list[pa.RecordBatch] | None = []
        self._left = min(_WAITING, max(_INLINE, num_partitions * _PAGE))
        self._written: _Segments | None = None

    def close(self) -> None:
        """Close the environment, if there is one."""
        if self._written is not None:
            self._written.environment.close()

    def emit(self, batch: pa.RecordBatch) -> None:
        """Place the rows of a batch. The caller may change the memory under the batch afterwards.

        Raises:
            HeadgateError: as of :meth:`RecordWriter.emit`.
        """
        if self._waiting is not None and self._may_wait(batch):
            self._waiting.append(_copy(batch, self._schema))
            self._left -= batch.nbytes
        else:
            self._segments().writer.emit(batch)

    def keep(self, path: Path) -> KeptPartition:
        """End the output and return what is kept, in a file of this name if not in the result."""
        small = None if self._waiting is None else self._small(self._waiting)
        return self._segments().keep(path, self._inline) if small is None else small

    def _may_wait(self, batch: pa.RecordBatch) -> bool:
        return (
            isinstance(self._selector, hg.HashSelector)
            and len(self._waiting or ()) < _BATCHES
            and batch.nbytes <= self._left
            # The writer also takes columns in other encodings, which cannot be joined to these.
            and batch.schema.types == self._schema.types
        )

    def _small(self, batches: list[pa.RecordBatch]) -> KeptPartition | None:
        """Return the waiting rows in one page per subpartition; None if the pages are large."""
        import pyarrow as pa  # noqa: PLC0415 - only workers need it

        if not batches:
            return KeptPartition([], [], WriterStats(0, 0, 0), 0)
        # A host sends a page in one segment of its receiver.
        limits: Any = (self._options["max_record_size"], self._options["segment_size"])
        pages = keep_small(
            pa.concat_batches(batches),
            self._schema,
            self._selector,
            self._num_partitions,
            all_bytes=self._inline,
            page_bytes=_PAGE,
            max_page_bytes=min(limits),
        )
        if pages is None:
            return None
        subpartitions, rows = pages
        size = sum(part.size for part in subpartitions)
        totals = WriterStats(sum(rows), size, len(subpartitions))
        return KeptPartition(subpartitions, rows, totals, 0)

    def _segments(self) -> _Segments:
        """Return the pages in segments, to which the batches that waited are written."""
        if self._written is None:
            self._written = _Segments(
                self._schema, self._selector, self._num_partitions, self._options
            )
            self._clock.blocked_ns = self._written.writer.back_pressured_ns
            waiting, self._waiting = self._waiting, None
            for batch in waiting or ():
                self._written.writer.emit(batch)
        return self._written


class _Segments:
    """A blocking partition of an environment of its own, and its writer."""

    def __init__(
        self, schema: pa.Schema, selector: Any, num_partitions: int, options: EnvironmentOptions
    ) -> None:
        self.environment = hg.ShuffleEnvironment(**options)
        try:
            self._partition = self.environment.create_result_partition(
                num_partitions, kind="blocking", schema=schema
            )
            self.writer = hg.RecordWriter(self._partition, schema=schema, selector=selector)
        except BaseException:
            self.environment.close()
            raise

    def keep(self, path: Path, inline_limit: int) -> KeptPartition:
        self.writer.finish()
        subpartitions = self._partition.keep(path, inline_limit=inline_limit)
        stats = self.environment.stats()
        counts = [counted["rows"] for counted in stats["partitions"][0]]
        rows = [counts[counted.subpartition] for counted in subpartitions]
        peak, disk_ms = stats.get("peak_bytes", 0), self.environment.waits().disk_ns // 1_000_000
        return KeptPartition(subpartitions, rows, self.writer.stats(), peak, disk_ms)


def _copy(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415 - only workers need it

    batch = pa.RecordBatch.from_arrays(batch.columns, schema=schema)  # of equal types
    # Arrow copies the memory when it joins batches, an empty one included.
    return pa.concat_batches([batch, batch.slice(0, 0)])
