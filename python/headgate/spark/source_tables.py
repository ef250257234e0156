"""A source as an ordinary DataFrame with splits that are planned ahead, for Spark's own shuffle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.source.planning import plan_splits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from headgate.spark.request import Request


def planned_table(request: Request, slots: int) -> DataFrame:
    """Return a DataFrame of the rows that ``map`` returns for a source.

    The caller's thread lists the splits now and assigns them to the partitions in turn. So all
    actions read the same splits, while an exchange lists them anew for each action.

    Args:
        request: the request with the source.
        slots: slots of the application; the number of partitions if ``parallelism`` is not given.

    Raises:
        SourceError: The enumerator failed or did not answer.
    """
    given = request.source
    assert given is not None  # noqa: S101 - the only caller has checked that there is a source
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
