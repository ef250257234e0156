"""A source as an ordinary DataFrame with splits planned ahead, for Spark's own shuffle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.source.planning import plan_splits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from headgate.spark.request import Request


def planned_table(request: Request, slots: int) -> DataFrame:
    """Return what ``map`` makes of a source, its splits dealt out to the partitions in turn.

    The splits are found now, in the caller's thread: unlike an exchange, each action reads the same.

    Args:
        request: whose source it is.
        slots: of the application; as many partitions where nothing else was asked for.

    Raises:
        SourceError: the enumerator failed, or never answered.
    """
    given = request.source
    assert given is not None  # noqa: S101 - who calls this has looked
    parallelism = request.options["parallelism"] or max(1, slots)
    planned = plan_splits(given.source, None, parallelism=parallelism)
    shares = [planned.splits[number::parallelism] for number in range(parallelism)]
    read = _reader(given.source, planned.version, shares, request)
    return request.session.range(0, parallelism, 1, parallelism).mapInArrow(read, request.wire)


def _reader(
    source: Any, version: int, shares: list[tuple[tuple[str, bytes], ...]], request: Request
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    function, wire, option = request.map, request.wire_schema, request.map_option

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from headgate.source.planning import read_splits  # noqa: PLC0415 - in the worker
        from headgate.spark.schema_cast import SchemaCast  # noqa: PLC0415 - in the worker

        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        splits = [split for number in numbers for split in shares[number]]
        records = read_splits(source, version, splits)
        made = records if function is None else function(records)
        yield from SchemaCast(wire, "the source" if function is None else "map", option).all(made)

    return read
