"""write(): a DataFrame, a source, or the result of an exchange, into a sink; eager."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import OptionError, SchemaMismatchError
from headgate.spark.schema import arrow_schema_in_utc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headgate.sink import Committable, Sink, WriteResult
    from headgate.source import Source
    from headgate.spark.tasks.user_function import BatchFunction

#: What each task returns: its committable, as text.
MANIFEST: Final = "committable string"


@dataclass(frozen=True, slots=True)
class WriteTask:
    """What travels to the tasks.

    Attributes:
        sink: where to.
        job: the committer's.
        schema: what batches are cast to; None for the first batch's.
    """

    sink: Sink
    job: str
    schema: pa.Schema | None


def write(
    df: DataFrame | Source[pa.RecordBatch, Any, Any],
    sink: Sink,
    *,
    spark: SparkSession | None = None,
    by: str | Iterable[str] | Callable[[pa.RecordBatch], Any] | Any | None = None,
    map: BatchFunction | None = None,  # noqa: A002 - the name of the public interface
    reduce: BatchFunction | None = None,
    schema: StructType | str | None = None,
    num_partitions: int | None = None,
    **options: Any,
) -> WriteResult:
    """Write rows into a sink, all of them or none; returns when they are visible.

    A DataFrame alone is written by its own tasks. With a source, or with any argument of
    :func:`~headgate.spark.exchange`, the rows go through an exchange whose consumers write them: no
    row of the result passes through the JVM. Of each task exactly one attempt is committed, however
    often Spark runs it.

    Args:
        df: a DataFrame, or a bounded source whose records are batches.
        sink: where to, as :class:`headgate.sink.FileSink`. Driver and executors must reach it.
        spark: the session that a source is read in; by default the active one.
        by: who writes which row; see ``exchange()``.
        map: runs in the producers; see ``exchange()``.
        reduce: runs in the consumers before the rows are written; see ``exchange()``.
        schema: of what ``reduce`` returns, or ``map``; see ``exchange()``. Batches are cast to it.
        num_partitions: how many consumers write.
        options: further ones of ``exchange()``.

    Returns:
        Rows, bytes and files that became visible.

    Raises:
        SinkError: the sink holds data already, or could not be written; nothing is visible, unless
            the error says that the commit is decided.
        SchemaMismatchError: rows without columns.
        OptionError: as ``exchange()``.
        Exception: whatever the action raises; nothing is visible then.
    """
    from headgate.sink import Committable  # noqa: PLC0415 - imports pyarrow
    from headgate.sink import Sink as SinkClass  # noqa: PLC0415
    from headgate.sink.commit import abort_after  # noqa: PLC0415

    if not isinstance(sink, SinkClass):
        raise OptionError(
            f"sink is a {type(sink).__name__}, not a headgate.sink.Sink",
            remedy="FileSink(path)",
        )
    given = {**options, "spark": spark, "num_partitions": num_partitions}
    given = {name: value for name, value in given.items() if value is not None}
    committer = sink.create_committer()
    if _is_alone(df, by, map, reduce, schema, given):
        table: Any = df
        columns = file_schema(table.schema)
        manifests = _written(table, WriteTask(sink, committer.job, None))
    else:
        columns = file_schema(_result(df, by, map, reduce, schema, given))
        task = WriteTask(sink, committer.job, columns)
        manifests = _exchanged(df, task, by, map, reduce, schema, given)
    committer.start()
    try:
        # One row of each task: of the attempt that Spark took.
        rows = manifests.collect()
        found = [Committable.from_json(row["committable"]) for row in rows]
        if not any(committable.files for committable in found):
            found.append(empty(sink, committer.job, columns))
        return committer.commit(found)
    except BaseException as error:
        abort_after(error, committer.abort)
        raise


def run(task: WriteTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write a task's batches; yield its committable."""
    import pyarrow as pa  # noqa: PLC0415 - only workers need it

    from headgate.sink import WriterContext  # noqa: PLC0415

    # Every writer makes up its attempt: a task may run several, and run again.
    context = WriterContext(task.job, _partition())
    with task.sink.create_writer(context, task.schema) as writer:
        for batch in batches:
            writer.write(batch)
        committable = writer.prepare_commit()
    yield pa.RecordBatch.from_pydict({"committable": [committable.to_json()]})


def empty(sink: Sink, job: str, schema: pa.Schema) -> Committable:
    """Stage one file without rows, so that an empty result has its columns."""
    from headgate.sink import WriterContext  # noqa: PLC0415 - imports pyarrow

    with sink.create_writer(WriterContext(job), schema) as writer:
        return writer.prepare_commit()


def file_schema(schema: StructType) -> pa.Schema:
    """Return Spark's schema as files have it, of whatever types; time stamps are in UTC.

    Raises:
        SchemaMismatchError: there is no column.
    """
    if not schema.names:
        raise SchemaMismatchError(
            "a sink needs rows with at least one column",
            have="no column",
            remedy="give the rows a column",
        )
    return arrow_schema_in_utc(schema)


def _is_alone(df: Any, by: Any, map_: Any, reduce: Any, schema: Any, given: dict[str, Any]) -> bool:
    from headgate.spark.source_input import is_table, refuse_for_table  # noqa: PLC0415

    if not is_table(df) or any(x is not None for x in (by, map_, reduce)):
        return False
    if schema is not None:
        raise OptionError(
            "a schema without map and reduce",
            asked=f"schema={schema!r}",
            remedy="leave schema out · give map or reduce",
        )
    if set(given) <= {"spark"}:
        if "spark" in given:
            refuse_for_table(df, given["spark"], None, None)
        return True
    return False


def _written(df: Any, task: WriteTask) -> DataFrame:
    from headgate.spark.exchange import _portable  # noqa: PLC0415

    body = _portable(task, "headgate.spark.write")

    def write_part(batches: Iterator[Any]) -> Iterator[Any]:
        return body(batches)

    return df.mapInArrow(write_part, MANIFEST)  # type: ignore[no-any-return]


def _exchanged(
    df: Any,
    task: WriteTask,
    by: Any,
    map_: BatchFunction | None,
    reduce: BatchFunction | None,
    schema: StructType | str | None,
    given: dict[str, Any],
) -> DataFrame:
    from headgate.spark.exchange import exchange  # noqa: PLC0415

    if map_ is not None and reduce is None:
        # Our reduce follows it, and the schema is of what map returns then.
        given = {**given, "map_schema": schema}

    def reduce_and_write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run(task, batches if reduce is None else reduce(batches))

    return exchange(df, by, map_, reduce_and_write, MANIFEST, **given)


def _result(
    df: Any,
    by: Any,
    map_: BatchFunction | None,
    reduce: BatchFunction | None,
    schema: StructType | str | None,
    given: dict[str, Any],
) -> StructType:
    """Return the schema of what is written; refuse what exchange() refuses, in its words."""
    from headgate.spark.request import check  # noqa: PLC0415
    from headgate.spark.source_input import (  # noqa: PLC0415
        is_table,
        refuse_for_table,
        session_of,
        source_input,
    )

    options = dict(given)
    spark, watermarks = options.pop("spark", None), options.pop("watermarks", None)
    if is_table(df):
        refuse_for_table(df, spark, options.get("parallelism"), watermarks)
        return check(df, df.sparkSession, by, map_, reduce, schema, options).result
    data, session = source_input(df, watermarks), session_of(spark)
    return check(data, session, by, map_, reduce, schema, options).result


def _partition() -> int:
    from pyspark import TaskContext  # noqa: PLC0415 - only where Spark is

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
