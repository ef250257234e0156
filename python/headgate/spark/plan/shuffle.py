"""The plan through Spark's own shuffle: the shortest way for rows that no Python function makes.

It also serves clients of Spark Connect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headgate._kinds import kind_of
from headgate.key_groups import default_max_parallelism, key_groups, operator_index
from headgate.selectors import (
    PLACED_BY_ORDER,
    BroadcastSelector,
    ForwardSelector,
    GlobalSelector,
    HashSelector,
    KeyGroupSelector,
)
from headgate.spark.plan.chain import ReturningTask, add_result
from headgate.spark.plan.keys import for_spark
from headgate.spark.portable import pickled, portable
from headgate.spark.tasks.function_task import FunctionTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from headgate.spark.plan.request import Request

#: As mapInArrow takes it.
_OnBatches: TypeAlias = "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]"
_BODY: Final = "headgate.spark.tasks.function_task"
#: Name of the column that carries the partition of each row through Spark's shuffle.
CHANNEL: Final = "__headgate_channel"


def shuffle(request: Request, partitions: int, name: str, *, is_auto: bool = False) -> DataFrame:
    """Return a DataFrame that runs ``map``, Spark's repartition, then ``reduce``.

    Each row goes to the partition in which the exchange would put it.

    Args:
        request: The call of exchange(), with the splits of a source.
        partitions: Number of partitions of the result.
        name: Name of the exchange.
        is_auto: True if Spark's adaptive execution finds the number, by the sizes of its own shuffle.
    """
    from headgate.spark.plan.source_tables import input_table, mapped  # noqa: PLC0415 - imports pyarrow

    source = request.planned
    if request.map is None and source is None and request.combine is None:
        df = input_table(request)
    else:
        function_name = "map" if source is None or request.map is not None else "the source"
        schemas = request.input_schema, request.wire_schema
        task = FunctionTask(
            function_name,
            request.map,
            *schemas,
            request.map_option,
            source=source,
            combine=request.combine,
        )
        step = "headgate" if source is None else f"headgate {source.name}"
        step += "" if request.map is None else ": map"
        step += "" if request.combine is None else ": combine"
        df = mapped(request, task, _BODY, step, request.wire)
    by = request.by
    keys: Any = by.columns if isinstance(by, HashSelector) else by
    if isinstance(by, (HashSelector, list)):
        columns = list(map(for_spark, keys))
        df = df.repartition(*columns) if is_auto else df.repartition(partitions, *columns)
    elif by is None or isinstance(by, PLACED_BY_ORDER):
        df = df.repartition(partitions)
    else:
        df = _by_channel(df, request, partitions)
    if request.sort_within:
        df = df.sortWithinPartitions(*map(for_spark, request.sort_within))
    if request.reduce is None:
        return df
    schemas = request.wire_schema, request.result_schema
    batch_bytes = request.options["batch_bytes"]
    task = FunctionTask("reduce", request.reduce, *schemas, "schema", batch_bytes)
    returning = ReturningTask(
        exchange=name,
        body=_BODY,
        pickled=pickled(task),
        step="headgate: reduce",
        schema=request.result_schema,
        partitions=None if is_auto else partitions,
        memory=0,
        has_function=True,
    )
    function = portable(returning.pickled, _BODY, returning.step)
    result = df.mapInArrow(function, request.result)
    add_result(result, returning)
    return result


def _by_channel(df: DataFrame, request: Request, partitions: int) -> DataFrame:
    from pyspark.sql.types import IntegerType, StructField, StructType  # noqa: PLC0415

    wire = StructType([*request.wire.fields, StructField(CHANNEL, IntegerType(), nullable=False)])
    keys = keys_of_partitions(partitions)
    broadcast = isinstance(request.by, BroadcastSelector)
    choose = _broadcast(keys) if broadcast else _chosen(_function(request.by, partitions), keys)
    return df.mapInArrow(choose, wire).repartition(partitions, CHANNEL).drop(CHANNEL)


def _function(by: Any, partitions: int) -> Callable[[Any], Any]:
    """Return a function from a batch to the partition number of each row, as the selector has it."""
    if isinstance(by, KeyGroupSelector):
        column, total = by.column, by.max_parallelism or default_max_parallelism(partitions)

        def of_key(batch: pa.RecordBatch) -> list[int]:
            groups = key_groups(batch.column(column), total).to_pylist()
            return [operator_index(group, partitions, total) for group in groups]

        return of_key
    if isinstance(by, (ForwardSelector, GlobalSelector)):
        return lambda batch: [0] * batch.num_rows
    function: Callable[[Any], Any] = by
    return function


def _numbers(returned: Any) -> list[int]:
    """Return the partition numbers that a function returned.

    Raises:
        SelectorError: They are no whole numbers.
    """
    import pyarrow as pa  # noqa: PLC0415 - only workers need it

    from headgate.errors import SelectorError  # noqa: PLC0415

    try:
        array = pa.array(returned)
        problem = f"{array.null_count} nulls" if array.null_count else str(array.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        array, problem = None, kind_of(returned)
    if array is None or array.null_count or not pa.types.is_integer(array.type):
        if array is not None and not len(array):
            return []
        raise SelectorError(
            f"by returned {problem}, not partition numbers",
            remedy="return one partition number per row, such as a list of int",
        )
    return array.to_pylist()  # type: ignore[no-any-return]


def _chosen(by: Any, keys: list[int]) -> _OnBatches:
    def chosen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415 - only workers need it

        from headgate.errors import SelectorError  # noqa: PLC0415

        for batch in batches:
            channels = _numbers(by(batch))
            if len(channels) != batch.num_rows:
                raise SelectorError(
                    f"by returned {len(channels)} partition numbers for {batch.num_rows} rows",
                    remedy="return one partition number per row",
                )
            wrong = next((c for c in channels if not 0 <= c < len(keys)), None)
            if wrong is not None:
                raise SelectorError(
                    f"by returned partition {wrong}, which is not from 0 to {len(keys) - 1}",
                    have=f"num_partitions={len(keys)}",
                    remedy=f"return partition numbers from 0 to {len(keys) - 1}",
                )
            yield _with_channel(batch, pa.array([keys[c] for c in channels], pa.int32()))

    return chosen


def _broadcast(keys: list[int]) -> _OnBatches:
    def broadcast(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415

        for batch in batches:
            for key in keys:
                yield _with_channel(batch, pa.array([key] * batch.num_rows, pa.int32()))

    return broadcast


def _with_channel(batch: pa.RecordBatch, channels: pa.Array) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415

    field = pa.field(CHANNEL, pa.int32(), nullable=False)
    schema = batch.schema.append(field)
    return pa.RecordBatch.from_arrays([*batch.columns, channels], schema=schema)


def keys_of_partitions(partitions: int) -> list[int]:
    """Return an int for each partition: one whose row Spark's repartition puts there."""
    keys: dict[int, int] = {}
    number = 0
    while len(keys) < partitions:
        keys.setdefault(murmur3(number) % partitions, number)
        number += 1
    return [keys[partition] for partition in range(partitions)]


def murmur3(number: int, seed: int = 42) -> int:
    """Return Spark's hash of a 32-bit int, signed: Murmur3_x86_32 of its four bytes."""
    mask = 0xFFFFFFFF
    k = (number * 0xCC9E2D51) & mask
    k = ((k << 15 | k >> 17) & mask) * 0x1B873593 & mask
    h = seed ^ k
    h = (((h << 13 | h >> 19) & mask) * 5 + 0xE6546B64) & mask
    h ^= 4
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        h = ((h ^ h >> shift) * factor) & mask
    return h - (1 << 32) if h & 0x80000000 else h
